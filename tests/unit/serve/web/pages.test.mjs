import assert from "node:assert/strict";
import test from "node:test";
import * as advice from "../../../../src/penstock/serve/web/js/advice_texts.mjs";
import { curve, place } from "../../../../src/penstock/serve/web/js/graph_layout.mjs";
import * as routes from "../../../../src/penstock/serve/web/js/routes.mjs";
import * as state from "../../../../src/penstock/serve/web/js/state_stats.mjs";

test("an address leads to its page and back, whatever is in the id", () => {
  const id = "shop/orders #1 ä%";
  assert.deepEqual(routes.parseRoute(routes.linkTo(id, "checkpoints", 7)), { page: "checkpoints", job: id, detail: "7" });
  assert.deepEqual(routes.parseRoute(routes.linkTo(id)), { page: "overview", job: id, detail: null });
});

test("unknown addresses lead somewhere", () => {
  assert.deepEqual(routes.parseRoute(""), { page: "jobs", job: null, detail: null });
  assert.deepEqual(routes.parseRoute("#/nothing/here"), { page: "jobs", job: null, detail: null });
  assert.equal(routes.parseRoute("#/jobs/a/nothing").page, "overview");
  assert.equal(routes.parseRoute("#/jobs/%E0%A4%A/state").job, "%E0%A4%A");
});

test("requests name the job by its escaped id", () => {
  assert.equal(routes.apiPath("a/../b", "checkpoints", "7"), "v1/penstock/jobs/a%2F..%2Fb/checkpoints/7");
  assert.equal(routes.flinkPath("a b", "savepoints"), "v1/jobs/a%20b/savepoints");
});

test("stages are placed from left to right, or from top to bottom", () => {
  const nodes = [0, 1, 2].map((stage) => ({ stage }));
  const edges = [{ from: 0, to: 2 }, { from: 1, to: 2 }];
  const wide = place(nodes, edges, false);
  assert.ok(wide.nodes[2].left > wide.nodes[0].left + 200);
  const narrow = place(nodes, edges, true);
  assert.ok(narrow.nodes[2].top > narrow.nodes[0].top + 100);
  assert.ok(narrow.width <= 340, `${narrow.width}`);
  assert.match(wide.edges[0].path, /^M[\d.]+,[\d.]+Q/);
});

test("two inputs from one stage are two edges", () => {
  const placed = place([{ stage: 0 }, { stage: 1 }], [{ from: 0, to: 1, input: 1 }, { from: 0, to: 1, input: 2 }], false);
  assert.notEqual(placed.edges[0].y, placed.edges[1].y);
});

test("a line through two points is straight", () => {
  assert.equal(curve([{ x: 0, y: 0 }, { x: 10, y: 5 }]), "M0,0L10,5");
});

test("key groups become cells as hot as their largest group", () => {
  const subtasks = [{ first_key_group: 0 }, { first_key_group: 128 }];
  const groups = Array.from({ length: 256 }, (_, group) => (group === 130 ? 100 : 25));
  const cells = state.keyGroupCells({ key_groups: groups, subtasks });
  assert.equal(cells.length, 128);
  assert.deepEqual([cells[65].heat, cells[0].heat], [1, 0.25]);
  assert.deepEqual(cells.map((cell, at) => (cell.starts ? at : -1)).filter((at) => at >= 0), [64]);
  assert.equal(state.keyGroupCells({ key_groups: [], subtasks }), null);
});

test("the hottest key group has a share of the state", () => {
  assert.deepEqual(state.hottest({ key_groups: [0, 30, 10, 0] }), { group: 1, bytes: 30, share: 0.75, factor: 1.5 });
  assert.equal(state.hottest({ key_groups: [] }).share, 0);
});

test("goals that are no positive numbers are not sent", () => {
  assert.equal(advice.goalsQuery({ recovery_target: "60", visibility: "", overhead: "5", failures_per_day: "x" }), "?recovery_target=60&overhead=0.05");
  assert.equal(advice.goalsQuery({ recovery_target: "-1" }), "");
});

test("a verdict says what to do", () => {
  const bounds = [{ kind: "overhead", decides: true }];
  const change = advice.verdictText({ verdict: "change", current: { interval_s: 1 }, recommended: { interval_s: 20 }, bounds });
  assert.deepEqual(change, ["warn", "Use an interval of 20 s", "The job's 1.0 s are outside of the bounds. What decides: overhead."]);
  assert.equal(advice.verdictText({ verdict: "impossible", bounds })[0], "bad");
  assert.match(advice.boundText({ kind: "recovery target", is_upper: true }, { recovery_target_s: 60 }), /more than 1 min/);
});
