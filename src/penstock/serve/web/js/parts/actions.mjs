// The buttons of a job: each asks before it acts, and then shows how far it is.

import { connection, request } from "../api.mjs";
import { duration } from "../format.mjs";
import { html, useEffect, useRef, useState } from "../html.mjs";
import { flinkPath } from "../routes.mjs";
import { useNow } from "./shared.mjs";

const POLL_MS = 400;

const ACTIONS = {
  checkpoint: {
    label: "Checkpoint",
    title: "Trigger a checkpoint?",
    text: "The job takes a checkpoint now, besides those of its interval. Processing continues.",
    confirm: "Trigger checkpoint",
    call: (job) => ["POST", flinkPath(job.id, "checkpoints"), { checkpointType: "CONFIGURED" }],
    status: (job, id) => flinkPath(job.id, "checkpoints", id),
    done: (operation) => `Checkpoint ${operation.checkpointId ?? ""} is complete.`,
  },
  savepoint: {
    label: "Savepoint",
    title: "Write a savepoint?",
    text: "A savepoint is a complete copy of the state that belongs to you. Processing continues.",
    confirm: "Write savepoint",
    directory: true,
    call: (job, form) => ["POST", flinkPath(job.id, "savepoints"), { "target-directory": form.directory || null, "cancel-job": false }],
    status: (job, id) => flinkPath(job.id, "savepoints", id),
    done: () => "The savepoint is complete.",
  },
  stop: {
    label: "Stop with savepoint",
    title: "Stop the job with a savepoint?",
    text: "The job writes a savepoint, commits the output of its sinks and ends. It can be resumed from the savepoint.",
    confirm: "Stop the job",
    directory: true,
    drain: true,
    danger: true,
    call: (job, form) => ["POST", flinkPath(job.id, "stop"), { targetDirectory: form.directory || null, drain: form.drain }],
    status: (job, id) => flinkPath(job.id, "savepoints", id),
    done: () => "The job was stopped.",
  },
  cancel: {
    label: "Cancel",
    title: "Cancel the job?",
    text: "The job ends between two micro-batches, without a savepoint. Its checkpoints are deleted unless its configuration retains them, so it may not be possible to resume it.",
    confirm: "Cancel the job",
    danger: true,
    call: (job) => ["PATCH", `${flinkPath(job.id)}?mode=cancel`, undefined],
    done: () => "The job is being canceled.",
  },
};

export function Actions({ job }) {
  const [open, setOpen] = useState(null);
  const runs = ["RUNNING", "INITIALIZING", "RESTARTING"].includes(job.status);
  const reads = connection.about?.["penstock-role"] === "reader";
  const why = reads ? "This needs the token of an operator." : runs ? undefined : `No driver runs this job: its status is ${job.status}.`;
  return html`<div class="row actions" role="group" aria-label="Actions" aria-describedby=${reads ? "reader-note" : undefined}>
    ${reads && html`<p id="reader-note" class="quiet small">Your token is a reader's: it can look at jobs, not control them.</p>`}
    ${Object.entries(ACTIONS).map(([name, action]) => html`<button class=${action.danger ? "danger" : ""} disabled=${reads || !runs} title=${why}
      onClick=${() => setOpen(name)}>${action.label}</button>`)}
    ${open && html`<${Confirmation} job=${job} action=${ACTIONS[open]} close=${() => setOpen(null)} />`}
  </div>`;
}

function Confirmation({ job, action, close }) {
  const box = useRef(null);
  const [run, setRun] = useState({ stage: "ask" });
  const alive = useRef(true);
  useEffect(() => {
    box.current.showModal();
    return () => {
      alive.current = false;
    };
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const started = Date.now() / 1000;
    setRun({ stage: "wait", started });
    try {
      const fields = { directory: (form.get("directory") ?? "").trim(), drain: form.get("drain") === "on" };
      const [method, path, body] = action.call(job, fields);
      const answer = await request(path, { method, body });
      const id = answer?.["request-id"];
      const end = action.status && id ? await finished(action.status(job, id), alive) : {};
      if (alive.current) setRun({ stage: "done", started, text: action.done(end), location: end.location });
    } catch (error) {
      if (alive.current) setRun({ stage: "failed", text: error.status ? error.message : "The server does not answer; the request may have been received." });
    }
  };
  return html`<dialog ref=${box} onClose=${close} aria-labelledby="dialog-title">
    <form onSubmit=${submit}>
      <h2 id="dialog-title">${action.title}</h2>
      ${run.stage === "ask" && html`<p class="quiet">${action.text}</p>
        ${action.directory && html`<label>Directory
          <input type="text" name="directory" placeholder="the configured savepoint directory" autocomplete="off" /></label>`}
        ${action.drain && html`<label class="check"><input type="checkbox" name="drain" />
          <span>Drain: end as if all sources had ended. For a job that will not be resumed.</span></label>`}
        <div class="row"><button type="button" onClick=${() => box.current.close()}>Keep running</button>
          <button class=${action.danger ? "danger solid" : "primary"} autofocus=${!action.danger}>${action.confirm}</button></div>`}
      ${run.stage !== "ask" && html`<div role="status" class="stack">
          ${run.stage === "wait" && html`<${Progress} started=${run.started} />`}
          ${run.stage === "done" && html`<p><strong>${run.text}</strong></p>${run.location && html`<p class="mono small">${run.location}</p>`}`}
          ${run.stage === "failed" && html`<p><strong>That did not work.</strong></p><pre class="trace">${run.text}</pre>`}
        </div>
        <div class="row"><button type="button" onClick=${() => box.current.close()}>${run.stage === "wait" ? "Close and let it run" : "Close"}</button></div>`}
    </form></dialog>`;
}

function Progress({ started }) {
  useNow();
  return html`<label>In progress for ${duration(Math.floor(Date.now() / 1000 - started))}<progress></progress></label>`;
}

async function finished(path, alive) {
  while (alive.current) {
    const { status, operation } = await request(path);
    if (status.id === "COMPLETED") {
      const cause = operation?.["failure-cause"] ?? operation?.failureCause;
      if (cause) throw Object.assign(new Error(cause["stack-trace"] ?? cause.class ?? String(cause)), { status: 200 });
      return operation ?? {};
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  return {};
}
