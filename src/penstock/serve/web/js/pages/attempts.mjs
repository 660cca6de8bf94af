// Attempts and exceptions: why the job restarted, and how long each recovery took.

import { useResource } from "../api.mjs";
import { ago, duration, isNumber, percent, plural } from "../format.mjs";
import { html, useState } from "../html.mjs";
import { percentile } from "../checkpoint_stats.mjs";
import { longestPart, longestRecovery, recoverySeconds, RECOVERY_PARTS, rootCause, shortCause } from "../recovery_stats.mjs";
import { apiPath, linkTo } from "../routes.mjs";
import { Bar, Card, Empty, Legend, Stat, Time, useNow, Waiting } from "../parts/shared.mjs";

const FIRST = 20;

export function Page({ route }) {
  const resource = useResource(apiPath(route.job, "attempts"), 3);
  const [most, setMost] = useState(FIRST);
  const now = useNow();
  if (resource.data === null) return html`<${Waiting} resource=${resource} what="attempts" />`;
  const { attempts } = resource.data;
  if (attempts.length === 0) {
    return html`<section class="card"><${Empty} title="No attempts">The job has never been started.<//></section>`;
  }
  const recovered = attempts.filter((attempt) => attempt.recovery);
  const times = recovered.map((attempt) => recoverySeconds(attempt.recovery));
  const exceptions = attempts.flatMap((attempt) => attempt.exceptions);
  const scale = longestRecovery(attempts);
  return html`
    <dl class="stats">
      <${Stat} label="Attempts" value=${attempts.length} note=${`since ${ago(now - attempts.at(-1).started)}`} />
      <${Stat} label="Recoveries" value=${recovered.length} />
      <${Stat} label="Median recovery" value=${times.length === 0 ? undefined : duration(percentile(times, 0.5))} />
      <${Stat} label="Longest recovery" value=${times.length === 0 ? undefined : duration(scale)} />
      <${Stat} label="Exceptions" value=${exceptions.length} note=${exceptions.length === 0 ? "none recorded" : `last ${ago(now - Math.max(...exceptions.map((e) => e.time)))}`} />
    </dl>
    <${Card} title="Attempts" note="Newest first. Bars have one scale.">
      ${scale > 0 && html`<${Legend} parts=${RECOVERY_PARTS} />`}
      <ol class="attempts">${attempts.slice(0, most).map((attempt, at) => html`<${Attempt} key=${attempt.attempt} attempt=${attempt} scale=${scale} job=${route.job} newest=${at === attempts.findIndex((a) => a.exceptions.length > 0)} />`)}</ol>
      ${attempts.length > most && html`<p class="more"><button onClick=${() => setMost(most + 100)}>Show more</button></p>`}
    <//>`;
}

function capital(text) {
  return text[0].toUpperCase() + text.slice(1).replace(/\.$/, "");
}

function Attempt({ attempt, scale, job, newest }) {
  const { recovery, exceptions } = attempt;
  const most = recovery ? longestPart(recovery) : null;
  const sum = recoverySeconds(recovery);
  return html`<li class="attempt">
    <div class="row between"><h3>Attempt ${attempt.attempt}</h3>
      <span class="quiet small"><${Time} at=${attempt.started} full=${true} /> · process ${attempt.pid} on ${attempt.host}</span></div>
    <p>${recovery
        ? html`<strong>${capital(shortCause(recovery.cause) || "the driver died")}.</strong> ${isNumber(recovery.checkpoint)
            ? html`Restored <a href=${linkTo(job, "checkpoints", recovery.checkpoint)}>checkpoint ${recovery.checkpoint}</a>`
            : "Started from scratch, without a checkpoint,"} in ${duration(sum)}${most ? html`<span class="quiet">; ${percent(most.share)} of it ${most.part.label.toLowerCase()}</span>` : ""}.`
        : isNumber(attempt.restored)
          ? html`Started from ${attempt.restored_path ? html`<span class="mono small">${attempt.restored_path}</span>` : html`checkpoint ${attempt.restored}`}.`
          : "Started from scratch."}</p>
    ${recovery && html`<${Bar} scale=${scale} label=${RECOVERY_PARTS.map((part) => `${part.label} ${duration(recovery[part.key])}`).join(", ")}
        parts=${RECOVERY_PARTS.map((part) => ({ part: part.part, value: recovery[part.key], label: `${part.label}: ${duration(recovery[part.key])}, ${part.help}` }))} />
      <ul class="times">${RECOVERY_PARTS.map((part) => html`<li><span class=${`swatch ${part.part}`}></span><span class="quiet">${part.label}</span> <span class="num">${duration(recovery[part.key])}</span></li>`)}</ul>`}
    ${exceptions.length > 0 && html`<ul class="exceptions">${exceptions.map((exception) => html`<${Failure} exception=${exception} open=${newest} />`)}</ul>`}
    ${attempt.end && html`<p class="quiet small">${attempt.end}</p>`}
  </li>`;
}

function Failure({ exception, open }) {
  return html`<li><p><span class="badge bad plain">Root cause</span> <strong class="cause">${rootCause(exception.message)}</strong></p>
    <p class="quiet small">${exception.step ? html`in ${exception.step} · ` : ""}<${Time} at=${exception.time} full=${true} /></p>
    ${exception.traceback && html`<details open=${open}><summary>Traceback (${plural(exception.traceback.split("\n").length, "line")})</summary>
      <pre class="trace" tabindex="0">${exception.traceback}</pre></details>`}</li>`;
}
