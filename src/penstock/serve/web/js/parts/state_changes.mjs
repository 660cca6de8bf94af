// What changed in the state between two checkpoints of a job: counts, and some keys.

import { request, useResource } from "../api.mjs";
import { count, plural } from "../format.mjs";
import { html, useRef, useState } from "../html.mjs";
import { apiPath } from "../routes.mjs";
import { changedKey, changedStates, exactly } from "../state_rows.mjs";
import { Card, Notice, Scroll, Time } from "./shared.mjs";
import { Value } from "./state_lookup.mjs";

const TONES = { added: "good", removed: "bad", changed: "live" };

export function StateChanges({ job }) {
  const path = apiPath(job, "state", "changes");
  const resource = useResource(path, 15);
  const [chosen, choose] = useState({});
  const [result, setResult] = useState(null);
  const newest = useRef(0);
  if (resource.data === null) return null;
  const { checkpoints } = resource.data;
  const note = "Counts by state; keys only of states that can be looked up";
  if (checkpoints.length < 2) {
    return html`<${Card} title="What changed" note=${note}><p class="quiet">The job retains ${checkpoints.length === 0 ? "no checkpoint" : "one checkpoint"}: two can be compared with <code>execution.checkpointing.num-retained: 2</code> or more.</p><//>`;
  }
  const known = (id) => checkpoints.some((checkpoint) => String(checkpoint.id) === id);
  // If one is gone, both are chosen anew: otherwise the earlier one could be the newer.
  const { from, to } = known(chosen.from) && known(chosen.to) ? chosen : { from: String(checkpoints[1].id), to: String(checkpoints[0].id) };

  async function compare(event) {
    event.preventDefault();
    const number = (newest.current += 1);
    choose({ from, to });
    setResult({ from, to, changes: null, error: null, busy: true });
    let changes = null;
    let error = null;
    try {
      const answer = await request(`${path}?from=${from}&to=${to}`, { reviver: exactly });
      changes = answer.changes;
    } catch (problem) {
      error = problem;
    }
    if (number === newest.current) setResult({ from, to, changes, error, busy: false });
  }
  const select = (name, label, value) => html`<label>${label}<select value=${value} onChange=${(event) => choose({ from, to, [name]: event.target.value })}>
    ${checkpoints.map((checkpoint) => html`<option value=${String(checkpoint.id)}>${checkpoint.is_savepoint ? "Savepoint" : "Checkpoint"} ${checkpoint.id}</option>`)}</select></label>`;
  return html`<${Card} title="What changed" note=${note}><div class="stack tight">
    <form class="lookup" onSubmit=${compare}>${select("from", "From", from)}${select("to", "To", to)}<button class="primary" disabled=${result?.busy}>Compare</button></form>
    <div aria-live="polite" class="stack tight"><${Result} result=${result} /></div></div><//>`;
}

function Result({ result }) {
  if (result === null) return null;
  const { from, to, changes, error, busy } = result;
  if (busy) return html`<p class="quiet" aria-busy="true">Comparing ${from} with ${to} …</p>`;
  if (error) return html`<${Notice} tone="bad" title="They cannot be compared.">${error.status ? error.message : "The server does not answer in time: the first comparison of large states takes long, so try again."}<//>`;
  const { changed, unchanged } = changedStates(changes);
  const span = html`from ${from} (<${Time} at=${changes.before.completed} />) to ${to} (<${Time} at=${changes.after.completed} />)`;
  if (changed.length === 0) return html`<p data-changes="none">Nothing changed ${span}.</p>`;
  return html`<p class="quiet small" data-changes="some">${plural(changed.length, "state")} changed ${span}${unchanged > 0 ? `, ${unchanged} did not` : ""}.</p>
    <${Scroll} label="Changed states"><table class="cards"><thead><tr><th>State</th><th>Operator</th><th class="num">Added</th><th class="num">Removed</th><th class="num">Changed</th></tr></thead>
      <tbody>${changed.map((state) => html`<tr><td class="title" data-label="State"><strong>${state.name}</strong></td><td data-label="Operator">${state.operator}</td>
        <td class="num" data-label="Added">${count(state.added)}</td><td class="num" data-label="Removed">${count(state.removed)}</td><td class="num" data-label="Changed">${count(state.changed)}</td></tr>`)}</tbody></table><//>
    ${changed.filter((state) => state.keys.length > 0).map((state) => html`<${Keys} key=${`${state.uid} ${state.name}`} state=${state} />`)}
    ${changed.some((state) => !state.may_show) && html`<p class="quiet small">Keys are not shown of ${changed.filter((state) => !state.may_show).map((state) => state.name).join(", ")}: not queryable.</p>`}`;
}

function Keys({ state }) {
  const all = state.added + state.removed + state.changed;
  return html`<details open><summary>${state.name}: ${state.keys.length < all ? `the first ${state.keys.length} of ${count(all)}` : plural(all, "change")}</summary>
    <${Scroll} label=${`Changes of ${state.name}`}><table class="cards"><thead><tr><th>Key</th><th>Change</th><th>Before</th><th>After</th></tr></thead>
      <tbody>${state.keys.map((row) => html`<tr><td data-label="Key"><code class="value">${changedKey(row)}</code></td><td data-label="Change"><span class=${`badge plain ${TONES[row.change]}`}>${row.change}</span></td>
        <td data-label="Before" class="wide">${"before" in row && html`<${Value} value=${row.before} />`}</td><td data-label="After" class="wide">${"after" in row && html`<${Value} value=${row.after} />`}</td></tr>`)}</tbody></table><//></details>`;
}
