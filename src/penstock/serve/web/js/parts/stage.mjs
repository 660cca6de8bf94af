// One stage of the graph: its subtasks and operators; and the watermarks of all stages.

import { backpressureLevel, watermarkLag, watermarkText } from "../figures.mjs";
import { bytes, count, decimal, duration, isNumber, NONE, percent, rate } from "../format.mjs";
import { html, useEffect, useRef } from "../html.mjs";
import { Card, Scroll, useNow } from "./shared.mjs";

export function StageDetail({ node, close }) {
  const place = useRef(null);
  useEffect(() => {
    place.current?.scrollIntoView({ block: "nearest", behavior: "smooth" });
  }, [node.stage]);
  const share = (subtask, name) => (isNumber(subtask.metrics[name]) ? subtask.metrics[name] / 1000 : undefined);
  const rows = [...node.subtasks].sort((a, b) => (share(b, "busyTimeMsPerSecond") ?? 0) - (share(a, "busyTimeMsPerSecond") ?? 0));
  return html`<div ref=${place}><${Card} title=${node.name} id="stage-detail" flush=${true}
    note=${html`${node.parallelism} of at most ${count(node.max_parallelism)} subtasks${isNumber(node.figures.skew) ? ` · skew ${decimal(node.figures.skew)}` : ""}
      · <button class="link" onClick=${close}>Close</button>`}>
    ${rows.length === 0
      ? html`<p class="quiet padded">There are no live figures of its subtasks: they exist while a driver runs the job.</p>`
      : html`<${Scroll} label="Subtasks"><table class="cards">
        <thead><tr><th>Subtask</th><th>Executor</th><th class="num">Busy</th><th class="num">Backpressured</th><th class="num">Idle</th>
          <th class="num">Records in</th><th class="num">Records out</th><th class="num">Received</th><th>Watermark</th></tr></thead>
        <tbody>${rows.map((subtask) => {
          const m = subtask.metrics;
          const pressed = share(subtask, "backPressuredTimeMsPerSecond");
          return html`<tr><td data-label="Subtask" class="title">${subtask.subtask}</td>
            <td data-label="Executor">${subtask.executor || NONE} <span class="quiet">${subtask.host}</span></td>
            <td class="num" data-label="Busy">${percent(share(subtask, "busyTimeMsPerSecond"))}</td>
            <td class="num" data-label="Backpressured">${percent(pressed)} <span class="quiet">${backpressureLevel(pressed) ?? ""}</span></td>
            <td class="num" data-label="Idle">${percent(share(subtask, "idleTimeMsPerSecond"))}</td>
            <td class="num" data-label="Records in">${rate(m.numRecordsInPerSecond)}</td>
            <td class="num" data-label="Records out">${rate(m.numRecordsOutPerSecond)}</td>
            <td class="num" data-label="Received">${count(m.numRecordsIn)} <span class="quiet">${bytes(m.numBytesIn)}</span></td>
            <td class="num" data-label="Watermark">${watermarkText(m.currentOutputWatermark ?? m.currentInputWatermark) ?? NONE}</td></tr>`;
        })}</tbody></table><//>`}
    ${node.operators.length > 1 && html`<div class="padded"><h3>Operators of the chain</h3><ul class="lines">
      ${node.operators.map((operator) => html`<li><div>${operator.name} <span class="quiet mono small">${operator.uid}</span></div>
        <div class="num">${operatorText(operator)}</div></li>`)}</ul></div>`}
  <//></div>`;
}

function operatorText(operator) {
  const sum = (name) => {
    const values = Object.values(operator.subtasks).map((metrics) => metrics[name]).filter(isNumber);
    return values.length === 0 ? null : values.reduce((a, b) => a + b, 0);
  };
  return `${count(sum("numRecordsIn"))} in, ${count(sum("numRecordsOut"))} out`;
}

export function Watermarks({ nodes }) {
  const now = useNow();
  return html`<${Card} title="Watermarks" note="The lowest of each stage's subtasks, in UTC">
    <ul class="lines">${nodes.map((node) => {
      const lag = watermarkLag(node.figures.watermark, now);
      return html`<li><div><strong>${node.name}</strong></div>
        <div class="num live-figure">${watermarkText(node.figures.watermark) ?? html`<span class="quiet">none: records without event time</span>`}
          ${isNumber(lag) && html`<div class="quiet small">${duration(Math.max(0, lag))} behind</div>`}</div></li>`;
    })}</ul><//>`;
}
