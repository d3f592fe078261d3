"use strict";
// What there is to draw: the schedule's columns as bars in strips, and the steps of profiles beside them.
//
// A bar is {kind, name, lane, unit, begin, end, bytes, ...}; kind is section, event, wait or measured. Times are
// microseconds from the start of the step. Strings of the model stay strings: they reach the page as text only.

const schedule = JSON.parse(document.getElementById("data").textContent);
const toMicroseconds = nanoseconds => nanoseconds / 1000;
schedule.step_us = Math.max(schedule.step_ns, ...schedule.functions.map(part => part.end_ns)) / 1000;
schedule.memory.time = schedule.memory.time_ns.map(toMicroseconds);
schedule.memory.peak.time = schedule.memory.peak.time_ns / 1000;

/// Columns -> bars. `before` of an event are the bars it needs, `after` those that need it.
function predictedBars() {
  const { sections, events } = schedule;
  const bars = { sections: [], events: [] };
  for (const columns of [sections, events]) {
    columns.begin = columns.begin_ns.map(toMicroseconds);
    columns.end = columns.end_ns.map(toMicroseconds);
  }
  for (let i = 0; i < sections.begin.length; ++i) {
    const unit = sections.unit[i], phase = schedule.phases[sections.phase[i]];
    const functionName = schedule.functions[sections.function[i]].name;
    bars.sections.push({
      kind: "section", lane: 0, unit, phase, function: functionName, name: sectionName(unit, phase, functionName),
      begin: sections.begin[i], end: sections.end[i], firstNode: sections.first_node[i],
      lastNode: sections.last_node[i], before: [], after: [],
    });
  }
  for (let i = 0; i < events.begin.length; ++i)
    bars.events.push({
      kind: events.wait[i] ? "wait" : "event", lane: events.lane[i], unit: events.unit[i], begin: events.begin[i],
      end: events.end[i], bytes: events.bytes[i], name: schedule.strings[events.name[i]], id: events.id[i],
      node: events.node[i], reason: schedule.strings[events.reason[i]], notes: schedule.notes[i],
      before: events.before[i], after: [],
    });
  for (const bar of [...bars.sections, ...bars.events]) bar.label = labelOf(bar.name);
  bars.events.forEach(bar => {
    bar.before = bar.before.map(i => bars.events[i]);
    bar.before.forEach(other => other.after.push(bar));
  });
  // What is left to the next step may run before everything else of its stream.
  bars.events.sort((a, b) => a.begin - b.begin);
  return bars;
}

/// What all units begin with ("transformer.h.") says nothing on a bar.
const sharedPrefix = (() => {
  const names = schedule.units.map(unit => unit.name).filter(name => name.includes("."));
  let shared = names.length > 1 ? names[0] : "";
  for (const name of names)
    while (!name.startsWith(shared)) shared = shared.slice(0, -1);
  return shared.slice(0, shared.lastIndexOf(".") + 1);
})();

/// Of a bar's name, which may be narrow.
function labelOf(name) {
  return sharedPrefix ? name.replace(sharedPrefix, "") : name;
}

function unitName(unit) {
  return unit < 0 ? "" : schedule.units[unit].name;
}

/// The program writes the same names into its trace.
function sectionName(unit, phase, functionName) {
  const where = phase === "none" ? functionName : phase;
  return unit < 0 ? where : unitName(unit) + " " + where;
}

/// First index whose bar ends after `time`. Bars of a strip are in order and do not overlap.
function firstEndingAfter(bars, time) {
  let low = 0, high = bars.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (bars[middle].end < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/// The steps of one trace of the program's --profile; throws an Error that says what is wrong with it.
function readProfile(trace) {
  if (!trace || trace.schema !== "fsdpc.profile/1" || !Array.isArray(trace.traceEvents))
    throw new Error(`not written by --profile of a program`);
  if (trace.plan_hash !== schedule.plan_hash)
    throw new Error(`of another plan: ${String(trace.plan_hash).slice(0, 12)}…, ` +
      `this page is of ${schedule.plan_hash.slice(0, 12)}…`);
  const profile = { rank: Number(trace.rank), steps: new Map() };
  const lanes = new Map();
  for (const event of trace.traceEvents)
    if (event.ph === "M" && event.name === "thread_name") lanes.set(event.pid + "/" + event.tid, event.args.name);
  for (const event of trace.traceEvents)
    if (event.ph === "X" && event.cat === "step")
      profile.steps.set(event.args.step, { begin: event.ts, duration: event.dur, bars: [] });
  for (const event of trace.traceEvents)
    addMeasured(profile, event, schedule.lanes.indexOf(lanes.get(event.pid + "/" + event.tid)));
  if (profile.steps.size === 0) throw new Error("holds no step");
  for (const step of profile.steps.values()) finishStep(step);
  return profile;
}

const unitIndex = new Map(schedule.units.map((unit, index) => [unit.name, index]));

function addMeasured(profile, event, lane) {
  const step = event.ph === "X" && event.args && profile.steps.get(event.args.step);
  if (!step || lane < 0 || !["section", "wait", "collective"].includes(event.cat)) return;
  const begin = event.ts - step.begin, name = String(event.name), { started } = event.args;
  step.bars.push({
    kind: "measured", measures: event.cat, lane, name, label: labelOf(name), unit: unitIndex.get(event.args.unit) ?? -1,
    function: event.args.function, node: event.args.node, id: event.args.id ?? -1, bytes: event.args.bytes ?? 0,
    begin, end: begin + event.dur, started: started === undefined ? undefined : started - step.begin,
    before: [], after: [],
  });
}

/// Bars in order, each beside what was predicted for it.
function finishStep(step) {
  step.bars.sort((a, b) => a.begin - b.begin);
  for (const bar of step.bars) bar.predicted = predictionOf(bar);
}

function predictionOf(bar) {
  if (bar.measures === "section") return sectionAt.get(bar.function)?.find(bar.node);
  return predictedById.get(bar.measures + bar.id);
}

/// The predicted section of a function that holds its node number `node`.
class SectionIndex {
  constructor() { this.sections = []; }
  find(node) {
    let low = 0, high = this.sections.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.sections[middle].lastNode < node) low = middle + 1;
      else high = middle;
    }
    return this.sections[low];
  }
}

const predicted = predictedBars();
const sectionAt = new Map();
for (const bar of predicted.sections) {
  if (!sectionAt.has(bar.function)) sectionAt.set(bar.function, new SectionIndex());
  sectionAt.get(bar.function).sections.push(bar);
}
const predictedById = new Map();
for (const bar of predicted.events)
  if (bar.id >= 0) predictedById.set((bar.kind === "wait" ? "wait" : "collective") + bar.id, bar);

/// The rows of the page, top to bottom: {lane, label, height, bars}.
function makeStrips(measuredStep, stretch) {
  const strips = [];
  const moved = measuredStep &&
    measuredStep.bars.map(bar => ({ ...bar, begin: bar.begin * stretch, end: bar.end * stretch, original: bar }));
  const add = (lane, label, height, bars) => bars.length && strips.push({ lane, label, height, bars });
  schedule.lanes.forEach((name, lane) => {
    if (lane === 0) add(lane, name, 22, predicted.sections);
    add(lane, lane === 0 ? "operations" : name, 22, predicted.events.filter(bar => bar.lane === lane));
    if (!moved) return;
    const ofLane = moved.filter(bar => bar.lane === lane);
    if (lane === 0) add(lane, "measured", 18, ofLane.filter(bar => bar.measures === "section"));
    add(lane, lane === 0 ? "waits" : "measured", 18, ofLane.filter(bar => bar.measures !== "section"));
  });
  strips.forEach((strip, index) => strip.bars.forEach(bar => { bar.strip = index; }));
  return strips;
}

function formatTime(microseconds) {
  const size = Math.abs(microseconds);
  const digits = value => value.toPrecision(4).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
  if (size >= 1e6) return digits(microseconds / 1e6) + " s";
  return size >= 1e3 ? digits(microseconds / 1e3) + " ms" : digits(microseconds) + " µs";
}

function formatBytes(bytes) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes, at = 0;
  while (value >= 1024 && at < names.length - 1) value /= 1024, ++at;
  return at === 0 ? bytes + " B" : value.toFixed(value < 10 ? 2 : 1) + " " + names[at];
}

/// What the page says about a bar: [term, text or list of bars].
function describe(bar) {
  const rows = [];
  const say = (term, value) => (value || value === 0) && rows.push([term, value]);
  say("unit", unitName(bar.unit));
  say("phase", bar.phase === "none" ? "" : bar.phase);
  const rounded = bar.bytes < 1024 ? "" : ` (${formatBytes(bar.bytes)})`;
  if (bar.bytes) say("bytes", bar.bytes.toLocaleString("en") + rounded);
  const own = bar.original ?? bar;
  if (bar.kind === "measured") {
    say("measured", timesOf(own));
    if (own.started !== undefined) say("started", formatTime(own.started));
    if (own.predicted) say("predicted", timesOf(own.predicted));
  } else {
    say("predicted", timesOf(bar));
    const measured = currentMeasured().filter(other => other.predicted === bar);
    if (measured.length) say("measured", measured.map(timesOf).join("; "));
  }
  bar.notes?.forEach(([term, value]) => say(term, typeof value === "number" ? formatTime(value / 1000) : value));
  say("why not earlier", bar.reason);
  if (bar.before.length) rows.push(["needs", bar.before]);
  if (bar.after.length) rows.push(["needed by", bar.after]);
  return rows;
}

function timesOf(bar) {
  return `${formatTime(bar.end - bar.begin)} (${formatTime(bar.begin)} to ${formatTime(bar.end)})`;
}
