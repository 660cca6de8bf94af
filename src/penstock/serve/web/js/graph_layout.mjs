// Places the stages of a job on a canvas. Pure functions over dagre.

import { Graph, layout } from "../vendor/dagre.mjs";

export const NODE = { width: 236, height: 150 };
export const NARROW_NODE = { width: 158, height: 176 };
const LABEL = { width: 118, height: 40 };

/** Positions of nodes and lines of edges; `down` for narrow screens. */
export function place(nodes, edges, down) {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: down ? "TB" : "LR", nodesep: down ? 12 : 28, ranksep: down ? 34 : 46, marginx: 2, marginy: 2 });
  graph.setDefaultEdgeLabel(() => ({}));
  const box = down ? NARROW_NODE : NODE;
  for (const node of nodes) graph.setNode(String(node.stage), { ...box });
  edges.forEach((edge, at) => {
    graph.setEdge(String(edge.from), String(edge.to), { ...LABEL, labelpos: "c" }, String(at));
  });
  layout(graph);
  const size = graph.graph();
  return {
    width: Math.ceil(size.width),
    height: Math.ceil(size.height),
    nodes: nodes.map((node) => {
      const { x, y } = graph.node(String(node.stage));
      return { node, left: Math.round(x - box.width / 2), top: Math.round(y - box.height / 2), ...box };
    }),
    edges: edges.map((edge, at) => {
      const { points, x, y } = graph.edge(String(edge.from), String(edge.to), String(at));
      return { edge, path: curve(points, down), x, y };
    }),
  };
}

/** A smooth line through points: quadratic curves between the middles of its sections. */
export function curve(points) {
  const [first, ...rest] = points.map(({ x, y }) => [round(x), round(y)]);
  if (rest.length < 2) return `M${first}${rest.map((point) => `L${point}`).join("")}`;
  let path = `M${first}`;
  rest.slice(0, -1).forEach((point, at) => {
    const next = rest[at + 1];
    const end = at === rest.length - 2 ? next : [(point[0] + next[0]) / 2, (point[1] + next[1]) / 2];
    path += `Q${point} ${end}`;
  });
  return path;
}

function round(value) {
  return Math.round(value * 10) / 10;
}
