// Line charts: uPlot in a component, with the colors of the theme.

import uPlot from "../../vendor/uplot.mjs";
import { duration } from "../format.mjs";
import { html, useEffect, useRef } from "../html.mjs";

function color(name) {
  // A custom property may be light-dark(…): only a used color says which one it is.
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/**
 * data: [x, y1, y2, …]; series: [{label, color, format, fill, points}]; x: {time, format, label};
 * y: {format, range}; marks: [{x, label}].
 */
export function Chart({ data, series, x = { time: true }, y = {}, height = 190, label, marks = [] }) {
  const box = useRef(null);
  const plot = useRef(null);
  const shape = JSON.stringify([series.map((s) => s.label), x.time, x.label, height]);
  const latest = useRef({});
  latest.current = { data, marks };
  useEffect(() => {
    const create = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(box.current.clientWidth, latest), latest.current.data, box.current);
    };
    const options = (width, state) => ({
      width,
      height,
      cursor: { y: false, points: { size: 7 } },
      legend: { live: true },
      scales: { x: { time: x.time ?? false, ...(x.log ? { distr: 3 } : {}), ...(x.range ? { range: x.range } : {}) }, y: { range: y.range ?? zeroBased } },
      axes: [axis(x, false), axis(y, true)],
      series: [
        { label: x.label ?? "Time", value: (_, v) => (v === null ? "–" : x.format ? x.format(v) : timeOf(v)) },
        ...series.map((s) => ({
          label: s.label,
          stroke: color(s.color),
          width: s.width ?? 2,
          dash: s.dash,
          fill: s.fill ? `color-mix(in srgb, ${color(s.color)} 14%, transparent)` : undefined,
          points: { show: s.points ?? false, size: 5 },
          spanGaps: s.spanGaps ?? false,
          paths: s.steps ? uPlot.paths.stepped({ align: 1 }) : undefined,
          value: (_, v) => (v === null || v === undefined ? "–" : s.format ? s.format(v) : String(v)),
        })),
      ],
      hooks: { draw: [(self) => drawMarks(self, state.current.marks)] },
    });
    create();
    const sizes = new ResizeObserver(() => {
      const width = box.current?.clientWidth;
      if (width && plot.current && Math.abs(plot.current.width - width) > 1) plot.current.setSize({ width, height });
    });
    sizes.observe(box.current);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", create);
    addEventListener("themechange", create);
    return () => {
      sizes.disconnect();
      scheme.removeEventListener("change", create);
      removeEventListener("themechange", create);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(data), [data]);
  return html`<figure class="chart" ref=${box} role="img" aria-label=${label}></figure>`;
}

function axis(of, isY) {
  return {
    stroke: color("--muted"),
    grid: { stroke: color("--line"), width: 1, show: isY },
    ticks: { show: false },
    // uPlot enlarges whole pixels only, for screens with a higher resolution.
    font: "12px Inter, system-ui, sans-serif",
    gap: 6,
    size: isY ? 64 : 30,
    space: isY ? 34 : 70,
    ...(of.binary ? { incrs: BINARY } : {}),
    ...(of.format === duration && !of.log ? { incrs: SECONDS } : {}),
    ...(of.time ? { values: (_, values) => clockTicks(values) } : {}),
    ...(of.format ? { values: (_, values) => values.map((v) => (v === null ? "" : of.format(v))) } : {}),
  };
}

const SECONDS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400];
const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);

function clockTicks(values) {
  const whole = values.every((value) => value % 60 === 0);
  return values.map((value) => {
    const text = new Date(value * 1000).toLocaleTimeString("en-GB");
    return value % 1 !== 0 ? "" : whole ? text.slice(0, 5) : text;
  });
}

function zeroBased(_, low, high) {
  return [0, high > 0 ? high * 1.1 : 1];
}

function timeOf(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

function drawMarks(self, marks) {
  const { ctx, bbox } = self;
  ctx.save();
  ctx.strokeStyle = color("--warn");
  ctx.fillStyle = color("--warn");
  ctx.lineWidth = devicePixelRatio;
  ctx.font = `${11 * devicePixelRatio}px Inter, system-ui, sans-serif`;
  for (const mark of marks) {
    const at = self.valToPos(mark.x, "x", true);
    if (at < bbox.left || at > bbox.left + bbox.width) continue;
    ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(at, bbox.top);
    ctx.lineTo(at, bbox.top + bbox.height);
    ctx.stroke();
    if (mark.label) {
      const right = at > bbox.left + bbox.width * 0.7;
      ctx.textAlign = right ? "right" : "left";
      ctx.fillText(mark.label, at + (right ? -5 : 5) * devicePixelRatio, bbox.top + 12 * devicePixelRatio);
    }
  }
  ctx.restore();
}
