// Requests to the server, and whether it answers. The only module that fetches.

import { useCallback, useEffect, useRef, useState } from "./html.mjs";

const TIMEOUT_MS = 15000;
const TOKEN = "penstock.token";

/** What is known of the server; listeners are called when it changes. */
export const connection = {
  reachable: null,
  lastAnswer: null,
  needsToken: false,
  events: false,
  /** What the server says of itself and of the caller: its answer to /v1/config. */
  about: null,
  listeners: new Set(),
  set(changes) {
    if (Object.entries(changes).every(([key, value]) => this[key] === value)) return;
    Object.assign(this, changes);
    for (const listener of this.listeners) listener();
  },
};

let clockOffset = 0;

/** The server's clock, in seconds: ages do not depend on the clock of the browser. */
export function serverNow() {
  return Date.now() / 1000 + clockOffset;
}

export class ApiError extends Error {
  constructor(status, messages) {
    super(messages.join("\n"));
    this.status = status;
  }
}

/** Ask what the server is, and what the caller may do: another token may have another role. */
export async function learnAbout() {
  try {
    connection.set({ about: await request("v1/config") });
  } catch {
    // It is asked for again when the server is back, or with another token.
  }
}

export function setToken(token) {
  try {
    sessionStorage.setItem(TOKEN, token);
  } catch {
    // Without storage the token is asked for again after a reload.
  }
  memory.token = token;
  connection.set({ needsToken: false });
  learnAbout();
  wakeAll();
}

const memory = { token: null };

function headers(more = {}) {
  let token = memory.token;
  try {
    token ??= sessionStorage.getItem(TOKEN);
  } catch {
    // Storage may be forbidden.
  }
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

/** Request JSON; raises ApiError for an answer that is an error, TypeError without an answer. */
export async function request(path, { method = "GET", body, reviver } = {}) {
  const abort = new AbortController();
  const timer = setTimeout(() => abort.abort(), TIMEOUT_MS);
  let response;
  let text;
  try {
    response = await fetch(path, {
      method,
      signal: abort.signal,
      credentials: "same-origin",
      cache: "no-store",
      // No page of another site can send this header: see the guard of the server.
      headers: headers(method === "GET" ? {} : { "Content-Type": "application/json", "X-Penstock-Request": "dashboard" }),
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    text = await response.text();
  } catch (error) {
    connection.set({ reachable: false });
    throw error;
  } finally {
    clearTimeout(timer);
  }
  connection.set({ reachable: true, lastAnswer: Date.now() / 1000 });
  if (response.status === 401) connection.set({ needsToken: true });
  const value = parse(text, reviver);
  if (!response.ok) {
    throw new ApiError(response.status, value?.errors ?? [`The server answered ${response.status}.`]);
  }
  if (typeof value?.now === "number") clockOffset = value.now - Date.now() / 1000;
  return value;
}

function parse(text, reviver) {
  try {
    return text === "" ? null : JSON.parse(text, reviver);
  } catch {
    return null;
  }
}

const wakers = new Set();

function wakeAll() {
  for (const wake of wakers) wake();
}

/**
 * A resource that is fetched again every few seconds, at events, and when the page is shown again.
 * Returns {data, error, receivedAt, reload}; data of an earlier answer stays if one fails.
 */
export function useResource(path, every = 2) {
  const [state, setState] = useState({ path, data: null, error: null, receivedAt: null });
  const run = useRef(null);
  useEffect(() => {
    let stopped = false;
    let timer = null;
    let busy = false;
    let again = false;
    async function load() {
      clearTimeout(timer);
      if (busy) {
        again = true;
        return;
      }
      busy = true;
      try {
        const data = await request(path);
        if (!stopped) setState({ path, data, error: null, receivedAt: Date.now() / 1000 });
      } catch (error) {
        if (!stopped) {
          setState((old) => ({ ...(old.path === path ? old : { path, data: null, receivedAt: null }), error }));
        }
      }
      busy = false;
      if (stopped) return;
      timer = setTimeout(load, again ? 150 : wait());
      again = false;
    }
    const wait = () => 1000 * (document.hidden ? 10 * every : every);
    const wake = () => {
      if (!document.hidden && !stopped) load();
    };
    run.current = load;
    wakers.add(wake);
    document.addEventListener("visibilitychange", wake);
    load();
    return () => {
      stopped = true;
      clearTimeout(timer);
      wakers.delete(wake);
      document.removeEventListener("visibilitychange", wake);
    };
  }, [path, every]);
  const reload = useCallback(() => run.current?.(), []);
  const current = state.path === path ? state : { data: null, error: null, receivedAt: null };
  return { ...current, reload };
}

/** Listen to the server's events for as long as the page is open: each one refreshes what is shown. */
export async function followEvents(path) {
  let wait = 1000;
  for (;;) {
    try {
      const response = await fetch(path, { headers: headers({ Accept: "text/event-stream" }), cache: "no-store" });
      const type = response.headers.get("Content-Type") ?? "";
      if (response.ok && type.startsWith("text/event-stream")) {
        connection.set({ events: true });
        wait = 1000;
        await readEvents(response.body.getReader());
      }
    } catch {
      // The server ended or cannot be reached: requests notice it, too, and say so.
    }
    connection.set({ events: false });
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(2 * wait, 15000);
  }
}

async function readEvents(reader) {
  const decoder = new TextDecoder();
  let pending = null;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    // A comment only keeps the connection open; whatever else comes means that something changed.
    const text = decoder.decode(value, { stream: true });
    if (!/^(data|event):/m.test(text)) continue;
    clearTimeout(pending);
    pending = setTimeout(wakeAll, 120);
  }
}
