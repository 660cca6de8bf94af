// Components: which processes there are, what each one does, and which subtask runs where.

import { ago, bytes, chain, count, date, NONE, plural } from "../format.mjs";
import { html } from "../html.mjs";
import { Card, Empty, useNow } from "../parts/shared.mjs";

const ROLES = {
  dispatcher: ["Dispatcher", "Shows all jobs of a checkpoint directory and passes requests on to their drivers. No job depends on it: it can be restarted at any time."],
  driver: ["Job manager", "The driver. It plans micro-batches, injects barriers, collects acknowledgements, completes checkpoints and restarts the job after failures."],
  executor: ["Task manager", "A Spark executor. It runs subtasks: their functions, their keyed state, and their part of each snapshot."],
  storage: ["Checkpoint storage", "Keeps journal, checkpoints and history. Everything that is needed to resume the job is there."],
};

export function Page({ data }) {
  const now = useNow();
  const { job, live, server } = data;
  const runs = ["RUNNING", "INITIALIZING", "RESTARTING"].includes(job.status);
  const executors = live?.executors ?? [];
  return html`
    <div class="components">
      <${Process} role="dispatcher" state=${["good", "answers"]} where=${`${server.host}, process ${server.pid}`}
        facts=${[["Started", date(server.started)], ["Version", `penstock ${server.version}`], ["Directory", html`<span class="mono small">${server.directory}</span>`]]} />
      <${Process} role="driver"
        state=${runs ? ["live", "runs"] : job.status === "DIED" ? ["bad", "dead or silent"] : ["", "none"]}
        where=${job.driver ? `${job.driver.host}, process ${job.driver.pid}` : "no process: nobody runs the job"}
        facts=${[
          ["Attempt", job.attempt ?? NONE],
          ["Supervisor", job.supervised ? "starts it again if it dies" : "none: run with --supervise"],
          ["Heartbeat", job.driver ? ago(now - job.driver.heard) : NONE],
          ["Memory", live?.driver?.memory_bytes ? bytes(live.driver.memory_bytes) : NONE],
          ["Spark UI", live?.driver?.spark_ui ? html`<a href=${safeLink(live.driver.spark_ui)} rel="noreferrer noopener" target="_blank">${live.driver.spark_ui}</a>` : NONE],
        ]} />
      <${Process} role="storage" state=${["good", "readable"]} where=${html`<span class="mono small">${job.path}</span>`}
        facts=${[["Last checkpoint", job.last_checkpoint ? `${job.last_checkpoint.id}, ${bytes(job.last_checkpoint.full_bytes)}` : NONE], ["Completed", job.last_checkpoint ? ago(now - job.last_checkpoint.completed) : NONE], ["Restarts", job.restarts]]} />
    </div>
    <${Card} title="Task managers" note=${ROLES.executor[1]} flush=${true}>
      ${executors.length === 0
        ? html`<${Empty} title="No executors are known">${runs ? "The driver has not reported yet." : "They exist while a driver runs the job."}<//>`
        : html`<div class="executors ${data.is_stale ? "stale" : ""}">${executors.map((executor) => html`<${Executor} executor=${executor} plan=${data.plan} />`)}</div>`}
    <//>
    <${Matrix} data=${data} executors=${executors} />`;
}

function Process({ role, state, where, facts }) {
  const [name, does] = ROLES[role];
  return html`<section class="card process" aria-label=${name}>
    <div class="row between"><h2>${name}</h2><span class=${`badge ${state[0]}`}>${state[1]}</span></div>
    <p class="where">${where}</p><p class="quiet">${does}</p>
    <dl class="facts">${facts.map(([label, value]) => html`<dt>${label}</dt><dd>${value}</dd>`)}</dl></section>`;
}

function safeLink(text) {
  return /^https?:\/\//.test(text) ? text : undefined;
}

function stageName(plan, stage) {
  return chain(plan.stages.find((found) => String(found.stage) === String(stage))?.name ?? `stage ${stage}`);
}

function Executor({ executor, plan }) {
  const stages = Object.entries(executor.subtasks);
  const runs = stages.reduce((sum, [, subtasks]) => sum + subtasks.length, 0);
  return html`<article class="executor"><div class="row between"><h3>Executor ${executor.id}</h3>
      <span class="quiet small">${executor.host} · ${plural(executor.slots, "slot")}${executor.memory_bytes ? ` · ${bytes(executor.memory_used_bytes)} of ${bytes(executor.memory_bytes)}` : ""}</span></div>
    ${runs === 0
      ? html`<p class="quiet small">It has run no subtask yet.</p>`
      : html`<ul class="lines compact">${stages.filter(([, subtasks]) => subtasks.length > 0).map(([stage, subtasks]) => html`<li>
          <div>${stageName(plan, stage)}</div><div class="chips">${subtasks.map((subtask) => html`<span class="chip num">${subtask}</span>`)}</div></li>`)}</ul>`}
  </article>`;
}

function Matrix({ data, executors }) {
  const { stages } = data.plan;
  if (stages.length === 0) return null;
  const where = (stage, subtask) => executors.find((executor) => executor.subtasks[stage.stage]?.includes(subtask));
  return html`<${Card} title="Subtasks" note="The executor where each subtask ran last. A subtask returns to the one that has its state.">
    <ul class="lines">${stages.map((stage) => html`<li><div><strong>${chain(stage.name)}</strong>
        <div class="quiet small">${plural(stage.parallelism, "subtask")} of at most ${count(stage.max_parallelism)}</div></div>
      <div class="chips">${Array.from({ length: Math.min(stage.parallelism, 256) }, (_, subtask) => {
        const found = where(stage, subtask);
        const text = found ? `on executor ${found.id} of ${found.host}` : "place not known";
        return html`<span class=${`chip num ${found ? "" : "unknown"}`} title=${`Subtask ${subtask}: ${text}`}>${subtask}${found && html`<small>${found.id}</small>`}</span>`;
      })}</div></li>`)}</ul><//>`;
}
