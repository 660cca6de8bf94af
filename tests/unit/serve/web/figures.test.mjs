import assert from "node:assert/strict";
import test from "node:test";
import * as figures from "../../../../src/penstock/serve/web/js/figures.mjs";

const plan = {
  stages: [
    { stage: 0, name: "Source: a -> Map", uids: ["a", "m"], parallelism: 2, max_parallelism: 128 },
    { stage: 1, name: "count -> out", uids: ["c", "o"], parallelism: 2, max_parallelism: 128 },
  ],
  edges: [{ from: 0, to: 1, input: 1, exchange: "hash", channel: 4 }],
};

function stage(number, subtasks, operators = []) {
  return { stage: number, subtasks: subtasks.map((metrics, subtask) => ({ subtask, metrics })), operators };
}

function channel(more) {
  return { id: 4, records: 7, bytes: 70, micro_batches: 1, barriers: [], blocked_at: null, is_full: false, has_ended: false, producer_uid: "m", consumer_uid: "c", input: 1, exchange: "hash", ...more };
}

test("a stage is as busy as its busiest subtask and as late as its latest", () => {
  const found = figures.stageSummary(stage(0, [
    { busyTimeMsPerSecond: 900, numRecordsInPerSecond: 10, currentOutputWatermark: 5000 },
    { busyTimeMsPerSecond: 100, numRecordsInPerSecond: 30, currentOutputWatermark: 2000 },
  ]));
  assert.equal(found.busy, 0.9);
  assert.equal(found.recordsInRate, 40);
  assert.equal(found.watermark, 2000);
  assert.equal(found.skew, 0.5);
});

test("nothing is known without figures", () => {
  const found = figures.stageSummary(undefined);
  assert.equal(found.isKnown, false);
  assert.deepEqual([found.busy, found.recordsInRate, found.watermark, found.skew], [null, null, null, null]);
});

test("watermarks before the first and after the last record are no times", () => {
  assert.equal(figures.stageSummary(stage(0, [{ currentOutputWatermark: -(2 ** 63) }])).watermark, null);
  assert.equal(figures.watermarkText(-(2 ** 63)), "none yet");
  assert.equal(figures.watermarkText(2 ** 63 - 1), "end of input");
  assert.equal(figures.watermarkText(0), "1970-01-01 00:00:00.000");
  assert.equal(figures.watermarkLag(2 ** 63, 10), null);
  assert.equal(figures.watermarkLag(4000, 10), 6);
});

test("a channel is found by its id, and an edge inside a region has none", () => {
  const live = { stages: [], channels: [channel({ blocked_at: 9, barriers: [10] }), channel({ id: 5, records: 1000 })] };
  const [edge] = figures.graphOf(plan, live).edges;
  assert.deepEqual([edge.channel.records, edge.channel.blocked_at, edge.channel.barriers], [7, 9, [10]]);
  assert.equal(figures.graphOf(plan, null).edges[0].channel, null);
});

test("without ids, channels between the same stages are added up", () => {
  const edges = [{ from: 0, to: 1, input: 1, exchange: "hash" }];
  const live = { stages: [], channels: [channel({}), channel({ id: 5, is_full: true })] };
  const [edge] = figures.graphOf({ ...plan, edges }, live).edges;
  assert.deepEqual([edge.channel.records, edge.channel.is_full], [14, true]);
});

test("the bottleneck is the stage behind the backpressured one, however busy that is", () => {
  const live = { channels: [], stages: [
    stage(0, [{ busyTimeMsPerSecond: 400, backPressuredTimeMsPerSecond: 590 }]),
    stage(1, [{ busyTimeMsPerSecond: 300, backPressuredTimeMsPerSecond: 0 }]),
  ] };
  const found = figures.bottleneck(figures.graphOf(plan, live));
  assert.equal(found.node.stage, 1);
  assert.deepEqual(found.backpressured.map((node) => node.stage), [0]);
});

test("without backpressure only a busy stage is a bottleneck", () => {
  const graph = (busy) => figures.graphOf(plan, { channels: [], stages: [stage(0, [{ busyTimeMsPerSecond: busy }])] });
  assert.equal(figures.bottleneck(graph(590)), null);
  assert.equal(figures.bottleneck(graph(700)).node.stage, 0);
});

test("output of a job is what its sinks send", () => {
  const live = { channels: [], stages: [
    stage(0, [{ numRecordsInPerSecond: 50, numRecordsOutPerSecond: 50 }]),
    stage(1, [{ numRecordsOutPerSecond: 0 }], [{ uid: "o", subtasks: { 0: { numRecordsSendPerSecond: 12 } } }]),
  ] };
  const rates = figures.jobRates(figures.graphOf(plan, live));
  assert.deepEqual([rates.in, rates.out, rates.pending], [50, 12, null]);
});

test("levels of backpressure have Flink's limits", () => {
  assert.deepEqual([0.1, 0.11, 0.5, 0.51, null].map(figures.backpressureLevel), ["ok", "low", "low", "high", null]);
});
