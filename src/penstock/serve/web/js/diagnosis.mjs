// What stands out in a job, as sentences with the page that shows more. Pure functions.

import { bottleneck, LOW_SKEW } from "./figures.mjs";
import { duration, isNumber, percent, count, decimal, shortName } from "./format.mjs";
import { slowestSentence } from "./checkpoint_stats.mjs";
import { longestPart, recoverySeconds, shortCause } from "./recovery_stats.mjs";

const LONG_ALIGNMENT_S = 3;

/** Findings, the most serious first: {level, title, text, page}. */
export function findings({ job, graph, checkpoints, attempts, now, interval, advice }) {
  return [
    driver(job, now),
    restart(attempts),
    failedCheckpoint(checkpoints),
    blocked(graph, checkpoints, now),
    limit(graph),
    skewed(graph),
    slow(checkpoints, interval),
    suggestion(advice, interval),
  ].filter((found) => found !== null);
}

function driver(job, now) {
  if (job.status === "FAILED") {
    return finding("bad", "The job has failed", "Its restart strategy gave up. Run it again to resume.", "attempts");
  }
  if (job.status !== "DIED") return null;
  const heard = isNumber(job.driver?.heard) ? ` Its last heartbeat was ${duration(now - job.driver.heard)} ago.` : "";
  return finding("bad", "The driver is dead or silent",
    `Nothing is processed now.${heard} Run the job again, or with --supervise, to resume.`, "attempts");
}

function restart(attempts) {
  const last = attempts?.[0];
  if (!last?.recovery) return null;
  const took = recoverySeconds(last.recovery);
  const most = longestPart(last.recovery);
  const part = most === null ? "" : `; most of it: ${most.part.label.toLowerCase()}, ${duration(most.seconds)}`;
  const from = isNumber(last.recovery.checkpoint) ? `from checkpoint ${last.recovery.checkpoint}` : "from scratch";
  return finding("info", `Last restart: ${shortCause(last.recovery.cause) || "the driver died"}`,
    `Attempt ${last.attempt} resumed ${from} in ${duration(took)}${part}.`, "attempts");
}

function failedCheckpoint(checkpoints) {
  const ended = (checkpoints ?? []).filter((found) => found.status !== "PENDING");
  const last = ended.at(-1);
  if (last?.status !== "FAILED" || /^(job-stopping|attempt )/.test(last.failure ?? "")) return null;
  return finding("warn", `Checkpoint ${last.id} failed`, last.failure ?? "No reason was recorded.", "checkpoints");
}

function blocked(graph, checkpoints, now) {
  const edge = graph.edges.find((found) => isNumber(found.channel?.blocked_at));
  const pending = (checkpoints ?? []).find((found) => found.id === edge?.channel.blocked_at && found.status === "PENDING");
  // Every aligned checkpoint blocks inputs for a moment.
  if (!pending || now - pending.triggered < LONG_ALIGNMENT_S) return null;
  const from = graph.nodes.find((node) => node.stage === edge.from);
  const to = graph.nodes.find((node) => node.stage === edge.to);
  return finding("warn", `An input of ${shortName(to?.name)} is blocked`,
    `The one from ${shortName(from?.name)} waits at the barrier of checkpoint ${edge.channel.blocked_at} `
    + `for the barriers of the other inputs; ${count(edge.channel.records)} records are queued.`, "overview");
}

function limit(graph) {
  const found = bottleneck(graph);
  if (found === null) return null;
  const behind = found.backpressured.map((node) => shortName(node.name));
  const waits = behind.length === 0 ? "" : ` It backpressures ${behind.join(", ")}.`;
  return finding(found.node.figures.busy > 0.85 ? "warn" : "info",
    `Bottleneck: ${shortName(found.node.name)}`,
    `Its busiest subtask is busy ${percent(found.node.figures.busy)} of the time.${waits} `
    + `It has ${count(found.node.parallelism)} of at most ${count(found.node.max_parallelism)} subtasks.`, "overview");
}

function skewed(graph) {
  const found = graph.nodes.filter((node) => node.figures.skew > LOW_SKEW && node.parallelism > 1);
  if (found.length === 0) return null;
  const most = found.reduce((a, b) => (b.figures.skew > a.figures.skew ? b : a));
  return finding("info", `Skew in ${shortName(most.name)}`,
    `Its subtasks receive very different numbers of records (coefficient of variation ${decimal(most.figures.skew)}).`, "state");
}

function slow(checkpoints, interval) {
  const done = (checkpoints ?? []).filter((found) => found.status === "COMPLETED" && found.slowest);
  const last = done.at(-1);
  if (!last || last.duration_s < Math.max(1, 0.5 * (interval ?? Infinity))) return null;
  return finding("warn", "Checkpoints are slow", slowestSentence(last.slowest) ?? "", "checkpoints");
}

function suggestion(advice, interval) {
  if (!isNumber(advice?.interval_s) || !isNumber(interval)) return null;
  const factor = Math.max(advice.interval_s / interval, interval / advice.interval_s);
  if (factor < 1.5) return null;
  return finding("info", `Another interval may fit better: ${duration(advice.interval_s)}`,
    `The job checkpoints every ${duration(interval)}.`, "advice");
}

function finding(level, title, text, page) {
  return { level, title, text, page };
}
