// The graph of a job: stages as cards, channels as lines with what waits in them.

import { bottleneck, LOW_SKEW, watermarkLag } from "../figures.mjs";
import { bytes, count, decimal, duration, isNumber, percent, rate } from "../format.mjs";
import { html, useEffect, useMemo, useRef, useState } from "../html.mjs";

const NARROW = 720;

export function GraphView({ graph, chosen, choose, now, isStale }) {
  const box = useRef(null);
  const [width, setWidth] = useState(null);
  const [place, setPlace] = useState(null);
  useEffect(() => {
    import("../graph_layout.mjs").then((module) => setPlace(() => module.place), () => {});
    const sizes = new ResizeObserver(() => setWidth(box.current?.clientWidth ?? null));
    sizes.observe(box.current);
    return () => sizes.disconnect();
  }, []);
  const limit = bottleneck(graph);
  const down = width !== null && width < NARROW;
  const shape = JSON.stringify([graph.nodes.map((n) => n.stage), graph.edges.map((e) => [e.from, e.to]), down]);
  const placed = useMemo(() => (place && width !== null ? place(graph.nodes, graph.edges, down) : null), [shape, place, width === null]);
  return html`<div class="graph" ref=${box} role="region" aria-label="Graph of the job" tabindex="0">
    ${graph.nodes.length === 0
      ? html`<p class="quiet graph-empty">The plan of this job is not known: it was written by an older version.</p>`
      : placed && html`<div class="graph-canvas" style=${{ width: `${placed.width}px`, height: `${placed.height}px` }}>
          <svg width=${placed.width} height=${placed.height} aria-hidden="true">
            <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
              <path d="M0 0L8 4L0 8z" class="arrow" /></marker></defs>
            ${placed.edges.map(({ path }, at) => html`<path d=${path} class=${`edge ${edgeTone(graph.edges[at].channel)}`} marker-end="url(#arrow)" />`)}
          </svg>
          ${placed.edges.map(({ x, y }, at) => html`<${EdgeLabel} edge=${graph.edges[at]} x=${x} y=${y} />`)}
          ${placed.nodes.map(({ left, top, width: w, height }, at) => html`<${Node} node=${graph.nodes[at]} left=${left} top=${top} width=${w} height=${height}
            chosen=${chosen === graph.nodes[at].stage} choose=${choose} now=${now} isStale=${isStale} limits=${limit?.node === graph.nodes[at]} />`)}
        </div>`}
  </div>`;
}

function edgeTone(channel) {
  if (isNumber(channel?.blocked_at)) return "blocked";
  return channel?.is_full ? "full" : "";
}

function EdgeLabel({ edge, x, y }) {
  const { channel } = edge;
  const tone = edgeTone(channel);
  return html`<div class=${`edge-label ${tone}`} style=${{ left: `${x}px`, top: `${y}px` }}>
    <span class="num">${channel ? `${count(channel.records)} queued` : edge.exchange?.toLowerCase() ?? ""}</span>
    ${tone === "blocked" && html`<span>blocked at ${channel.blocked_at}</span>`}
    ${tone === "full" && html`<span>full, ${bytes(channel.bytes)}</span>`}
    ${tone === "" && channel?.barriers.length > 0 && html`<span>barrier ${channel.barriers.join(", ")}</span>`}
  </div>`;
}

function Node({ node, left, top, width, height, chosen, choose, now, isStale, limits }) {
  const f = node.figures;
  const lag = watermarkLag(f.watermark, now);
  const tone = f.busy > 0.85 ? "hot" : f.backpressured > 0.5 ? "pressed" : "";
  return html`<button class=${`node ${tone} ${chosen ? "chosen" : ""}`} aria-pressed=${String(chosen)} onClick=${() => choose(node.stage)}
    style=${{ left: `${left}px`, top: `${top}px`, width: `${width}px`, height: `${height}px` }}>
    <span class="node-name" title=${node.name}>${node.name}</span>
    <span class="node-sub">${node.parallelism} × parallel${isNumber(f.skew) && f.skew > LOW_SKEW ? html` · <b class="warn-text">skew ${decimal(f.skew)}</b>` : ""}
      ${isNumber(lag) ? ` · ${duration(Math.max(0, lag))} lag` : ""}</span>
    <${Load} figures=${f} />
    <span class="node-rates num live-figure"><span><span class="quiet">in</span> ${rate(f.recordsInRate)}</span>
      <span><span class="quiet">${isNumber(f.sentRate) ? "to sink" : "out"}</span> ${rate(f.sentRate ?? f.recordsOutRate)}</span></span>
    <span class="node-totals num quiet live-figure">${f.isKnown ? `${count(f.recordsIn ?? 0)} in, ${count(f.sent ?? f.recordsOut ?? 0)} out in all` : "no live figures"}
      ${isNumber(f.pending) && f.pending > 0 ? ` · ${count(f.pending)} pending` : ""}</span>
    ${isStale && f.isKnown ? html`<span class="node-stale">stale</span>` : limits && html`<span class="node-stale limit">bottleneck</span>`}
  </button>`;
}

/** Busy, backpressured and idle time of the busiest subtask. */
export function Load({ figures }) {
  const { busy, backpressured } = figures;
  if (!isNumber(busy) && !isNumber(backpressured)) return html`<span class="load"><span class="bar"></span><span class="load-text quiet">load not known</span></span>`;
  const parts = [["busy", busy ?? 0], ["backpressured", Math.min(backpressured ?? 0, 1 - Math.min(1, busy ?? 0))]];
  return html`<span class="load live-figure"><span class="bar idle">${parts.map(([name, share]) => html`<span class=${name} style=${{ width: `${100 * share}%` }}></span>`)}</span>
    <span class="load-text">busy ${percent(busy)}${backpressured > 0.005 ? html` · <span class=${backpressured > 0.5 ? "bad-text" : ""}>backpressured ${percent(backpressured)}</span>` : ""}</span></span>`;
}
