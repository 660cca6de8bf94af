// Looks up a key of a state in the last completed checkpoint, or browses its keys page by page.

import { request } from "../api.mjs";
import { bytes, date, duration, isNumber, plural } from "../format.mjs";
import { html, useRef, useState } from "../html.mjs";
import { flinkPath } from "../routes.mjs";
import { columnsOf, exactly, hasPrefixes, lookupPath, pageOf, statesOf, valueText } from "../state_rows.mjs";
import { Card, Notice, Scroll } from "./shared.mjs";

const PAGE = 20;
const LONG = 200;

export function StateLookup({ job, snapshot, allQueryable }) {
  const [listed, setListed] = useState(null);
  const states = listed ? statesOf(listed, false) : statesOf(snapshot, allQueryable);
  const [chosen, choose] = useState(null);
  const [isPrefix, setPrefix] = useState(false);
  const [result, setResult] = useState(null);
  const newest = useRef(0);
  if (states.length === 0) {
    return snapshot.operators.some((operator) => operator.backend) ? html`<${Unlisted} job=${job} list=${setListed} />` : null;
  }
  const state = states.find((found) => idOf(found) === chosen) ?? states[0];

  async function ask(form, before) {
    const number = (newest.current += 1);
    const after = before?.next;
    setResult({ ...(before ?? { entries: [] }), form, busy: true, error: null });
    try {
      const answer = await request(lookupPath(job, state, { ...form, after, limit: PAGE }), { reviver: exactly });
      const page = pageOf(answer);
      if (number !== newest.current) return;
      setResult({ form, answer, entries: [...(before?.entries ?? []), ...page.entries], next: page.next, busy: false, error: null });
    } catch (error) {
      if (number === newest.current) setResult({ ...(before ?? { entries: [] }), form, busy: false, error });
    }
  }
  const submit = (event) => {
    event.preventDefault();
    const text = new FormData(event.target).get("text").trim();
    ask({ text, isPrefix: isPrefix && hasPrefixes(state) });
  };
  const select = (event) => {
    newest.current += 1;
    choose(event.target.value);
    setResult(null);
  };
  return html`<${Card} title="Look up keys" note="In the last completed checkpoint; the job is not involved">
    <div class="stack tight"><form class="lookup" onSubmit=${submit}>
      <label>State<select name="state" value=${idOf(state)} onChange=${select}>${states.map((found) => html`<option value=${idOf(found)}>
        ${found.operatorName} · ${found.name}${found.queryable ? "" : " (not queryable)"}</option>`)}</select></label>
      <label><span>Key <span class="quiet small">${state.keyType || "without a type"}; empty for all</span></span>
        <input type="text" name="text" autocomplete="off" spellcheck="false" disabled=${!state.queryable} /></label>
      <button class="primary" disabled=${!state.queryable || result?.busy}>Look up</button>
      ${hasPrefixes(state) && html`<label class="check"><input type="checkbox" checked=${isPrefix} onChange=${(event) => setPrefix(event.target.checked)} />All keys that begin so</label>`}
    </form>
    <div aria-live="polite" class="stack tight">${state.queryable ? html`<${Result} result=${result} state=${state} more=${() => ask(result.form, result)} />` : html`<${NotQueryable} state=${state} />`}</div></div><//>`;
}

/** Of a checkpoint whose files are not read unasked, because it is large. */
function Unlisted({ job, list }) {
  const [status, setStatus] = useState({ busy: false, error: null });
  const load = async () => {
    setStatus({ busy: true, error: null });
    try {
      list(await request(flinkPath(job, "state")));
    } catch (error) {
      setStatus({ busy: false, error });
    }
  };
  return html`<${Card} title="Look up keys" note="The names of the states are in files that have to be read first"><div class="stack tight">
    ${status.error && html`<${Notice} tone="bad" title="The states are not known.">${status.error.status ? status.error.message : "The server does not answer in time: reading a large checkpoint takes long, so try again."}<//>`}
    <p><button type="button" onClick=${load} disabled=${status.busy}>${status.busy ? "Reading …" : "List the states"}</button></p></div><//>`;
}

function idOf(state) {
  return JSON.stringify([state.operator, state.name]);
}

export function NotQueryable({ state }) {
  return html`<${Notice} tone="warn" title=${`“${state.name}” cannot be looked up.`}>
    Let the program call <code>set_queryable("${state.name}")</code> on its descriptor, or allow it for all states of the job with <code>penstock.queryable-state.enabled: true</code>, and start the job again. Sizes and counts are shown in any case.<//>`;
}

function Result({ result, state, more }) {
  if (result === null) return null;
  const { answer, entries, error } = result;
  if (error?.status === 403) return html`<${NotQueryable} state=${state} />`;
  const columns = columnsOf(entries);
  return html`
    ${error && html`<${Notice} tone="bad" title="This cannot be shown.">${error.status ? error.message : "The server does not answer."}<//>`}
    ${answer && html`<p class="quiet small" data-lookup="done">${entries.length === 0 ? (result.form.text === "" ? "The state has no keys." : "There is no such key.") : plural(entries.length, "entry", "entries")}
      ${` in checkpoint ${answer.checkpoint}, ${duration(answer.age / 1000)} old${answer.sinks_committed === false ? "; sinks have not yet published all of its output" : ""}`}</p>`}
    ${entries.length > 0 && html`<${Scroll} label=${`Entries of ${state.name}`}><table class="cards"><thead><tr>${columns.map((column) => html`<th>${column.label}</th>`)}</tr></thead>
      <tbody>${entries.map((entry) => html`<tr>${columns.map((column) => html`<td data-label=${column.label} class="wide"><${Cell} name=${column.name} value=${entry[column.name]} /></td>`)}</tr>`)}</tbody></table><//>`}
    ${result.next && html`<p><button type="button" onClick=${more} disabled=${result.busy}>Show more</button></p>`}`;
}

function Cell({ name, value }) {
  if (value === undefined) return null;
  if (name === "expires" && isNumber(value)) return html`<time datetime=${new Date(value).toISOString()}>${date(value / 1000)}</time>`;
  return html`<${Value} value=${value} />`;
}

export function Value({ value }) {
  const text = valueText(value);
  if (text.length <= LONG) return html`<code class="value">${text}</code>`;
  return html`<details class="value"><summary><code>${text.slice(0, LONG)}…</code> <span class="nowrap">${bytes(text.length)}</span></summary><code>${text}</code></details>`;
}
