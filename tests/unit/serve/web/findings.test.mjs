import assert from "node:assert/strict";
import test from "node:test";
import { findings } from "../../../../src/penstock/serve/web/js/diagnosis.mjs";
import * as recovery from "../../../../src/penstock/serve/web/js/recovery_stats.mjs";

const took = { attempt: "a2", checkpoint: 6, cause: "the driver died", detect_s: 2, redeploy_s: 9, load_state_s: 1, reset_sources_s: 0, reset_sinks_s: 0.5 };

function job(more = {}) {
  return { job: { status: "RUNNING", driver: { heard: 90 } }, graph: { nodes: [], edges: [] }, checkpoints: [], attempts: [], now: 100, interval: 10, advice: null, ...more };
}

test("a healthy job has no findings", () => {
  assert.deepEqual(findings(job()), []);
});

test("the last restart is explained with its longest part", () => {
  const [found] = findings(job({ attempts: [{ attempt: "a2", recovery: took }] }));
  assert.equal(found.title, "Last restart: the driver died");
  assert.equal(found.text, "Attempt a2 resumed from checkpoint 6 in 13 s; most of it: redeploy, 9.0 s.");
  assert.equal(found.page, "attempts");
});

test("a dead driver comes first", () => {
  const found = findings(job({ job: { status: "DIED", driver: { heard: 70 } }, attempts: [{ attempt: "a2", recovery: took }] }));
  assert.equal(found[0].level, "bad");
  assert.match(found[0].text, /30 s ago/);
});

test("a failed checkpoint is found until one completes", () => {
  const failed = { id: 4, status: "FAILED", failure: "timeout: 600 s" };
  assert.equal(findings(job({ checkpoints: [failed] }))[0].title, "Checkpoint 4 failed");
  assert.deepEqual(findings(job({ checkpoints: [failed, { id: 5, status: "COMPLETED", duration_s: 0.1 }] })), []);
  assert.deepEqual(findings(job({ checkpoints: [{ ...failed, failure: "job-stopping: the attempt ended" }] })), []);
});

test("a blocked input is found only if its checkpoint takes long", () => {
  const nodes = [{ stage: 0, name: "Source: a", figures: {} }, { stage: 1, name: "join", figures: {} }];
  const graph = { nodes, edges: [{ from: 0, to: 1, channel: { blocked_at: 7, records: 12 } }] };
  const pending = (triggered) => [{ id: 7, status: "PENDING", triggered }];
  assert.deepEqual(findings(job({ graph, checkpoints: pending(99) })), []);
  const [found] = findings(job({ graph, checkpoints: pending(90) }));
  assert.match(found.text, /The one from a waits at the barrier of checkpoint 7 .* 12 records are queued/);
});

test("another interval is suggested only if it differs much", () => {
  assert.deepEqual(findings(job({ advice: { interval_s: 12 } })), []);
  assert.match(findings(job({ advice: { interval_s: 30 } }))[0].title, /30 s/);
});

test("the parts of a recovery add up and have one scale", () => {
  assert.equal(recovery.recoverySeconds(took), 12.5);
  assert.equal(recovery.recoverySeconds(null), 0);
  assert.equal(recovery.longestPart(took).part.label, "Redeploy");
  assert.equal(recovery.longestRecovery([{ recovery: took }, { recovery: null }]), 12.5);
});

test("the root cause is the last error of a traceback", () => {
  const text = 'Traceback (most recent call last):\n  File "a.py", line 1\nKeyError: 1\n\nDuring handling:\nTraceback …\nmy.pkg.ShopError: no such shop\n';
  assert.equal(recovery.rootCause(text), "my.pkg.ShopError: no such shop");
  assert.equal(recovery.rootCause("the driver died"), "the driver died");
  assert.equal(recovery.rootCause(null), "");
});

test("a cause is one line without its traceback", () => {
  assert.equal(recovery.shortCause("step 'x' failed: KeyError: 1 Traceback (most recent call last): File …"), "step 'x' failed: KeyError: 1");
  assert.equal(recovery.shortCause(""), "");
  assert.ok(recovery.shortCause("x".repeat(1000)).length < 230);
});
