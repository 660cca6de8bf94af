import assert from "node:assert/strict";
import test from "node:test";
import * as format from "../../../../src/penstock/serve/web/js/format.mjs";

test("durations have at most two units", () => {
  const texts = [
    [0, "0 s"], [0.0004, "0.4 ms"], [0.12, "120 ms"], [0.9996, "1.0 s"], [1.44, "1.4 s"], [9.96, "10 s"], [59.4, "59 s"],
    [59.6, "1 min"], [134, "2 min 14 s"], [3600, "1 h"], [11520, "3 h 12 min"], [352800, "4 d 2 h"],
  ];
  for (const [seconds, text] of texts) assert.equal(format.duration(seconds), text);
});

test("what is not known is a dash", () => {
  for (const print of [format.duration, format.bytes, format.count, format.rate, format.percent, format.ago, format.clock, format.date]) {
    for (const value of [null, undefined, NaN, "7"]) assert.equal(print(value), "–");
  }
  assert.equal(format.duration(-1), "–");
});

test("sizes are in units of 1,024, as the commands print them", () => {
  const texts = [[0, "0 B"], [1023, "1023 B"], [1024, "1 KB"], [54477, "53.2 KB"], [1024 * 1024 - 1, "1 MB"], [5 * 2 ** 40, "5 TB"]];
  for (const [size, text] of texts) assert.equal(format.bytes(size), text);
});

test("counts and rates are exact where they are small", () => {
  assert.equal(format.count(123456), "123,456");
  assert.equal(format.count(1234567), "1.23 M");
  assert.equal(format.rate(0), "0/s");
  assert.equal(format.rate(0.25), "0.3/s");
  assert.equal(format.rate(1234.4), "1,234/s");
});

test("shares never round to nothing", () => {
  assert.equal(format.percent(0), "0 %");
  assert.equal(format.percent(0.004), "< 1 %");
  assert.equal(format.percent(0.425), "43 %");
});

test("ages are whole seconds", () => {
  assert.equal(format.ago(0.4), "just now");
  assert.equal(format.ago(1.9), "1 s ago");
  assert.equal(format.ago(75.2), "1 min 15 s ago");
});

test("a time of another day has its date", () => {
  const noon = new Date(2026, 10, 19, 12, 0, 0).getTime() / 1000;
  assert.equal(format.clock(noon, noon + 60), "12:00:00");
  assert.equal(format.clock(noon, noon + 86400), "2026-11-19 12:00:00");
});

test("a chain keeps its operators and loses what only names their kind", () => {
  assert.equal(format.chain("Source: a -> Map -> Sink: b"), "Source: a → Map → Sink: b");
  assert.equal(format.shortName("Source: a -> Map"), "a → Map");
});
