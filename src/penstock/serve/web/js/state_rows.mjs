// Keyed state as rows: what to ask for, the columns of entries, values as text. Pure functions.

import { flinkPath } from "./routes.mjs";

const LAST = ["value", "expires"];
const LABELS = { key: "Key", time: "Time", map_key: "Map key", window_start: "Window from", window_end: "Window to", window: "Window", value: "Value", expires: "Expires", before: "Before", after: "After" };

/** A whole number that is too large for a number of JavaScript, as it was written. */
export class Exact {
  constructor(source) {
    this.source = source;
  }
}

/** For JSON.parse: keeps whole numbers exact, where the browser says how they were written. */
export function exactly(name, value, context) {
  const lost = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
  return lost && /^-?\d+$/.test(context?.source ?? "") ? new Exact(context.source) : value;
}

/** A value as JSON on one line. */
export function valueText(value) {
  if (value instanceof Exact) return value.source;
  if (Array.isArray(value)) return `[${value.map(valueText).join(", ")}]`;
  if (value !== null && typeof value === "object") {
    return `{${Object.entries(value).map(([name, inner]) => `${JSON.stringify(name)}: ${valueText(inner)}`).join(", ")}}`;
  }
  return JSON.stringify(value ?? null);
}

/** The keyed states of a snapshot, those that can be looked up first, each with its operator. */
export function statesOf(snapshot, allQueryable) {
  const found = snapshot.operators.flatMap((operator) =>
    operator.states.map((state) => ({
      operator: operator.uid,
      operatorName: operator.name,
      keyType: operator.key_type,
      name: state.name,
      kind: state.kind,
      queryable: allQueryable || Boolean(state.queryable),
    })),
  );
  return [...found.filter((state) => state.queryable), ...found.filter((state) => !state.queryable)];
}

/** Whether keys of a state are texts, so that they have prefixes. */
export function hasPrefixes(state) {
  return state.keyType === "STRING";
}

/** The path of a call that looks up a key, or a page of all keys if the text is empty. */
export function lookupPath(job, state, { text, isPrefix, after, limit }) {
  const query = new URLSearchParams({ limit: String(limit) });
  if (text !== "") query.set(isPrefix ? "prefix" : "key", text);
  if (after) query.set("after", after);
  return `${flinkPath(job, "state", state.operator, state.name)}?${query}`;
}

/** The entries of an answer, and the cursor of those that follow. */
export function pageOf(answer) {
  const found = answer.keys?.[0] ?? answer;
  return { entries: found.entries ?? [], next: found.next ?? null };
}

/** The columns that entries have: of the key first, the value last. */
export function columnsOf(entries) {
  const names = new Set(entries.flatMap((entry) => Object.keys(entry)));
  const key = [...names].filter((name) => !LAST.includes(name));
  return [...key, ...LAST.filter((name) => names.has(name))].map((name) => ({ name, label: LABELS[name] ?? name }));
}

/** Rows of states in which something changed, and how many states did not. */
export function changedStates(changes) {
  const all = changes.operators.flatMap((operator) => operator.states.map((state) => ({ ...state, operator: operator.name, uid: operator.uid })));
  const changed = all.filter((state) => state.added + state.removed + state.changed > 0);
  return { changed, unchanged: all.length - changed.length };
}

/** The key of a change as text: its parts but for the values. */
export function changedKey(row) {
  const hidden = ["change", "before", "after", "expires_before", "expires_after"];
  const parts = Object.entries(row).filter(([name]) => !hidden.includes(name));
  return parts.map(([name, value]) => (name === "key" ? valueText(value) : `${(LABELS[name] ?? name).toLowerCase()} ${valueText(value)}`)).join(", ");
}
