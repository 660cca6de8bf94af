// The frame of a job's pages: its name, status, actions and tabs.

import { useResource } from "../api.mjs";
import { ago, duration, isNumber, plural } from "../format.mjs";
import { html, useEffect, useState } from "../html.mjs";
import { apiPath, linkTo, PAGES } from "../routes.mjs";
import { Actions } from "../parts/actions.mjs";
import { Notice, Status, statusMeaning, useNow, Waiting } from "../parts/shared.mjs";

const LOADERS = {
  overview: () => import("./overview.mjs"),
  components: () => import("./components.mjs"),
  checkpoints: () => import("./checkpoints.mjs"),
  attempts: () => import("./attempts.mjs"),
  state: () => import("./state.mjs"),
  advice: () => import("./advice.mjs"),
};
const loaded = {};

export function Job({ route }) {
  const resource = useResource(apiPath(route.job), 2);
  const [page, setPage] = useState(loaded[route.page] ? route.page : null);
  const [problem, setProblem] = useState(null);
  useEffect(() => {
    let current = true;
    LOADERS[route.page]().then(
      (module) => {
        loaded[route.page] = module.Page;
        if (current) setPage(route.page);
      },
      (error) => current && setProblem(error),
    );
    return () => {
      current = false;
    };
  }, [route.page]);
  const data = resource.data;
  const title = PAGES.find(([name]) => name === route.page)[1];
  useEffect(() => {
    document.title = `${data?.job.name ?? route.job} · ${title} · penstock`;
  }, [data?.job.name, title]);
  if (data === null) {
    return html`<div class="stack"><h1 tabindex="-1">${route.job}</h1><${Waiting} resource=${resource} what="job" /></div>`;
  }
  const Shown = page === route.page ? loaded[page] : null;
  return html`<div class="stack">
    <${Header} data=${data} />
    <${Tabs} route=${route} />
    <${Troubles} data=${data} error=${resource.error} />
    ${problem && html`<${Notice} tone="bad" title="This page cannot be loaded.">Load it again when the server answers.<//>`}
    ${Shown
      ? html`<div class=${`stack ${data.is_stale ? "figures-stale" : ""}`}><${Shown} data=${data} route=${route} reload=${resource.reload} /></div>`
      : html`<p class="quiet">Loading …</p>`}
  </div>`;
}

function Header({ data }) {
  const { job } = data;
  const now = useNow();
  const runs = ["RUNNING", "INITIALIZING", "RESTARTING"].includes(job.status);
  const last = job.last_checkpoint;
  return html`<div class="row between job-header">
    <div><div class="row"><h1 tabindex="-1">${job.name}</h1><${Status} value=${job.status} /></div>
      <ul class="meta">
        ${runs && isNumber(job.started) && html`<li>up ${duration(Math.max(0, now - job.started))}</li>`}
        ${isNumber(job.ended) && html`<li>ended ${ago(now - job.ended)}</li>`}
        ${job.attempt && html`<li>attempt ${job.attempt}</li>`}
        ${isNumber(job.restarts) && html`<li>${plural(job.restarts, "restart")}</li>`}
        ${last && html`<li>checkpoint ${last.id} ${ago(now - last.completed)}</li>`}
        <li class="mono">${job.id}</li>
      </ul></div>
    <${Actions} job=${job} />
  </div>`;
}

function Tabs({ route }) {
  return html`<nav class="tabs" aria-label="Pages of the job">
    ${PAGES.map(([name, label]) => html`<a href=${linkTo(route.job, name)} aria-current=${route.page === name ? "page" : undefined}
      ref=${(link) => route.page === name && link?.scrollIntoView({ block: "nearest", inline: "nearest" })}>${label}</a>`)}
  </nav>`;
}

function Troubles({ data, error }) {
  const now = useNow();
  const { job } = data;
  const runs = ["RUNNING", "RESTARTING"].includes(job.status);
  return html`
    ${job.status === "DIED" && html`<${Notice} tone="bad" title="The driver does not answer.">
      ${isNumber(job.driver?.heard) && `Process ${job.driver.pid} on ${job.driver.host} was last heard ${ago(now - job.driver.heard)}. `}
      ${statusMeaning("DIED")} All figures are from before.<//>`}
    ${runs && data.is_stale && data.live && html`<${Notice} tone="warn" title="Live figures are stale.">
      They are from ${ago(now - data.live.time)}: the driver is busy, dead or cut off. It is asked again every few seconds.<//>`}
    ${error?.status === 404 && html`<${Notice} tone="warn" title="The job's directory is gone.">What is shown was read before.<//>`}
    ${error?.status && error.status !== 404 && html`<${Notice} tone="warn" title="The job cannot be read now.">${error.message}<//>`}
    ${(job.unreadable ?? []).length > 0 && html`<${Notice} tone="warn" title="Some files of the job are damaged and left out.">
      <span class="mono small">${job.unreadable.join(", ")}</span><//>`}`;
}
