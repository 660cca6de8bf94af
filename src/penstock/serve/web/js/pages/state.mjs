// State: what is in it, what changed, and operators and states with size and skew by key group.

import { useResource } from "../api.mjs";
import { skew } from "../figures.mjs";
import { bytes, count, decimal, duration, isNumber, percent, plural } from "../format.mjs";
import { html } from "../html.mjs";
import { hottest, keyGroupCells } from "../state_stats.mjs";
import { apiPath, linkTo } from "../routes.mjs";
import { Card, Empty, Notice, Scroll, Size, Stat, Time, Waiting } from "../parts/shared.mjs";
import { StateChanges } from "../parts/state_changes.mjs";
import { StateLookup } from "../parts/state_lookup.mjs";

export function Page({ route }) {
  const resource = useResource(apiPath(route.job, "state"), 15);
  if (resource.data === null) return html`<${Waiting} resource=${resource} what="state" />`;
  const { snapshot, problem } = resource.data;
  if (snapshot === null) {
    return html`<section class="card"><${Empty} title="No state to show">${problem ?? "There is no completed checkpoint that still exists."}<//></section>`;
  }
  const operators = [...snapshot.operators].sort((a, b) => b.bytes - a.bytes);
  const stateful = operators.filter((operator) => operator.bytes > 0 || operator.states.length > 0 || operator.lists.length > 0);
  return html`
    <dl class="stats">
      <${Stat} label="Checkpoint" value=${html`<a href=${linkTo(route.job, "checkpoints", snapshot.checkpoint)}>${snapshot.checkpoint}</a>`} note=${html`completed <${Time} at=${snapshot.completed} />`} />
      <${Stat} label="Size of all files" value=${bytes(snapshot.bytes)} note=${plural(snapshot.files, "file")} />
      <${Stat} label="Operators with state" value=${stateful.length} note=${`of ${operators.length}`} />
      <${Stat} label="Written by" value=${`attempt ${snapshot.attempt}`} note=${`penstock ${snapshot.version}`} />
    </dl>
    ${problem && html`<${Notice} tone="warn" title="Only sizes of files are shown.">${problem}<//>`}
    <${StateLookup} job=${route.job} snapshot=${snapshot} allQueryable=${resource.data.all_queryable} />
    <${StateChanges} job=${route.job} />
    ${stateful.map((operator) => html`<${Operator} key=${operator.uid} operator=${operator} />`)}
    ${stateful.length < operators.length && html`<${Card} title="Operators without keyed state" note="What else the checkpoint holds of them">
      <ul class="lines">${operators.filter((operator) => !stateful.includes(operator)).map((operator) => html`<li><div><strong>${operator.name}</strong> <span class="quiet mono small">${operator.uid}</span></div>
        <div class="quiet">${otherText(operator)}</div></li>`)}</ul><//>`}`;
}

function otherText(operator) {
  const parts = [];
  if (operator.splits > 0) parts.push(`positions of ${plural(operator.splits, "split")}`);
  if (isNumber(operator.committables)) parts.push(plural(operator.committables, "pending committable"));
  if (operator.in_flight_records > 0) parts.push(`${plural(operator.in_flight_records, "in-flight record")}, ${bytes(operator.in_flight_bytes)}`);
  return parts.length === 0 ? "nothing" : parts.join("; ");
}

function Operator({ operator }) {
  const sizes = operator.subtasks.map((subtask) => subtask.bytes);
  const keyed = operator.subtasks.length > 0 && operator.max_parallelism > 0 && operator.bytes > 0;
  const uneven = skew(sizes);
  return html`<${Card} title=${operator.name} id=${`operator-${operator.uid}`} note=${html`<span class="mono">${operator.uid}</span> · ${plural(operator.parallelism, "subtask")} of at most ${count(operator.max_parallelism)}${operator.backend ? ` · ${operator.backend}` : ""}`}>
    <div class="stack tight">
      <p class="row">${operator.bytes > 0 ? html`<strong class="big num">${bytes(operator.bytes)}</strong>` : html`<span class="quiet">No keyed state.</span>`}
        ${isNumber(uneven) && html`<span class=${uneven > 0.3 ? "badge warn plain" : "tag"}>skew over subtasks ${decimal(uneven)}</span>`}
        ${operator.key_type && html`<span class="quiet small">key: <span class="mono">${operator.key_type}</span></span>`}
        ${isNumber(operator.committables) && html`<span class="tag">${plural(operator.committables, "pending committable")}</span>`}
        ${operator.in_flight_records > 0 && html`<span class="tag">${plural(operator.in_flight_records, "in-flight record")}, ${bytes(operator.in_flight_bytes)}</span>`}
        ${operator.splits > 0 && html`<span class="tag">${plural(operator.splits, "split")}</span>`}</p>
      ${keyed && html`<${KeyGroups} operator=${operator} />`}
      ${operator.states.length > 0 && html`<${Scroll} label=${`States of ${operator.name}`}><table class="cards"><thead><tr><th>State</th><th>Kind</th><th>Type</th><th class="num">Entries</th><th class="num">Size</th><th class="num">Skew</th><th>TTL</th></tr></thead>
        <tbody>${operator.states.map((state) => html`<tr><td class="title" data-label="State"><strong>${state.name}</strong></td><td data-label="Kind">${state.kind}</td><td data-label="Type" class="mono">${state.type}</td>
          <td class="num" data-label="Entries">${count(state.entries)}</td><td class="num" data-label="Size"><${Size} value=${state.bytes} /></td>
          <td class="num" data-label="Skew">${decimal(state.skew)}</td><td data-label="TTL">${isNumber(state.ttl_ms) ? duration(state.ttl_ms / 1000) : html`<span class="quiet">none</span>`}</td></tr>`)}</tbody></table><//>`}
      ${operator.lists.length > 0 && html`<ul class="lines">${operator.lists.map((list) => html`<li><div>Operator state <strong>${list.name}</strong> <span class="quiet">${list.declared}</span></div><div class="num">${plural(list.elements, "element")}, ${bytes(list.bytes)}</div></li>`)}</ul>`}
    </div><//>`;
}

function KeyGroups({ operator }) {
  const cells = keyGroupCells(operator);
  if (cells === null) {
    const most = Math.max(...operator.subtasks.map((subtask) => subtask.bytes), 1);
    return html`<ul class="groups-bars" aria-label="Size by subtask">${operator.subtasks.map((subtask) => html`<li><span class="quiet num">${subtask.subtask}</span>
      <span class="bar"><span class="p4" style=${{ width: `${(100 * subtask.bytes) / most}%` }}></span></span><span class="num">${bytes(subtask.bytes)}</span></li>`)}</ul>`;
  }
  const top = hottest(operator);
  return html`<figure><div class="heat" role="img" aria-label=${`Size by key group: the largest has ${percent(top.share)} of the state`}>
      ${cells.map((cell) => html`<span title=${cell.title} class=${cell.starts ? "starts" : ""} style=${{ "--heat": cell.heat.toFixed(3) }}></span>`)}</div>
    <figcaption class="quiet small">${count(operator.max_parallelism)} key groups${cells.length < operator.max_parallelism ? `, ${cells[0].width} in each cell` : ""}; lines divide subtasks.
      Largest: key group ${top.group} with ${bytes(top.bytes)}, ${percent(top.share)} of the state (an even share is ${percent(1 / operator.max_parallelism)}). ${top.factor >= 4 ? "A hot key, or few distinct keys: more subtasks do not divide it." : ""}</figcaption></figure>`;
}
