// Texts for numbers and times. Pure functions; durations and times are in seconds.

export const NONE = "–";

export function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** "120 ms", "1.4 s", "2 min 14 s", "3 h 12 min", "4 d 2 h". */
export function duration(seconds) {
  if (!isNumber(seconds) || seconds < 0) return NONE;
  if (seconds === 0) return "0 s";
  if (seconds < 0.0095) return `${trim(seconds * 1000, 1)} ms`;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 59.5) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return pair(whole, 60, "min", 1, "s");
  if (whole < 86400) return pair(Math.round(whole / 60), 60, "h", 1, "min");
  return pair(Math.round(whole / 3600), 24, "d", 1, "h");
}

function pair(count, big, bigName, small, smallName) {
  const rest = count % big;
  const first = `${(count - rest) / big} ${bigName}`;
  return rest === 0 ? first : `${first} ${rest / small} ${smallName}`;
}

/** An age as "just now" or "14 s ago". */
export function ago(seconds) {
  if (!isNumber(seconds)) return NONE;
  const whole = Math.floor(seconds);
  if (whole < 1) return "just now";
  return `${whole < 60 ? `${whole} s` : duration(whole)} ago`;
}

const UNITS = ["B", "KB", "MB", "GB", "TB", "PB"];

/** Bytes in units of 1,024, as the commands print them. */
export function bytes(count) {
  if (!isNumber(count) || count < 0) return NONE;
  let unit = 0;
  while (count >= 1023.5 && unit < UNITS.length - 1) {
    count /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(count) : trim(count, count < 10 ? 2 : 1)} ${UNITS[unit]}`;
}

/** A count, exact up to a million. */
export function count(value) {
  if (!isNumber(value)) return NONE;
  if (Math.abs(value) < 1e6) return Math.round(value).toLocaleString("en-US");
  const [size, name] = Math.abs(value) < 1e9 ? [1e6, "M"] : [1e9, "G"];
  return `${(value / size).toFixed(2)} ${name}`;
}

/** A rate per second. */
export function rate(value) {
  if (!isNumber(value)) return NONE;
  if (value !== 0 && value < 9.95) return `${trim(value, 1)}/s`;
  return `${count(value)}/s`;
}

/** A share of one as a percentage. */
export function percent(share) {
  if (!isNumber(share)) return NONE;
  const value = share * 100;
  return value > 0 && value < 0.95 ? "< 1 %" : `${Math.round(value)} %`;
}

export function decimal(value, digits = 2) {
  return isNumber(value) ? trim(value, digits) : NONE;
}

/** A time of the day, with the date if it is not today's. */
export function clock(seconds, now = Date.now() / 1000) {
  if (!isNumber(seconds)) return NONE;
  const at = new Date(seconds * 1000);
  const time = [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
  return at.toDateString() === new Date(now * 1000).toDateString() ? time : `${day(at)} ${time}`;
}

/** Date and time. */
export function date(seconds) {
  if (!isNumber(seconds)) return NONE;
  const at = new Date(seconds * 1000);
  return `${day(at)} ${[at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":")}`;
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** A chain of operators, with arrows that do not break. */
export function chain(name) {
  return String(name ?? "").replaceAll(" -> ", " → ");
}

/** Operators of a chain, without the words that only name their kind. */
export function shortName(name) {
  return chain(name).replace(/^(Source|Sink): /, "");
}

function day(at) {
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

function two(value) {
  return String(value).padStart(2, "0");
}

function trim(value, digits) {
  return String(Number(value.toFixed(digits)));
}
