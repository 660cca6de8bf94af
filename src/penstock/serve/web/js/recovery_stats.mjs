// The five times of a recovery and the causes of restarts. Pure functions.

import { total } from "./figures.mjs";

export const RECOVERY_PARTS = [
  { key: "detect_s", label: "Detect", part: "p1", help: "from the failure, or the last heartbeat, to the start of the next attempt" },
  { key: "redeploy_s", label: "Redeploy", part: "p4", help: "start Spark and its executors again" },
  { key: "load_state_s", label: "Load state", part: "p5", help: "read the state of the checkpoint" },
  { key: "reset_sources_s", label: "Reset sources", part: "p2", help: "return to the positions of the checkpoint" },
  { key: "reset_sinks_s", label: "Reset sinks", part: "p3", help: "commit what the checkpoint holds, remove later output" },
];

export function recoverySeconds(recovery) {
  return recovery === null || recovery === undefined
    ? 0
    : total(RECOVERY_PARTS.map((part) => recovery[part.key] ?? 0));
}

/** The longest recovery: bars of all attempts have this scale. */
export function longestRecovery(attempts) {
  return Math.max(0, ...attempts.map((attempt) => recoverySeconds(attempt.recovery)));
}

/** The part of a recovery that took most; null if nothing was measured. */
export function longestPart(recovery) {
  const sum = recoverySeconds(recovery);
  if (sum === 0) return null;
  const part = RECOVERY_PARTS.reduce((a, b) => (recovery[b.key] > recovery[a.key] ? b : a));
  return { part, seconds: recovery[part.key], share: recovery[part.key] / sum };
}

/** A cause in one line: without its traceback. */
export function shortCause(cause) {
  const text = String(cause ?? "").trim();
  const first = text.split(/\n|Traceback \(most recent call last\)/)[0].trim();
  return first.length > 220 ? `${first.slice(0, 217)} …` : first || text.slice(0, 220);
}

/** The line of a traceback that names the error; the user's own last frame, if one is marked. */
export function rootCause(text) {
  const lines = String(text ?? "").trim().split("\n").map((line) => line.trimEnd());
  const errors = lines.filter((line) => /^[\w.]+(Error|Exception|Interrupt|Exit|Warning)\b/.test(line));
  return errors.at(-1) ?? lines.at(-1) ?? "";
}
