// The list of jobs.

import { serverNow, useResource } from "../api.mjs";
import { ago, bytes, duration, isNumber, NONE, plural, rate } from "../format.mjs";
import { html, useEffect, useState } from "../html.mjs";
import { linkTo } from "../routes.mjs";
import { Empty, Notice, Stale, Status, useNow, Waiting } from "../parts/shared.mjs";

const FILTERS = [
  ["all", "All", () => true],
  ["running", "Running", (job) => ["RUNNING", "INITIALIZING", "RESTARTING"].includes(job.status)],
  ["attention", "Need attention", (job) => ["DIED", "FAILED", "DAMAGED", "SUSPENDED"].includes(job.status)],
  ["ended", "Ended", (job) => ["FINISHED", "STOPPED", "CANCELED"].includes(job.status)],
];

export function Jobs() {
  const resource = useResource("v1/penstock/jobs", 2);
  const [filter, setFilter] = useState("all");
  const [text, setText] = useState("");
  useEffect(() => {
    document.title = "Jobs · penstock";
  }, []);
  useEffect(() => {
    // For whoever measures how long the first page takes.
    if (resource.data !== null && performance.getEntriesByName("first-page").length === 0) performance.mark("first-page");
  }, [resource.data === null]);
  const jobs = resource.data?.jobs ?? [];
  const shown = jobs
    .filter(FILTERS.find(([key]) => key === filter)[2])
    .filter((job) => `${job.name} ${job.id}`.toLowerCase().includes(text.toLowerCase()))
    .sort(byUrgency);
  return html`<div class="stack">
    <div class="row between"><h1 tabindex="-1">Jobs</h1>
      ${resource.data && html`<p class="quiet small">${plural(jobs.length, "job")} in <code>${resource.data.directory}</code></p>`}</div>
    ${resource.data === null
      ? html`<${Waiting} resource=${resource} what="list of jobs" />`
      : html`
        ${resource.error?.status && html`<${Notice} tone="warn" title="The list may be old.">${resource.error.message}<//>`}
        <div class="row between filters">
          <div class="segmented" role="group" aria-label="Show">
            ${FILTERS.map(([key, label, matches]) => html`<button aria-pressed=${String(filter === key)} onClick=${() => setFilter(key)}>
              ${label} <span class="quiet num">${jobs.filter(matches).length}</span></button>`)}
          </div>
          <input type="search" class="search" placeholder="Find by name or id" aria-label="Find by name or id" value=${text}
            onInput=${(event) => setText(event.target.value)} />
        </div>
        <section class="card flush" aria-label="List of jobs">
          ${jobs.length === 0
            ? html`<${Empty} title="No jobs yet">Start one with <code>penstock run JOB.py</code>, with checkpoints in this directory.<//>`
            : shown.length === 0
              ? html`<${Empty} title="No job matches">Choose another filter or search for something else.<//>`
              : html`<${Table} jobs=${shown} />`}
        </section>`}
  </div>`;
}

const URGENCY = ["FAILED", "DIED", "DAMAGED", "RESTARTING", "INITIALIZING", "RUNNING", "SUSPENDED"];

function byUrgency(a, b) {
  const order = (job) => (URGENCY.includes(job.status) ? URGENCY.indexOf(job.status) : URGENCY.length);
  return order(a) - order(b) || (b.started ?? 0) - (a.started ?? 0) || a.id.localeCompare(b.id);
}

function Table({ jobs }) {
  const now = useNow();
  return html`<div class="scroll"><table class="cards jobs-table">
    <thead><tr><th>Job</th><th>Status</th><th class="num">Uptime</th><th>Last checkpoint</th><th class="num">Restarts</th>
      <th class="num">Records in</th><th class="num">Records out</th></tr></thead>
    <tbody>${jobs.map((job) => html`<${Row} key=${job.id} job=${job} now=${now} />`)}</tbody></table></div>`;
}

function Row({ job, now }) {
  const runs = ["RUNNING", "INITIALIZING", "RESTARTING"].includes(job.status);
  const last = job.last_checkpoint;
  const stale = runs && job.is_stale && isNumber(job.records_in_per_s);
  return html`<tr>
    <td class="title" data-label="Job"><a class="job-link" href=${linkTo(job.id)}>${job.name}</a>
      <div class="quiet small mono">${job.id}</div></td>
    <td data-label="Status" class="wide"><span><${Status} value=${job.status} /></span></td>
    <td class="num wide" data-label="Uptime">${runs && isNumber(job.started)
      ? duration(Math.max(0, now - job.started))
      : html`<span class="quiet">${endText(job, now)}</span>`}</td>
    <td data-label="Last checkpoint" class="wide">${last
      ? html`<span><span class=${`nowrap ${isLate(job, now) ? "late" : ""}`}>${runs ? ago(now - last.completed) : `checkpoint ${last.id}`}</span>
          <span class="quiet small nowrap last-size">${runs ? `${last.id}, ` : ""}${last.discarded ? "discarded" : bytes(last.full_bytes)}</span></span>`
      : html`<span class="quiet">none yet</span>`}</td>
    <td class="num" data-label="Restarts">${isNumber(job.restarts) ? job.restarts : NONE}</td>
    <td class="num" data-label="Records in"><span>${runs ? rate(job.records_in_per_s) : NONE} ${stale && html`<${Stale} at=${job.live_time} />`}</span></td>
    <td class="num" data-label="Records out">${runs ? rate(job.records_out_per_s) : NONE}</td>
  </tr>`;
}

function endText(job, now) {
  if (isNumber(job.ended)) return `ended ${ago(now - job.ended)}`;
  if (job.status === "DIED" && isNumber(job.driver?.heard)) return `silent for ${duration(now - job.driver.heard)}`;
  return NONE;
}

/** Whether a checkpoint is overdue: three intervals and half a minute have passed. */
export function isLate(job, now = serverNow()) {
  if (job.status !== "RUNNING" || !isNumber(job.interval_s) || !job.last_checkpoint) return false;
  return now - job.last_checkpoint.completed > 3 * job.interval_s + 30;
}
