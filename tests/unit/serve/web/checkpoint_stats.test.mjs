import assert from "node:assert/strict";
import test from "node:test";
import * as stats from "../../../../src/penstock/serve/web/js/checkpoint_stats.mjs";

function subtask(start_delay_s, alignment_s, sync_s, async_s, acknowledged = 0) {
  return { start_delay_s, alignment_s, sync_s, async_s, acknowledged, new_bytes: 0, full_bytes: 0, in_flight_bytes: 0, blocked_bytes: 0, unaligned: false };
}

const checkpoint = {
  id: 7,
  triggered: 100,
  duration_s: 2,
  operators: [
    { uid: "s", name: "Source", subtasks: [subtask(0.1, 0, 0, 0.1, 100.2)] },
    { uid: "m", name: "Map", subtasks: [] },
    { uid: "c", name: "Count", subtasks: [subtask(0.1, 0.1, 0.1, 0.2, 100.6), subtask(1, 0.2, 0.1, 0.3, 101.8)] },
  ],
};

test("the chart has a row per subtask, slowest first, until it acknowledged", () => {
  const { rows, span, lastAcknowledged } = stats.gantt(checkpoint);
  assert.deepEqual(rows.map((row) => [row.name, row.subtask]), [["Count", 1], ["Count", 0], ["Source", 0]]);
  assert.equal(span, 2);
  assert.ok(Math.abs(lastAcknowledged - 1.8) < 1e-9);
  assert.ok(Math.abs(rows[0].phases.wait - 0.2) < 1e-9);
});

test("a subtask without a time of acknowledgement ends with its phases", () => {
  const { rows } = stats.gantt({ ...checkpoint, operators: [{ uid: "c", name: "Count", subtasks: [subtask(1, 0, 0, 0.5)] }] });
  assert.deepEqual([rows[0].end, rows[0].phases.wait], [1.5, 0]);
});

test("the slowest part is named with its subtask and what it means", () => {
  const part = stats.slowestPart(checkpoint);
  assert.deepEqual([part.key, part.row.subtask, part.share], ["start_delay", 1, 0.5]);
  assert.match(stats.slowestSentence(checkpoint), /^1.0 s of its 2.0 s \(50 %\) went into the start delay of its slowest subtask, Count 1: the barrier waited/);
});

test("completion by the driver counts, too", () => {
  const slow = { ...checkpoint, duration_s: 9 };
  assert.equal(stats.slowestPart(slow).key, "coordinator");
  assert.match(stats.slowestSentence(slow), /completion by the driver: after the last acknowledgement/);
});

test("a checkpoint that nobody acknowledged has no slowest part", () => {
  assert.equal(stats.slowestPart({ ...checkpoint, operators: [] }), null);
  assert.equal(stats.slowestSentence({ ...checkpoint, operators: [] }), null);
});

test("ticks are round and end within the axis", () => {
  assert.deepEqual(stats.ticks(2), [0, 0.5, 1, 1.5, 2]);
  assert.deepEqual(stats.ticks(0), [0]);
  for (const span of [0.003, 0.7, 13, 4711]) {
    const found = stats.ticks(span);
    assert.ok(found.length <= 7 && found.length >= 3, `${span}: ${found}`);
    assert.ok(found.at(-1) <= span * 1.00001);
  }
});

test("percentiles lie between neighbours", () => {
  assert.equal(stats.percentile([], 0.5), null);
  assert.equal(stats.percentile([3], 0.999), 3);
  assert.equal(stats.percentile([1, 2, 3], 0.5), 2);
  assert.equal(stats.percentile([4, 1, 3, 2], 0.5), 2.5);
  assert.equal(stats.percentile([1, 2, 3], 0.99), 3);
});

test("the summary is of completed checkpoints only", () => {
  const made = (status, duration_s) => ({ status, duration_s, new_bytes: 1, full_bytes: 2, in_flight_bytes: 0 });
  const rows = stats.summary([made("COMPLETED", 1), made("FAILED", 100), made("COMPLETED", 3), made("PENDING", 50)]);
  assert.deepEqual(rows[0].values.slice(0, 4), [1, 2, 3, 2]);
  assert.deepEqual(stats.summary([made("FAILED", 1)]), []);
});

test("kinds have Flink's names", () => {
  assert.equal(stats.kindLabel({ is_savepoint: true, barriers: "aligned" }), "Savepoint");
  assert.equal(stats.kindLabel({ is_savepoint: false, barriers: "unaligned" }), "Unaligned checkpoint");
  assert.equal(stats.kindLabel({ is_savepoint: false, barriers: "aligned" }), "Checkpoint");
});
