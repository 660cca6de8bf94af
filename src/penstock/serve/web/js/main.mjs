// The shell of the dashboard: top bar, route, and what is said when the server does not answer.

import { connection, followEvents, learnAbout, setToken } from "./api.mjs";
import { duration } from "./format.mjs";
import { html, render, useEffect, useRef, useState } from "./html.mjs";
import { Notice, useNow } from "./parts/shared.mjs";
import { Jobs } from "./pages/jobs.mjs";
import { Job } from "./pages/job.mjs";
import { parseRoute } from "./routes.mjs";

function App() {
  const [route, setRoute] = useState(parseRoute(location.hash));
  const [, refresh] = useState(0);
  const first = useRef(true);
  useEffect(() => {
    const moved = () => setRoute(parseRoute(location.hash));
    const changed = () => refresh((n) => n + 1);
    addEventListener("hashchange", moved);
    connection.listeners.add(changed);
    return () => {
      removeEventListener("hashchange", moved);
      connection.listeners.delete(changed);
    };
  }, []);
  useEffect(() => {
    // A reader of the screen continues at the heading of the new page.
    if (!first.current) focusHeading();
    first.current = false;
    scrollTo(0, 0);
  }, [route.page, route.job]);
  return html`
    <header class="topbar">
      <a class="brand" href="#/" aria-label="penstock: all jobs"><img src="icon.svg" alt="" />
        <span class="brand-name">penstock</span></a>
      <nav class="crumbs" aria-label="Place"><span>${route.job === null ? "Jobs" : html`<a href="#/">Jobs</a>`}</span>
        ${route.job !== null && html`<span aria-hidden="true">/</span><span>${route.job}</span>`}</nav>
      <div class="topbar-end"><${Connection} /><${ThemeSwitch} /></div>
    </header>
    <main id="main" class="page">
      <${Unreachable} />
      ${connection.needsToken
        ? html`<${TokenForm} />`
        : route.job === null
          ? html`<${Jobs} />`
          : html`<${Job} key=${route.job} route=${route} />`}
    </main>
    <${Footer} />`;
}

function focusHeading() {
  const heading = () => document.querySelector("h1");
  const found = heading();
  found?.focus();
  // The heading of a page whose data is still loading is replaced by another one.
  const observer = new MutationObserver(() => {
    if (document.activeElement === document.body && heading() !== found) {
      observer.disconnect();
      heading()?.focus({ preventScroll: true });
    }
  });
  observer.observe(document.getElementById("app"), { childList: true, subtree: true });
  setTimeout(() => observer.disconnect(), 5000);
}

function Connection() {
  if (connection.reachable === null) return null;
  if (!connection.reachable) return html`<span class="badge bad" data-connection="lost">Server unreachable</span>`;
  return html`<span class="badge good" data-connection="ok"
    title=${connection.events ? "Changes arrive as they happen." : "Refreshed every few seconds."}>Live</span>`;
}

function Unreachable() {
  const now = useNow();
  if (connection.reachable !== false) return null;
  const age = connection.lastAnswer === null ? null : Date.now() / 1000 - connection.lastAnswer;
  return html`<div class="unreachable"><${Notice} tone="bad" title="The server does not answer.">
    ${age === null
      ? "Nothing can be shown yet. Is penstock serve running?"
      : `What is shown is ${duration(age)} old. Jobs do not depend on this server: they keep running.`}
    ${" It is tried again every few seconds."}<//></div>`;
}

function ThemeSwitch() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? (dark ? "dark" : "light"));
  const other = theme === "dark" ? "light" : "dark";
  const change = () => {
    document.documentElement.dataset.theme = other;
    try {
      localStorage.setItem("penstock.theme", other);
    } catch {
      // The choice lasts until the page is closed.
    }
    setTheme(other);
    dispatchEvent(new Event("themechange"));
  };
  return html`<button class="icon" onClick=${change} aria-label=${`Switch to ${other} colors`} title=${`Switch to ${other} colors`}>
    <svg width="17" height="17" viewBox="0 0 24 24" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round">
      ${theme === "dark"
        ? html`<circle cx="12" cy="12" r="4.5" /><path d="M12 2v2.5M12 19.5V22M2 12h2.5M19.5 12H22M4.9 4.9l1.8 1.8M17.3 17.3l1.8 1.8M4.9 19.1l1.8-1.8M17.3 6.7l1.8-1.8" />`
        : html`<path d="M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z" />`}
    </svg></button>`;
}

function TokenForm() {
  const submit = (event) => {
    event.preventDefault();
    setToken(new FormData(event.target).get("token").trim());
  };
  return html`<section class="card token-form"><h1 tabindex="-1">This server asks for a token</h1>
    <p class="quiet">Whoever started <code>penstock serve</code> has it. It is kept until this tab is closed.</p>
    <form onSubmit=${submit} class="stack"><label>Token<input type="password" name="token" autocomplete="off" required /></label>
      <div><button class="primary">Continue</button></div></form></section>`;
}

function Footer() {
  // Another version may be there after the server was gone.
  useEffect(() => void learnAbout(), [connection.reachable === false]);
  const about = connection.about;
  const version = about?.["penstock-version"] ?? "";
  // A link sends no token.
  const showsMetrics = about !== null && !about["penstock-needs-token"];
  return html`<footer class="footer"><span>penstock ${version}</span>
    <a href="docs">REST API</a>${showsMetrics && html`<a href="metrics">Prometheus metrics</a>`}</footer>`;
}

followEvents("v1/events");
render(html`<${App} />`, document.getElementById("app"), document.getElementById("app").firstChild);
