// What the live figures of a job say about its stages, channels and watermarks. Pure functions.

import { chain, isNumber } from "./format.mjs";

export const LOW_SKEW = 0.3;
const NO_WATERMARK = -9.2e18;

/** The graph to draw: stages of the plan, with live figures where there are any. */
export function graphOf(plan, live) {
  const figures = new Map((live?.stages ?? []).map((stage) => [stage.stage, stage]));
  const channels = live?.channels ?? [];
  const nodes = plan.stages.map((stage) => ({
    ...stage,
    name: chain(stage.name),
    figures: stageSummary(figures.get(stage.stage)),
    subtasks: figures.get(stage.stage)?.subtasks ?? [],
    operators: figures.get(stage.stage)?.operators ?? [],
  }));
  const edges = plan.edges.map((edge) => {
    const found = channels.filter((channel) => carries(channel, edge, plan.stages));
    return { ...edge, channel: joined(found) };
  });
  return { nodes, edges };
}

function carries(channel, edge, stages) {
  if (isNumber(edge.channel)) return channel.id === edge.channel;
  const from = stages.find((stage) => stage.stage === edge.from);
  const to = stages.find((stage) => stage.stage === edge.to);
  if (!from?.uids.includes(channel.producer_uid) || !to?.uids.includes(channel.consumer_uid)) {
    return false;
  }
  return edge.input === undefined || edge.input === null || channel.input === edge.input;
}

function joined(channels) {
  if (channels.length === 0) return null;
  const blocked = channels.map((channel) => channel.blocked_at).filter(isNumber);
  return {
    records: total(channels.map((channel) => channel.records)),
    bytes: total(channels.map((channel) => channel.bytes)),
    micro_batches: total(channels.map((channel) => channel.micro_batches)),
    barriers: [...new Set(channels.flatMap((channel) => channel.barriers))].sort((a, b) => a - b),
    blocked_at: blocked.length === 0 ? null : Math.min(...blocked),
    is_full: channels.some((channel) => channel.is_full),
    has_ended: channels.every((channel) => channel.has_ended),
    exchange: channels[0].exchange,
  };
}

/** Sums and extremes over the subtasks of a stage; null where nothing is known. */
export function stageSummary(stage) {
  const subtasks = stage?.subtasks ?? [];
  const all = (name) => subtasks.map((subtask) => subtask.metrics?.[name]).filter(isNumber);
  // Only a sink sends, and it does not count as output of its stage.
  const sent = (name) =>
    (stage?.operators ?? []).flatMap((operator) => Object.values(operator.subtasks).map((metrics) => metrics[name])).filter(isNumber);
  const ratio = (name) => all(name).map((value) => Math.min(1, value / 1000));
  const watermarks = all("currentOutputWatermark").concat(all("currentInputWatermark"));
  const known = watermarks.filter((value) => value > NO_WATERMARK && value < -NO_WATERMARK);
  return {
    isKnown: subtasks.some((subtask) => Object.keys(subtask.metrics ?? {}).length > 0),
    recordsIn: sumOrNull(all("numRecordsIn")),
    recordsOut: sumOrNull(all("numRecordsOut")),
    bytesIn: sumOrNull(all("numBytesIn")),
    bytesOut: sumOrNull(all("numBytesOut")),
    recordsInRate: sumOrNull(all("numRecordsInPerSecond")),
    recordsOutRate: sumOrNull(all("numRecordsOutPerSecond")),
    sentRate: sumOrNull(sent("numRecordsSendPerSecond")),
    sent: sumOrNull(sent("numRecordsSend")),
    busy: maxOrNull(ratio("busyTimeMsPerSecond")),
    idle: minOrNull(ratio("idleTimeMsPerSecond")),
    backpressured: maxOrNull(ratio("backPressuredTimeMsPerSecond")),
    pending: sumOrNull(all("pendingRecords")),
    watermark: minOrNull(known),
    skew: skew(all("numRecordsInPerSecond")) ?? skew(all("numRecordsIn")),
  };
}

/** The coefficient of variation, as Flink's data skew; null for fewer than two values. */
export function skew(values) {
  if (values.length < 2) return null;
  const mean = total(values) / values.length;
  if (mean <= 0) return null;
  const variance = total(values.map((value) => (value - mean) ** 2)) / values.length;
  return Math.sqrt(variance) / mean;
}

/** Flink's levels of backpressure: ok up to 10 %, low up to 50 %, then high. */
export function backpressureLevel(ratio) {
  if (!isNumber(ratio)) return null;
  if (ratio <= 0.1) return "ok";
  return ratio <= 0.5 ? "low" : "high";
}

/** How far a watermark is behind the clock, in seconds; null if it is no time near now. */
export function watermarkLag(watermark, now) {
  if (!isNumber(watermark) || watermark <= NO_WATERMARK || watermark >= -NO_WATERMARK) return null;
  return now - watermark / 1000;
}

/** A watermark as text, "none yet" or "end of input" at its ends. */
export function watermarkText(watermark) {
  if (!isNumber(watermark)) return null;
  if (watermark <= NO_WATERMARK) return "none yet";
  if (watermark >= -NO_WATERMARK) return "end of input";
  const at = new Date(watermark);
  return Number.isNaN(at.getTime()) ? String(watermark) : at.toISOString().replace("T", " ").slice(0, 23);
}

/**
 * The stage that limits the job: behind backpressured stages the busiest one that is not itself
 * backpressured; without backpressure the busiest, if it is busy most of the time; null if none.
 */
export function bottleneck(graph) {
  const pressed = graph.nodes.filter((node) => node.figures.backpressured > 0.1);
  const behind = new Set(graph.edges.filter((edge) => pressed.some((node) => node.stage === edge.from)).map((edge) => edge.to));
  const isFree = (node) => !(node.figures.backpressured > 0.5);
  let candidates = graph.nodes.filter((node) => behind.has(node.stage) && isFree(node));
  if (candidates.length === 0) candidates = graph.nodes.filter((node) => node.figures.busy >= 0.6);
  if (candidates.length === 0) return null;
  const node = candidates.reduce((a, b) => ((b.figures.busy ?? 0) > (a.figures.busy ?? 0) ? b : a));
  return { node, backpressured: pressed.filter((found) => found !== node) };
}

/** Rates of the whole job: what its sources read and its last stages write. */
export function jobRates(graph) {
  if (graph.nodes.length === 0) return { in: null, out: null, pending: null };
  const targets = new Set(graph.edges.map((edge) => edge.to));
  const origins = new Set(graph.edges.map((edge) => edge.from));
  const sources = graph.nodes.filter((node) => !targets.has(node.stage));
  const ends = graph.nodes.filter((node) => !origins.has(node.stage));
  return {
    in: sumOrNull(sources.map((n) => n.figures.recordsInRate ?? n.figures.recordsOutRate).filter(isNumber)),
    out: sumOrNull(ends.map((n) => n.figures.sentRate ?? n.figures.recordsOutRate).filter(isNumber)),
    pending: sumOrNull(sources.map((n) => n.figures.pending).filter(isNumber)),
  };
}

export function total(values) {
  return values.reduce((sum, value) => sum + value, 0);
}

function sumOrNull(values) {
  return values.length === 0 ? null : total(values);
}

function maxOrNull(values) {
  return values.length === 0 ? null : Math.max(...values);
}

function minOrNull(values) {
  return values.length === 0 ? null : Math.min(...values);
}
