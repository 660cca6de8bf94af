// Small components that several pages use.

import { bytes, clock, date, duration, isNumber, NONE } from "../format.mjs";
import { serverNow } from "../api.mjs";
import { html, useEffect, useState } from "../html.mjs";

const STATUS = {
  RUNNING: ["live", "A driver runs the job."],
  INITIALIZING: ["live", "A driver is starting the job: Spark, and what it restores."],
  RESTARTING: ["warn", "The job failed and is between two attempts."],
  DIED: ["bad", "The driver is dead or silent; run the job again to resume."],
  SUSPENDED: ["warn", "Ended by Ctrl-C or SIGTERM; run the job again to resume."],
  FAILED: ["bad", "Given up by its restart strategy; run it again to resume."],
  DAMAGED: ["bad", "The job's journal cannot be read."],
  FINISHED: ["good", "The job has ended."],
  STOPPED: ["good", "The job was stopped with a savepoint."],
  CANCELED: ["", "The job was canceled."],
  COMPLETED: ["good", ""],
  PENDING: ["live", "In progress"],
};

export function Status({ value }) {
  const [tone, meaning] = STATUS[value] ?? ["", ""];
  return html`<span class=${`badge ${tone}`} title=${meaning}>${value}</span>`;
}

export function statusMeaning(value) {
  return (STATUS[value] ?? ["", ""])[1];
}

/** Render again every second while the page is shown. */
export function useNow() {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || tick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  return serverNow();
}

export function Card({ title, note, children, flush, id, level = 2 }) {
  const name = id ?? `card-${String(title).toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;
  const heading = level === 2 ? html`<h2 id=${name}>${title}</h2>` : html`<h3 id=${name}>${title}</h3>`;
  return html`<section class=${flush ? "card flush" : "card"} aria-labelledby=${name}>
    <header>${heading}${note && html`<p>${note}</p>`}</header>
    ${children}
  </section>`;
}

export function Stat({ label, value, note }) {
  return html`<div class="stat"><dt>${label}</dt><dd>${value ?? NONE}${note && html`<small>${note}</small>`}</dd></div>`;
}

export function Notice({ tone = "", title, children }) {
  const role = tone === "bad" ? "alert" : "status";
  return html`<div class=${`notice ${tone}`} role=${role}>
    <div><strong>${title}</strong>${children && html`<div>${children}</div>`}</div>
  </div>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><h2>${title}</h2><p>${children}</p></div>`;
}

/** A bar of parts: [{part, value, label}], on a scale. */
export function Bar({ parts, scale, label }) {
  const shown = parts.filter((found) => found.value > 0);
  return html`<div class="bar" role="img" aria-label=${label}>
    ${shown.map((found) => html`<span class=${found.part} title=${found.label}
      style=${{ width: `${(100 * found.value) / scale}%` }}></span>`)}
  </div>`;
}

export function Legend({ parts }) {
  return html`<ul class="legend">
    ${parts.map((found) => html`<li title=${found.help}><span class=${`swatch ${found.part}`}></span>${found.label}</li>`)}
  </ul>`;
}

export function Time({ at, full }) {
  if (!isNumber(at)) return NONE;
  return html`<time class="nowrap" datetime=${new Date(at * 1000).toISOString()} title=${date(at)}>
    ${full ? date(at) : clock(at)}</time>`;
}

export function Size({ value }) {
  return html`<span title=${isNumber(value) ? `${value.toLocaleString("en-US")} bytes` : ""}>${bytes(value)}</span>`;
}

/** A table that scrolls by itself where it does not fit, also with the keyboard. */
export function Scroll({ label, children }) {
  return html`<div class="scroll" role="region" aria-label=${label} tabindex="0">${children}</div>`;
}

/** What a page shows while its data is loading, or if there is none. */
export function Waiting({ resource, what }) {
  const { error } = resource;
  if (!error) return html`<p class="quiet" aria-busy="true">Loading ${what} …</p>`;
  const missing = error.status === 404;
  return html`<${Notice} tone="bad" title=${missing ? `There is no ${what} here.` : `The ${what} cannot be shown.`}>
    ${error.status ? error.message : "The server does not answer."}<//>`;
}

/** A mark beside what is older than it looks. */
export function Stale({ at }) {
  const now = useNow();
  return html`<span class="stale-mark">stale${isNumber(at) ? `: ${duration(Math.max(0, now - at))} old` : ""}</span>`;
}
