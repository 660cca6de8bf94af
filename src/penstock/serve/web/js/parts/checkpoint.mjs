// One checkpoint: its Gantt chart by subtask, why it took as long as it did, and its event log.

import { useResource } from "../api.mjs";
import { gantt, kindLabel, PHASES, slowestSentence, ticks } from "../checkpoint_stats.mjs";
import { bytes, chain, clock, duration } from "../format.mjs";
import { html, useRef, useState } from "../html.mjs";
import { apiPath } from "../routes.mjs";
import { Card, Legend, Scroll, Size, Status, Time, Waiting } from "./shared.mjs";

const ROWS = 24;

export function CheckpointDetail({ job, brief }) {
  const resource = useResource(apiPath(job, "checkpoints", String(brief.id)), brief.status === "PENDING" ? 1 : 20);
  const [view, setView] = useState("gantt");
  const kept = useRef(null);
  if (resource.data !== null) kept.current = resource.data;
  // While the next one is loading, the one before stays.
  const c = resource.data ?? (resource.error ? null : kept.current);
  const named = c ?? brief;
  const title = html`${kindLabel(named)} ${named.id} <${Status} value=${named.status} />`;
  return html`<${Card} title=${title} id="checkpoint-detail" note=${html`triggered <${Time} at=${named.triggered} full=${true} /> · took ${duration(named.duration_s)}`}>
    ${c === null
      ? html`<${Waiting} resource=${resource} what="checkpoint" />`
      : html`<div class="stack tight">
        ${c.failure && html`<div class="notice warn" role="status"><div><strong>It failed.</strong><div>${c.failure}</div></div></div>`}
        ${c.status !== "FAILED" && html`<p class="reason">${slowestSentence(c)}</p>`}
        <div class="row between"><div class="segmented" role="group" aria-label="View">
          ${[["gantt", "Gantt chart"], ["table", "Table"], ["events", "Event log"]].map(([key, label]) => html`<button aria-pressed=${String(view === key)} onClick=${() => setView(key)}>${label}</button>`)}
        </div>${view === "gantt" && html`<${Legend} parts=${PHASES} />`}</div>
        ${view === "gantt" && html`<${Gantt} checkpoint=${c} />`}
        ${view === "table" && html`<${Subtasks} checkpoint=${c} />`}
        ${view === "events" && html`<${Events} checkpoint=${c} />`}
        ${c.path && html`<p class="quiet small">Path: <span class="mono">${c.path}</span>${c.discarded ? " (discarded)" : ""}</p>`}
      </div>`}<//>`;
}

function Gantt({ checkpoint }) {
  const [all, setAll] = useState(false);
  const { rows, span, lastAcknowledged } = gantt(checkpoint);
  if (rows.length === 0) return html`<p class="quiet">No subtask has acknowledged it.</p>`;
  const shown = all ? rows : rows.slice(0, ROWS);
  const marks = ticks(span);
  const rest = Math.max(0, span - lastAcknowledged);
  return html`<div class="gantt">
    <div class="gantt-axis" aria-hidden="true"><span></span><div class="gantt-scale">${marks.map((at) => html`<span style=${{ left: `${(100 * at) / span}%` }}>${duration(at)}</span>`)}</div><span></span></div>
    <ol>${shown.map((row) => html`<${Row} row=${row} span=${span} marks=${marks} />`)}
      ${checkpoint.status === "COMPLETED" && html`<li class="gantt-row driver"><span class="gantt-name">Driver: metadata and journal</span>
        <div class="gantt-track" role="img" aria-label=${`Completion took ${duration(rest)}`}><span class="p5 hatched" style=${{ marginLeft: `${(100 * lastAcknowledged) / span}%`, width: `${(100 * rest) / span}%` }}></span></div>
        <span class="num">${duration(rest)}</span></li>`}
    </ol>
    ${rows.length > ROWS && html`<p class="more"><button onClick=${() => setAll(!all)}>${all ? "Show the slowest only" : `Show all ${rows.length} subtasks`}</button></p>`}
  </div>`;
}

function Row({ row, span, marks }) {
  const text = PHASES.filter((phase) => row.phases[phase.key] > 0).map((phase) => `${phase.label.toLowerCase()} ${duration(row.phases[phase.key])}`).join(", ");
  return html`<li class="gantt-row"><span class="gantt-name" title=${row.uid}>${row.name} <span class="quiet num">${row.subtask}</span>${row.stats.unaligned ? html` <span class="tag">unaligned</span>` : ""}</span>
    <div class="gantt-track" role="img" aria-label=${`${row.name} ${row.subtask}: ${text}`}>
      ${marks.map((at) => html`<i style=${{ left: `${(100 * at) / span}%` }}></i>`)}
      ${PHASES.map((phase) => html`<span class=${phase.part} title=${`${phase.label}: ${duration(row.phases[phase.key])}, ${phase.help}`} style=${{ width: `${(100 * row.phases[phase.key]) / span}%` }}></span>`)}
    </div><span class="num">${duration(row.end)}</span></li>`;
}

function Subtasks({ checkpoint }) {
  const { rows } = gantt(checkpoint);
  return html`<${Scroll} label="Subtasks of the checkpoint"><table class="cards"><thead><tr><th>Operator</th><th class="num">Subtask</th>
    ${PHASES.map((phase) => html`<th class="num">${phase.label}</th>`)}<th class="num">New</th><th class="num">Full</th><th class="num">In-flight</th><th class="num">Blocked</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr><td class="title" data-label="Operator">${row.name}</td><td class="num" data-label="Subtask">${row.subtask}</td>
      ${PHASES.map((phase) => html`<td class="num" data-label=${phase.label}>${duration(row.phases[phase.key])}</td>`)}
      <td class="num" data-label="New"><${Size} value=${row.stats.new_bytes} /></td><td class="num" data-label="Full"><${Size} value=${row.stats.full_bytes} /></td>
      <td class="num" data-label="In-flight"><${Size} value=${row.stats.in_flight_bytes} /></td><td class="num" data-label="Blocked">${bytes(row.stats.blocked_bytes)}</td></tr>`)}</tbody></table><//>`;
}

function Events({ checkpoint }) {
  if (checkpoint.events.length === 0) return html`<p class="quiet">No events were recorded.</p>`;
  return html`<${Scroll} label="Event log"><table class="cards events"><thead><tr><th class="num">After</th><th>Event</th><th>Where</th><th>Detail</th><th>Time</th></tr></thead>
    <tbody>${checkpoint.events.map((event) => html`<tr><td class="num" data-label="After">${duration(Math.max(0, event.time - checkpoint.triggered))}</td>
      <td data-label="Event">${event.event}</td><td data-label="Where">${event.stage ? chain(event.stage) : html`<span class="quiet">coordinator</span>`}</td>
      <td data-label="Detail" class="detail">${event.detail}</td><td data-label="Time" class="num">${clock(event.time)}</td></tr>`)}</tbody></table><//>`;
}
