// What the statistics of checkpoints say: the Gantt chart, percentiles, causes. Pure functions.

import { duration, percent } from "./format.mjs";
import { total } from "./figures.mjs";

export const PHASES = [
  { key: "start_delay", label: "Start delay", part: "p1", help: "until the barrier arrived" },
  { key: "alignment", label: "Alignment", part: "p2", help: "waiting for the barriers of other inputs" },
  { key: "sync", label: "Sync", part: "p3", help: "freezing the state; no records are processed" },
  { key: "async", label: "Async", part: "p4", help: "writing the state; records are processed" },
  { key: "wait", label: "Acknowledgement", part: "p5", help: "from its last byte to its acknowledgement" },
];

/** Rows of the Gantt chart, one per subtask, slowest first; `span` is the length of its axis. */
export function gantt(checkpoint) {
  const rows = [];
  for (const operator of checkpoint.operators ?? []) {
    operator.subtasks.forEach((stats, subtask) => {
      const own = stats.start_delay_s + stats.alignment_s + stats.sync_s + stats.async_s;
      const acknowledged = stats.acknowledged > 0 ? stats.acknowledged - checkpoint.triggered : own;
      const phases = {
        start_delay: stats.start_delay_s,
        alignment: stats.alignment_s,
        sync: stats.sync_s,
        async: stats.async_s,
        wait: Math.max(0, acknowledged - own),
      };
      rows.push({ uid: operator.uid, name: operator.name, subtask, stats, phases, end: total(Object.values(phases)) });
    });
  }
  rows.sort((a, b) => b.end - a.end || a.subtask - b.subtask);
  const last = rows.length === 0 ? 0 : rows[0].end;
  return { rows, span: Math.max(last, checkpoint.duration_s ?? 0), lastAcknowledged: last };
}

/** Ticks at 1, 2 or 5 times a power of ten, at most `most` of them above 0. */
export function ticks(span, most = 6) {
  if (!(span > 0)) return [0];
  const rough = span / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough * 0.999999);
  const found = [];
  for (let n = 0; n * step <= span * 1.000001; n += 1) found.push(n * step);
  return found;
}

const LABELS = { sync: "synchronous phase", async: "asynchronous phase", coordinator: "completion by the driver" };

const REASONS = {
  start_delay:
    "the barrier waited before it arrived: for the running micro-batch, or behind queued records. "
    + "A shorter micro-batch, more parallelism at the bottleneck or unaligned checkpoints shorten it.",
  alignment:
    "one input was blocked until the barrier of another one arrived. "
    + "Unaligned checkpoints or an aligned checkpoint timeout avoid the wait.",
  sync: "the state was frozen while no records were processed. RocksDB freezes without copying.",
  async:
    "state was written to the checkpoint storage. Incremental checkpoints (RocksDB) write less; "
    + "a faster store or more subtasks write it sooner.",
  wait: "the acknowledgement waited for the rest of its micro-batch or of its stage.",
  coordinator:
    "after the last acknowledgement the driver wrote metadata and journal and committed. "
    + "That depends on the checkpoint storage and on the sinks.",
};

/** Why a checkpoint took as long as it did: the part that took most, with what it means. */
export function slowestPart(checkpoint) {
  const { rows, span, lastAcknowledged } = gantt(checkpoint);
  if (rows.length === 0 || !(span > 0)) return null;
  const slowest = rows[0];
  const parts = { ...slowest.phases, coordinator: Math.max(0, span - lastAcknowledged) };
  const [key, seconds] = Object.entries(parts).reduce((a, b) => (b[1] > a[1] ? b : a));
  return {
    key,
    row: slowest,
    seconds,
    share: seconds / span,
    label: LABELS[key] ?? PHASES.find((phase) => phase.key === key).label.toLowerCase(),
    reason: REASONS[key],
  };
}

export function slowestSentence(checkpoint) {
  const part = slowestPart(checkpoint);
  if (part === null) return null;
  const where = part.key === "coordinator" ? "" : ` of its slowest subtask, ${part.row.name} ${part.row.subtask}`;
  return `${duration(part.seconds)} of its ${duration(checkpoint.duration_s)} (${percent(part.share)}) went into the `
    + `${part.label}${where}: ${part.reason}`;
}

/** The value below which a share of the values lies, between neighbours as Flink's statistics. */
export function percentile(values, share) {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const at = Math.min(Math.max(share * (sorted.length + 1) - 1, 0), sorted.length - 1);
  const low = Math.floor(at);
  const high = Math.min(low + 1, sorted.length - 1);
  return sorted[low] + (at - low) * (sorted[high] - sorted[low]);
}

export const SUMMARY_COLUMNS = [
  ["Minimum", (values) => Math.min(...values)],
  ["Average", (values) => total(values) / values.length],
  ["Maximum", (values) => Math.max(...values)],
  ["50th", (values) => percentile(values, 0.5)],
  ["90th", (values) => percentile(values, 0.9)],
  ["99th", (values) => percentile(values, 0.99)],
  ["99.9th", (values) => percentile(values, 0.999)],
];

/** Rows of the summary over completed checkpoints: label, how to print, values by column. */
export function summary(checkpoints) {
  const done = checkpoints.filter((found) => found.status === "COMPLETED");
  if (done.length === 0) return [];
  return [
    ["End to end duration", "duration", (c) => c.duration_s],
    ["Checkpointed data size (new)", "bytes", (c) => c.new_bytes],
    ["Full checkpoint data size", "bytes", (c) => c.full_bytes],
    ["In-flight data stored", "bytes", (c) => c.in_flight_bytes],
  ].map(([label, kind, of]) => {
    const values = done.map(of);
    return { label, kind, values: SUMMARY_COLUMNS.map(([, compute]) => compute(values)) };
  });
}

export function counts(checkpoints) {
  const by = (status) => checkpoints.filter((found) => found.status === status).length;
  return { completed: by("COMPLETED"), failed: by("FAILED"), pending: by("PENDING") };
}

export function isSavepoint(checkpoint) {
  return checkpoint.is_savepoint === true;
}

/** How a kind of checkpoint is called. */
export function kindLabel(checkpoint) {
  if (isSavepoint(checkpoint)) return "Savepoint";
  return checkpoint.barriers === "unaligned" ? "Unaligned checkpoint" : "Checkpoint";
}
