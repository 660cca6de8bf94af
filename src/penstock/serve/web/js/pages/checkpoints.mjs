// Checkpoints: overview, the newest in a strip, one as a Gantt chart, history, sizes, settings.

import { useResource } from "../api.mjs";
import { isSavepoint, kindLabel, summary, SUMMARY_COLUMNS } from "../checkpoint_stats.mjs";
import { ago, bytes, count, duration, isNumber, NONE, plural } from "../format.mjs";
import { html, useEffect, useMemo, useState } from "../html.mjs";
import { apiPath, linkTo } from "../routes.mjs";
import { CheckpointDetail } from "../parts/checkpoint.mjs";
import { Card, Empty, Scroll, Size, Stat, Status, Time, useNow, Waiting } from "../parts/shared.mjs";

const STRIP = 60;
const ROWS = matchMedia("(max-width: 600px)").matches ? 6 : 15;

export function Page({ route }) {
  const resource = useResource(apiPath(route.job, "checkpoints"), 3);
  if (resource.data === null) return html`<${Waiting} resource=${resource} what="checkpoints" />`;
  const { checkpoints } = resource.data;
  if (checkpoints.length === 0) {
    return html`<section class="card"><${Empty} title="No checkpoints yet">
      They are shown here as soon as the first one is triggered. Without <code>execution.checkpointing.interval</code> there are none.<//></section>
      <${Configuration} config=${resource.data.config} />`;
  }
  const pinned = route.detail === null ? null : checkpoints.find((found) => String(found.id) === route.detail);
  const shown = pinned ?? checkpoints.findLast((found) => found.status !== "PENDING") ?? checkpoints.at(-1);
  return html`
    <${Overview} data=${resource.data} />
    <${Strip} checkpoints=${checkpoints.slice(-STRIP)} shown=${shown} job=${route.job} pinned=${pinned} />
    <${CheckpointDetail} job=${route.job} brief=${shown} />
    <${Sizes} checkpoints=${checkpoints} />
    <${History} checkpoints=${checkpoints} job=${route.job} shown=${shown} />
    <${Summary} checkpoints=${checkpoints} />
    <${Configuration} config=${resource.data.config} />`;
}

function Overview({ data }) {
  const now = useNow();
  const { checkpoints, counts, restored } = data;
  const completed = checkpoints.findLast((c) => c.status === "COMPLETED" && !isSavepoint(c));
  const savepoint = checkpoints.findLast((c) => c.status === "COMPLETED" && isSavepoint(c));
  const failed = checkpoints.findLast((c) => c.status === "FAILED");
  return html`<dl class="stats">
    <${Stat} label="Completed" value=${count(counts.completed)} note=${completed ? `last: ${completed.id}, ${ago(now - completed.triggered - completed.duration_s)}` : "none yet"} />
    <${Stat} label="Failed" value=${count(counts.failed)} note=${failed ? `last: ${failed.id}, ${ago(now - failed.triggered - failed.duration_s)}` : "none"} />
    <${Stat} label="In progress" value=${count(counts.pending)} note=${inProgress(checkpoints, now)} />
    <${Stat} label="Restored" value=${count(counts.restored)} note=${restored ? `last: ${isNumber(restored.checkpoint) ? restored.checkpoint : "none"}, ${ago(now - restored.time)}` : "never"} />
    <${Stat} label="Latest savepoint" value=${savepoint ? savepoint.id : NONE} note=${savepoint ? ago(now - savepoint.triggered) : "none"} />
  </dl>
  ${failed && failed === checkpoints.findLast((c) => c.status !== "PENDING") && html`<div class="notice warn" role="status"><div>
    <strong>Checkpoint ${failed.id} failed.</strong><div>${failed.failure}</div></div></div>`}`;
}

function inProgress(checkpoints, now) {
  const pending = checkpoints.filter((c) => c.status === "PENDING").at(-1);
  if (!pending) return "none";
  return `${pending.id}: ${pending.acknowledged} of ${pending.subtasks} after ${duration(Math.max(0, now - pending.triggered))}`;
}

/** The newest checkpoints as columns as high as they took long. */
function Strip({ checkpoints, shown, job, pinned }) {
  const longest = Math.max(...checkpoints.map((c) => c.duration_s), 0.001);
  return html`<${Card} title="Newest checkpoints" note=${html`Height: duration, at most ${duration(longest)}. ${pinned
    ? html`Pinned to ${pinned.id}. <a href=${linkTo(job, "checkpoints")}>Follow the newest</a>`
    : "Following the newest; choose one to pin it."}`}>
    <ol class="strip">${checkpoints.map((c) => {
      const label = `${kindLabel(c)} ${c.id}, ${c.status.toLowerCase()}, ${duration(c.duration_s)}`;
      return html`<li key=${c.id}><a href=${linkTo(job, "checkpoints", c.id)} title=${label} aria-label=${label} aria-current=${c === shown ? "true" : undefined}
        class=${`${c.status.toLowerCase()} ${isSavepoint(c) ? "savepoint" : ""}`}>
        <span style=${{ height: `${Math.max(6, (100 * c.duration_s) / longest)}%` }}></span></a></li>`;
    })}</ol>
    <ul class="legend"><li><span class="swatch p4"></span>Checkpoint</li><li><span class="swatch p5"></span>Savepoint</li><li><span class="swatch p3"></span>Failed</li><li><span class="swatch p2"></span>In progress</li></ul>
  <//>`;
}

function Sizes({ checkpoints }) {
  const [Chart, setChart] = useState(null);
  useEffect(() => {
    import("../parts/chart.mjs").then((module) => setChart(() => module.Chart), () => {});
  }, []);
  const done = useMemo(() => checkpoints.filter((c) => c.status === "COMPLETED"), [checkpoints]);
  const newest = done.at(-1)?.id;
  const lines = useMemo(() => {
    const x = done.map((c) => c.triggered + c.duration_s);
    return { size: [x, done.map((c) => c.full_bytes), done.map((c) => c.new_bytes)], time: [x, done.map((c) => c.duration_s)] };
  }, [done.length, newest]);
  if (done.length < 2 || !Chart) return null;
  return html`<div class="columns">
    <${Card} title="Size over time" note="What a checkpoint added, and its full state">
      <${Chart} data=${lines.size} label="Full and new bytes of checkpoints over time" y=${{ format: bytes, binary: true }} series=${[
        { label: "Full", color: "--part-5", format: bytes, fill: true, points: done.length < 40 },
        { label: "New", color: "--part-4", format: bytes, points: done.length < 40 },
      ]} /><//>
    <${Card} title="Duration over time" note="From the trigger to completion">
      <${Chart} data=${lines.time} label="Duration of checkpoints over time" y=${{ format: duration }} series=${[
        { label: "End to end", color: "--part-3", format: duration, fill: true, points: done.length < 40 },
      ]} /><//></div>`;
}

function History({ checkpoints, job, shown }) {
  const [most, setMost] = useState(ROWS);
  const newest = [...checkpoints].reverse();
  return html`<${Card} title="History" flush=${true} note=${`The newest ${checkpoints.length}; it survives restarts`}>
    <${Scroll} label="History of checkpoints"><table class="cards history">
      <thead><tr><th>Checkpoint</th><th>Status</th><th>Attempt</th><th>Acknowledged</th><th>Triggered</th><th class="num">Duration</th>
        <th class="num">New</th><th class="num">Full</th><th class="num">In-flight</th></tr></thead>
      <tbody>${newest.slice(0, most).map((c) => html`<tr key=${c.id} class=${c === shown ? "selected" : ""}>
        <td class="title" data-label="Checkpoint"><a href=${linkTo(job, "checkpoints", c.id)}>${c.id}</a> <span class="tag">${kindLabel(c)}</span>${c.discarded && html` <span class="tag">discarded</span>`}</td>
        <td data-label="Status"><span><${Status} value=${c.status} /></span></td>
        <td data-label="Attempt">${c.attempt}</td>
        <td data-label="Acknowledged" class="nowrap">${c.acknowledged} of ${c.subtasks}</td>
        <td data-label="Triggered"><${Time} at=${c.triggered} /></td>
        <td class="num" data-label="Duration">${duration(c.duration_s)}</td>
        <td class="num" data-label="New"><${Size} value=${c.new_bytes} /></td>
        <td class="num" data-label="Full"><${Size} value=${c.full_bytes} /></td>
        <td class="num" data-label="In-flight"><${Size} value=${c.in_flight_bytes} /></td></tr>`)}</tbody></table><//>
    ${newest.length > most && html`<p class="more"><button onClick=${() => setMost(most + 100)}>Show ${Math.min(100, newest.length - most)} more</button></p>`}
  <//>`;
}

function Summary({ checkpoints }) {
  const rows = summary(checkpoints);
  if (rows.length === 0) return null;
  const print = { duration, bytes };
  return html`<${Card} title="Summary" note=${`Of ${plural(checkpoints.filter((c) => c.status === "COMPLETED").length, "completed checkpoint")} in the history`} flush=${true}>
    <${Scroll} label="Summary"><table>
      <thead><tr><th>Measure</th>${SUMMARY_COLUMNS.map(([label]) => html`<th class="num">${label}</th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`<tr><td class="nowrap">${row.label}</td>${row.values.map((value) => html`<td class="num">${print[row.kind](value)}</td>`)}</tr>`)}</tbody></table><//><//>`;
}

function Configuration({ config }) {
  const entries = Object.entries(config ?? {});
  return html`<${Card} title="Configuration" note="Of the newest attempt">
    ${entries.length === 0
      ? html`<p class="quiet">Not recorded: the job was last run by an older version.</p>`
      : html`<dl class="settings">${entries.map(([name, value]) => html`<div><dt>${name}</dt><dd>${String(value)}</dd></div>`)}</dl>`}<//>`;
}
