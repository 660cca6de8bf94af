// Sizes by key group. Pure functions.

import { bytes } from "./format.mjs";
import { total } from "./figures.mjs";

const CELLS = 128;

/** Cells of a strip over all key groups, each as hot as its largest group; null if not known. */
export function keyGroupCells(operator) {
  const groups = operator.key_groups;
  if (!groups || groups.length === 0) return null;
  const width = Math.ceil(groups.length / CELLS);
  const starts = new Set(operator.subtasks.map((subtask) => Math.floor(subtask.first_key_group / width)));
  const largest = Math.max(...groups, 1);
  const cells = [];
  for (let first = 0; first < groups.length; first += width) {
    const part = groups.slice(first, first + width);
    const last = first + part.length - 1;
    const name = width === 1 ? `Key group ${first}` : `Key groups ${first} to ${last}`;
    cells.push({
      first,
      width,
      heat: Math.max(...part) / largest,
      starts: first > 0 && starts.has(cells.length),
      title: `${name}: ${bytes(total(part))}`,
    });
  }
  return cells;
}

/** The largest key group, its share of the state, and how many times an even share that is. */
export function hottest(operator) {
  const groups = operator.key_groups ?? [];
  const sum = total(groups);
  if (sum === 0) return { group: 0, bytes: 0, share: 0, factor: 0 };
  const size = Math.max(...groups);
  const filled = groups.filter((found) => found > 0).length;
  return { group: groups.indexOf(size), bytes: size, share: size / sum, factor: size / (sum / filled) };
}

