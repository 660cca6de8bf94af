// Addresses of pages: `#/` and `#/jobs/JOB/PAGE[/DETAIL]`. Pure functions.

export const PAGES = [
  ["overview", "Overview"],
  ["components", "Components"],
  ["checkpoints", "Checkpoints"],
  ["attempts", "Attempts and exceptions"],
  ["state", "State"],
  ["advice", "Advice"],
];

export function parseRoute(hash) {
  const parts = hash.replace(/^#\/?/, "").split("/").map(decoded);
  if (parts[0] !== "jobs" || !parts[1]) return { page: "jobs", job: null, detail: null };
  const page = PAGES.some(([name]) => name === parts[2]) ? parts[2] : "overview";
  return { page, job: parts[1], detail: parts[3] || null };
}

export function linkTo(job, page = "overview", detail = null) {
  const parts = ["jobs", job, page, ...(detail === null ? [] : [String(detail)])];
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

export function apiPath(job, ...parts) {
  return ["v1/penstock/jobs", job, ...parts].map((part, at) => (at === 0 ? part : encodeURIComponent(part))).join("/");
}

/** The path of a call of Flink's REST API. */
export function flinkPath(job, ...parts) {
  return ["v1/jobs", job, ...parts].map((part, at) => (at === 0 ? part : encodeURIComponent(part))).join("/");
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
