import assert from "node:assert/strict";
import test from "node:test";
import * as rows from "../../../../src/penstock/serve/web/js/state_rows.mjs";

const state = { operator: "cu/stomers", name: "visits", keyType: "STRING" };

test("a key that was typed is asked for as it is, and an empty one asks for a page", () => {
  const path = (more) => rows.lookupPath("a/b", state, { text: "", limit: 20, ...more });
  assert.equal(path({}), "v1/jobs/a%2Fb/state/cu%2Fstomers/visits?limit=20");
  assert.equal(path({ text: "a&b=c" }), "v1/jobs/a%2Fb/state/cu%2Fstomers/visits?limit=20&key=a%26b%3Dc");
  assert.equal(path({ text: "a", isPrefix: true, after: "x=" }), "v1/jobs/a%2Fb/state/cu%2Fstomers/visits?limit=20&prefix=a&after=x%3D");
});

test("whole numbers stay exact, however large they are", { skip: typeof JSON.rawJSON !== "function" && "this node does not say how numbers were written" }, () => {
  const text = '{"a":9223372036854775807,"b":[-9223372036854775808,1.5],"c":1e300,"d":12}';
  assert.equal(rows.valueText(JSON.parse(text, rows.exactly)), '{"a": 9223372036854775807, "b": [-9223372036854775808, 1.5], "c": 1e+300, "d": 12}');
});

test("values are shown as JSON", () => {
  assert.equal(rows.valueText({ a: [1, "x", null, true], "b c": { d: "\"" } }), '{"a": [1, "x", null, true], "b c": {"d": "\\""}}');
  assert.equal(rows.valueText(undefined), "null");
  assert.equal(rows.exactly("a", 2 ** 60, undefined), 2 ** 60);
});

test("entries of a key and of a page are found in their answers", () => {
  const entry = { key: 1, value: 2 };
  assert.deepEqual(rows.pageOf({ entries: [entry], next: "c" }), { entries: [entry], next: "c" });
  assert.deepEqual(rows.pageOf({ keys: [{ key: 1, entries: [entry] }] }), { entries: [entry], next: null });
  assert.deepEqual(rows.pageOf({}), { entries: [], next: null });
});

test("columns of the key come first, the value and its expiry last", () => {
  const names = (entries) => rows.columnsOf(entries).map((column) => column.name);
  assert.deepEqual(names([{ key: 1, value: 1 }, { value: 1, key: 2, map_key: 3, expires: 4 }]), ["key", "map_key", "value", "expires"]);
  assert.deepEqual(names([{ key: 1, time: 5 }]), ["key", "time"]);
  assert.deepEqual(names([]), []);
});

test("states that can be looked up come first", () => {
  const snapshot = { operators: [{ uid: "a", name: "A", key_type: "LONG", states: [{ name: "x", queryable: "" }, { name: "y", queryable: "ys" }] }] };
  assert.deepEqual(rows.statesOf(snapshot, false).map((found) => [found.name, found.queryable]), [["y", true], ["x", false]]);
  assert.ok(rows.statesOf(snapshot, true).every((found) => found.queryable));
  assert.equal(rows.hasPrefixes(rows.statesOf(snapshot, false)[0]), false);
});

test("only states in which something changed are shown", () => {
  const of = (name, changed) => ({ name, added: 0, removed: 0, changed });
  const found = rows.changedStates({ operators: [{ uid: "u", name: "A", states: [of("x", 0), of("y", 3)] }] });
  assert.deepEqual([found.changed.map((one) => [one.operator, one.name]), found.unchanged], [[["A", "y"]], 1]);
});

test("the key of a change has all its parts", () => {
  assert.equal(rows.changedKey({ change: "added", key: "a", map_key: 7, after: 1, expires_after: 2 }), '"a", map key 7');
});
