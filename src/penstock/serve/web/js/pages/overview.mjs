// Overview of a job: what stands out, its graph with live figures, and rates while it is watched.

import { serverNow } from "../api.mjs";
import { findings } from "../diagnosis.mjs";
import { graphOf, jobRates, watermarkLag } from "../figures.mjs";
import { bytes, count, duration, isNumber, rate } from "../format.mjs";
import { html, useEffect, useMemo, useRef, useState } from "../html.mjs";
import { linkTo } from "../routes.mjs";
import { GraphView } from "../parts/graph.mjs";
import { Card, Stat, useNow } from "../parts/shared.mjs";
import { StageDetail, Watermarks } from "../parts/stage.mjs";

const KEPT = 600;

export function Page({ data, route }) {
  const graph = useMemo(() => graphOf(data.plan, data.live), [data]);
  const [chosen, setChosen] = useState(null);
  const rates = jobRates(graph);
  const selected = graph.nodes.find((node) => node.stage === chosen) ?? null;
  return html`
    <${Findings} data=${data} graph=${graph} job=${route.job} />
    <${Figures} data=${data} rates=${rates} graph=${graph} />
    <${Card} title="Graph" note="Stages and the channels between them. Choose one for its subtasks." flush=${true}>
      <${GraphView} graph=${graph} chosen=${chosen} choose=${(stage) => setChosen(stage === chosen ? null : stage)} now=${serverNow()} isStale=${data.is_stale} />
    <//>
    ${selected && html`<${StageDetail} node=${selected} edges=${graph.edges} nodes=${graph.nodes} close=${() => setChosen(null)} />`}
    <${Throughput} data=${data} rates=${rates} />
    <div class="columns"><${Channels} graph=${graph} /><${Watermarks} nodes=${graph.nodes} /></div>`;
}

function Findings({ data, graph, job }) {
  const found = findings({
    job: data.job,
    graph,
    checkpoints: data.checkpoints,
    attempts: data.attempts,
    interval: data.job.interval_s,
    advice: data.advice,
    now: serverNow(),
  });
  return html`<${Card} title="What stands out">
    ${found.length === 0
      ? html`<p class="quiet">Nothing: no failures, no bottleneck, no slow checkpoints.</p>`
      : html`<ul class="findings">${found.map((one) => html`<li class=${one.level}>
          <span class="finding-mark" aria-hidden="true"></span>
          <div><h3>${one.title}</h3><p class="quiet">${one.text}${" "}
            ${one.page !== "overview" && html`<a href=${linkTo(job, one.page)}>Show ${one.page}</a>`}</p></div></li>`)}</ul>`}
  <//>`;
}

function Figures({ data, rates, graph }) {
  const now = useNow();
  const last = data.job.last_checkpoint;
  const lags = graph.nodes.map((node) => watermarkLag(node.figures.watermark, now)).filter(isNumber);
  return html`<dl class="stats">
    <${Stat} label="Records in" value=${html`<span class="live-figure">${rate(rates.in)}</span>`} />
    <${Stat} label="Records out" value=${html`<span class="live-figure">${rate(rates.out)}</span>`} />
    <${Stat} label="Pending at the sources" value=${html`<span class="live-figure">${count(rates.pending)}</span>`} />
    <${Stat} label="Watermark lag" value=${lags.length === 0 ? undefined : html`<span class="live-figure">${duration(Math.max(0, ...lags))}</span>`} />
    <${Stat} label="Since last checkpoint" value=${last ? duration(Math.max(0, Math.floor(now - last.completed))) : undefined}
      note=${isNumber(data.job.interval_s) ? `interval ${duration(data.job.interval_s)}` : undefined} />
    <${Stat} label="Last checkpoint took" value=${last ? duration(last.duration_s) : undefined} note=${last ? bytes(last.full_bytes) : undefined} />
  </dl>`;
}

/** Rates since the page was opened: a job keeps only its newest figures. */
function Throughput({ data, rates }) {
  const kept = useRef([]);
  const [Chart, setChart] = useState(null);
  useEffect(() => {
    import("../parts/chart.mjs").then((module) => setChart(() => module.Chart), () => {});
  }, []);
  const time = data.live?.time;
  if (isNumber(time) && !data.is_stale && kept.current.at(-1)?.[0] !== time && isNumber(rates.in ?? rates.out)) {
    kept.current = [...kept.current, [time, rates.in, rates.out]].slice(-KEPT);
  }
  const lines = useMemo(() => [0, 1, 2].map((at) => kept.current.map((row) => row[at])), [kept.current]);
  return html`<${Card} title="Throughput" note="Records per second since this page was opened">
    ${kept.current.length < 2 || !Chart
      ? html`<p class="quiet">${data.job.status === "RUNNING" ? "Waiting for figures of the running driver …" : "No driver runs the job, so there is nothing to measure."}</p>`
      : html`<${Chart} data=${lines} label="Records in and out per second over time" y=${{ format: rate }}
          series=${[
            { label: "Records in", color: "--part-4", format: rate, fill: true },
            { label: "Records out", color: "--part-5", format: rate },
          ]} />`}
  <//>`;
}

function Channels({ graph }) {
  const name = (stage) => graph.nodes.find((node) => node.stage === stage)?.name;
  return html`<${Card} title="Queued records" note="What waits between the stages now">
    ${graph.edges.length === 0
      ? html`<p class="quiet">The job has one stage, so nothing is exchanged.</p>`
      : html`<ul class="lines">${graph.edges.map((edge) => html`<li>
          <div><strong>${name(edge.from)}</strong> <span class="quiet">to</span> <strong>${name(edge.to)}</strong>
            <div class="quiet small">${edge.exchange ?? ""}</div></div>
          <div class="num live-figure">${edge.channel ? html`${count(edge.channel.records)} <span class="quiet">records, ${bytes(edge.channel.bytes)}</span>` : html`<span class="quiet">in one Spark job</span>`}
            <div><${ChannelMarks} channel=${edge.channel} /></div></div></li>`)}</ul>`}
  <//>`;
}

export function ChannelMarks({ channel }) {
  if (!channel) return null;
  return html`<span class="row marks">
    ${isNumber(channel.blocked_at) && html`<span class="badge warn plain">blocked at barrier ${channel.blocked_at}</span>`}
    ${!isNumber(channel.blocked_at) && channel.barriers.length > 0 && html`<span class="badge live plain">barrier ${channel.barriers.join(", ")}</span>`}
    ${channel.is_full && html`<span class="badge bad plain">full</span>`}
    ${channel.has_ended && html`<span class="badge plain">ended</span>`}</span>`;
}
