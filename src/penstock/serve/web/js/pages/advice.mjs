// Advice: which checkpoint interval fits the goals, as curves with the job's own measurements.

import { useResource } from "../api.mjs";
import { boundText, consistencyText, goalsQuery, verdictText } from "../advice_texts.mjs";
import { bytes, decimal, duration, isNumber, NONE, percent, rate } from "../format.mjs";
import { html, useEffect, useMemo, useState } from "../html.mjs";
import { apiPath } from "../routes.mjs";
import { Card, Empty, Notice, Scroll, Stat, Waiting } from "../parts/shared.mjs";

const GOALS = [
  ["recovery_target", "Caught up after a failure within", "s", "60"],
  ["visibility", "Output visible within", "s", ""],
  ["overhead", "Checkpoints may take", "% of the capacity", "5"],
  ["failures_per_day", "Failures per day", "", ""],
];

export function Page({ route }) {
  const [goals, setGoals] = useState({ recovery_target: "60", overhead: "5" });
  const resource = useResource(apiPath(route.job, "advice") + goalsQuery(goals), 20);
  const form = html`<${Goals} goals=${goals} change=${setGoals} />`;
  if (resource.data === null) return html`${form}<${Waiting} resource=${resource} what="advice" />`;
  const { advice, problem } = resource.data;
  if (!advice) {
    return html`<section class="card"><${Empty} title="No advice yet">${problem ?? "The models are fitted to the job's own checkpoints: it has none yet."}<//></section>`;
  }
  return html`
    <${Verdict} advice=${advice} />
    ${form}
    <${Curves} advice=${advice} goals=${resource.data.goals} />
    <div class="columns"><${Bounds} advice=${advice} goals=${resource.data.goals} /><${Predictions} advice=${advice} /></div>
    ${advice.missing.length > 0 && html`<${Card} title="What is not measured yet" note="The history does not show it, so it is assumed or left out">
      <ul class="bullets">${advice.missing.map((text) => html`<li>${text}</li>`)}</ul><//>`}
    ${advice.guarantee === "EXACTLY_ONCE" && html`<${ExactlyOnce} consistency=${advice.consistency} />`}`;
}

function Verdict({ advice }) {
  const [tone, title, text] = verdictText(advice);
  return html`<section class=${`card verdict ${tone}`} aria-labelledby="verdict">
    <div><h2 id="verdict">${title}</h2><p class="quiet">${text}</p></div>
    ${advice.configuration.length > 0 && html`<div><p class="quiet small">Configuration to paste</p><pre class="trace" tabindex="0">${advice.configuration.join("\n")}</pre></div>`}
    ${advice.levers.length > 0 && html`<div><h3>What would make an interval possible</h3><ul class="findings">${advice.levers.map((lever) => html`<li class="info"><span class="finding-mark" aria-hidden="true"></span>
      <div>${lever.how}${lever.configuration.length > 0 && html`<pre class="trace">${lever.configuration.join("\n")}</pre>`}</div></li>`)}</ul></div>`}
  </section>`;
}

function Goals({ goals, change }) {
  const submit = (event) => {
    event.preventDefault();
    change(Object.fromEntries([...new FormData(event.target)].map(([name, value]) => [name, value.trim()])));
  };
  return html`<${Card} title="Goals" note="What you want from the job; empty where it does not matter">
    <form class="goals" onSubmit=${submit}>${GOALS.map(([name, label, unit, example]) => html`<label>${label}
      <span class="with-unit"><input type="text" inputmode="decimal" name=${name} value=${goals[name] ?? ""} placeholder=${example} pattern="[0-9]*[.]?[0-9]*" /><span class="quiet">${unit}</span></span></label>`)}
      <button class="primary">Compute</button></form><//>`;
}

function Curves({ advice, goals }) {
  const [Chart, setChart] = useState(null);
  useEffect(() => {
    import("../parts/chart.mjs").then((module) => setChart(() => module.Chart), () => {});
  }, []);
  const key = JSON.stringify([advice.curve, advice.observations, goals]);
  const lines = useMemo(() => curveLines(advice, goals), [key]);
  if (!Chart || advice.curve.length < 2) return null;
  const ends = [advice.curve[0].interval_s, advice.curve.at(-1).interval_s];
  const x = { time: false, log: true, format: duration, label: "Interval", range: () => ends };
  const marks = [
    ...(advice.recommended ? [{ x: advice.recommended.interval_s, label: `recommended ${duration(advice.recommended.interval_s)}` }] : []),
    ...(advice.current && advice.current.interval_s !== advice.recommended?.interval_s ? [{ x: advice.current.interval_s, label: `now ${duration(advice.current.interval_s)}` }] : []),
  ];
  return html`<div class="columns">
    <${Card} title="Time to normal after a failure" note="Until the job has caught up, by interval">
      ${lines.hasLoad
        ? html`<${Chart} data=${lines.normal} x=${x} y=${{ format: duration, range: lines.normalRange }} marks=${marks} height=${220} label="Time to normal by checkpoint interval" series=${[
            { label: "Worst", color: "--part-3", format: duration },
            { label: "Mean", color: "--part-4", format: duration },
            { label: "Target", color: "--muted", format: duration, dash: [5, 4], width: 1.3 },
          ]} />`
        : html`<p class="quiet">Not known: it needs the input rate and the capacity of the job. Both are measured while it runs, the capacity best while it catches up.</p>`}<//>
    <${Card} title="Cost of checkpoints" note="Share of the capacity, by interval">
      <${Chart} data=${lines.cost} x=${x} y=${{ format: percent, range: lines.costRange }} marks=${marks} height=${220} label="Overhead by checkpoint interval" series=${[
        { label: "Overhead", color: "--part-5", format: percent },
        { label: "Limit", color: "--muted", format: percent, dash: [5, 4], width: 1.3 },
      ]} /><//>
    <${Card} title="Duration of a checkpoint" note="From the trigger to completion: the model, and what was measured">
      <${Chart} data=${lines.duration} x=${x} y=${{ format: duration }} marks=${marks} height=${220} label="Duration of a checkpoint by interval" series=${[
        { label: "Model", color: "--part-4", format: duration, spanGaps: true },
        { label: "Measured", color: "--part-2", format: duration, width: 0, points: true },
      ]} /><//>
    <${Card} title="Until output is visible" note="Of exactly-once sinks, by interval">
      <${Chart} data=${lines.visible} x=${x} y=${{ format: duration }} marks=${marks} height=${220} label="Time until output is visible by interval" series=${[
        { label: "Worst", color: "--part-3", format: duration },
        { label: "Mean", color: "--part-4", format: duration },
      ]} /><//></div>`;
}

function curveLines(advice, goals) {
  const { curve, observations } = advice;
  const x = curve.map((point) => point.interval_s);
  const limit = (value) => curve.map(() => value ?? null);
  const target = goals.recovery_target_s;
  const normal = curve.map((point) => point.normal_worst_s);
  const merged = [
    ...curve.map((point) => [point.interval_s, point.duration_s, null]),
    ...observations.map((seen) => [seen.interval_s, null, seen.duration_s]),
  ].sort((a, b) => a[0] - b[0]);
  return {
    hasLoad: normal.some(isNumber),
    normal: [x, normal, curve.map((point) => point.normal_mean_s), limit(target)],
    normalRange: () => [0, isNumber(target) ? Math.max(2.2 * target, 1.3 * (advice.recommended?.normal_worst_s ?? 0)) : Math.max(...normal.filter(isNumber))],
    cost: [x, curve.map((point) => point.overhead), limit(goals.overhead)],
    costRange: () => [0, Math.min(1, 4 * (goals.overhead ?? 0.05))],
    duration: [0, 1, 2].map((at) => merged.map((row) => row[at])),
    visible: [x, curve.map((point) => point.visible_worst_s), curve.map((point) => point.visible_mean_s)],
  };
}

function Bounds({ advice, goals }) {
  return html`<${Card} title="Bounds of the interval" note="Why not shorter, why not longer">
    <ul class="lines">${advice.bounds.map((bound) => html`<li><div><strong>${bound.is_upper ? "At most" : "At least"} ${isNumber(bound.seconds) ? duration(bound.seconds) : bound.is_upper ? "any" : "impossible"}</strong>
      <div class="quiet small">${boundText(bound, goals)}</div></div>${bound.decides && html`<span class="badge live plain">decides</span>`}</li>`)}
      <li><div><strong>Cheapest: ${duration(advice.cheapest_s)}</strong><div class="quiet small">Loses least to checkpoints and repeated work with ${decimal(advice.failures_per_day)} ${advice.failures_per_day === 1 ? "failure" : "failures"} per day (Daly), bounds aside.</div></div></li></ul><//>`;
}

const ROWS = [
  ["Checkpoint takes", "duration_s", duration],
  ["New bytes per checkpoint", "new_bytes", bytes],
  ["Overhead", "overhead", percent],
  ["Load (input rate of capacity)", "load", percent],
  ["Downtime of a recovery", "downtime_s", duration],
  ["Time to normal, mean", "normal_mean_s", duration],
  ["Time to normal, worst", "normal_worst_s", duration],
  ["Output visible after, worst", "visible_worst_s", duration],
];

function Predictions({ advice }) {
  const columns = [["Now", advice.current], ["Recommended", advice.recommended]].filter(([, found]) => found);
  return html`<${Card} title="Prediction" note=${isNumber(advice.input_rate) ? `With ${rate(advice.input_rate)} of input` : undefined}>
    <${Scroll} label="Prediction"><table><thead><tr><th>Measure</th>${columns.map(([label, found]) => html`<th class="num">${label}: ${duration(found.interval_s)}</th>`)}</tr></thead>
    <tbody>${ROWS.map(([label, name, print]) => html`<tr><td>${label}</td>${columns.map(([, found]) => html`<td class="num">${isNumber(found[name]) ? print(found[name]) : NONE}</td>`)}</tr>`)}</tbody></table><//><//>`;
}

function ExactlyOnce({ consistency }) {
  if (!consistency) return null;
  return html`<${Card} title="Exactly once" note="From counted events, with 95 % confidence intervals">
    <dl class="stats inner">${consistencyText(consistency).map(([label, value, note]) => html`<${Stat} label=${label} value=${value} note=${note} />`)}</dl>
    ${consistency.caveat && html`<${Notice} title=${consistency.caveat} />`}<//>`;
}
