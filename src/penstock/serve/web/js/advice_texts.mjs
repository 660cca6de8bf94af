// Sentences for the results of the models. Pure functions.

import { duration, isNumber, percent } from "./format.mjs";

/** Tone, headline and explanation of an advice. */
export function verdictText({ verdict, current, recommended, bounds }) {
  const deciding = bounds.filter((bound) => bound.decides).map((bound) => bound.kind);
  const because = deciding.length === 0 ? "" : ` What decides: ${deciding.join(" and ")}.`;
  if (verdict === "fine") {
    return ["good", `The interval of ${duration(current.interval_s)} fits`, `It is within all bounds.${because}`];
  }
  if (verdict === "change") {
    return ["warn", `Use an interval of ${duration(recommended.interval_s)}`, `The job's ${duration(current.interval_s)} are outside of the bounds.${because}`];
  }
  if (verdict === "new") {
    return ["good", `Use an interval of ${duration(recommended.interval_s)}`, `No interval is known from the history yet.${because}`];
  }
  return ["bad", "No interval meets all goals", "The bounds exclude each other. Change a goal, or one of these."];
}

const BOUNDS = {
  "recovery target": (bound, goals) => bound.is_upper
    ? `Longer, and after a failure in the worst moment the job needs more than ${duration(goals.recovery_target_s)} to catch up.`
    : "Shorter, and checkpoints leave too little capacity to catch up in time.",
  visibility: (_, goals) => `Longer, and output is visible only after more than ${duration(goals.visibility_s)}.`,
  overhead: (_, goals) => `Shorter, and checkpoints take more than ${percent(goals.overhead)} of the capacity.`,
  "ability to keep up": () => "Shorter, and the job cannot keep up with its input.",
  "duration of a checkpoint": () => "Shorter, and a checkpoint is not complete before the next one.",
};

export function boundText(bound, goals) {
  return (BOUNDS[bound.kind] ?? (() => ""))(bound, goals);
}

/** The goals as parameters of a request; those that are no positive numbers are left out. */
export function goalsQuery(goals) {
  const found = Object.entries(goals)
    .filter(([, text]) => text !== "" && Number.isFinite(Number(text)) && Number(text) > 0)
    .map(([name, text]) => `${name}=${encodeURIComponent(name === "overhead" ? Number(text) / 100 : Number(text))}`);
  return found.length === 0 ? "" : `?${found.join("&")}`;
}

/** Label, value and note of each probability. */
export function consistencyText(consistency) {
  return consistency.parts
    .filter((part) => isNumber(part.value))
    .map((part) => [part.label, percentOf(part.value), `${percentOf(part.low)} to ${percentOf(part.high)}; ${part.successes} of ${part.trials}`]);
}

function percentOf(share) {
  const value = share * 100;
  return `${Number(value.toFixed(value > 99 && value < 100 ? 2 : 1))} %`;
}
