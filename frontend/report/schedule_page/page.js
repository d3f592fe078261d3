"use strict";
// The page around the drawing: zoom and pan, hover and selection, search, profiles, the lists below.
//
// Whatever comes from the model or from a file is put in with textContent.

const byId = id => document.getElementById(id);
const tip = byId("tip");

/// Profiles that were opened, and the step of them that is shown.
const measured = { profiles: [], profile: null, step: null, stretch: 1 };
function currentMeasured() { return measured.step ? measured.step.bars : []; }

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// ---- zoom and pan ----

function show(begin, end) {
  const whole = extent(), least = whole / 1e6;
  let width = Math.min(Math.max(end - begin, least), whole * 1.02);
  view.begin = Math.min(Math.max(begin, -whole * 0.01), whole * 1.01 - width);
  view.end = view.begin + width;
  redraw();
}

function zoom(factor, around = (view.begin + view.end) / 2) {
  show(around - (around - view.begin) * factor, around + (view.end - around) * factor);
}

function pan(share) {
  const width = (view.end - view.begin) * share;
  show(view.begin + width, view.end + width);
}

function fit() { show(-extent() * 0.01, extent() * 1.01); }

function showBar(bar) {
  const width = Math.max((bar.end - bar.begin) * 12, (view.end - view.begin) / 4), middle = (bar.begin + bar.end) / 2;
  if (bar.begin < view.begin || bar.end > view.end) show(middle - width / 2, middle + width / 2);
  redraw();
}

function wheel(event) {
  event.preventDefault();
  hideTip();
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
    return pan((event.deltaX || event.deltaY) / view.width);
  zoom(Math.exp(Math.max(-300, Math.min(300, event.deltaY)) / 350), timeAt(event.offsetX));
}

function listenToPointer(canvas) {
  let drag = null;
  canvas.addEventListener("wheel", wheel, { passive: false });
  canvas.addEventListener("pointerdown", event => {
    drag = { x: event.clientX, begin: view.begin, end: view.end, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", event => {
    if (!drag) return hoverAt(canvas, event);
    const shift = (drag.x - event.clientX) / plotWidth() * (drag.end - drag.begin);
    drag.moved ||= Math.abs(drag.x - event.clientX) > 3;
    if (drag.moved) hideTip(), show(drag.begin + shift, drag.end + shift);
  });
  canvas.addEventListener("pointerup", event => {
    if (drag && !drag.moved && canvas === timeline) select(barAt(event.offsetX, event.offsetY));
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("dblclick", event => {
    const bar = canvas === timeline && barAt(event.offsetX, event.offsetY);
    if (bar) show(bar.begin - (bar.end - bar.begin) * 0.15, bar.end + (bar.end - bar.begin) * 0.15);
  });
}

// ---- hover and selection ----

function hoverAt(canvas, event) {
  if (canvas === memory) return hoverMemory(event);
  const bar = barAt(event.offsetX, event.offsetY);
  if (bar !== view.hover) {
    view.hover = bar;
    redraw();
  }
  if (!bar) return hideTip();
  const list = rowsOf(describe(bar), bars => {
    const names = bars.slice(0, 6).map(other => other.name);
    return element("dd", names.join(", ") + (bars.length > 6 ? ` and ${bars.length - 6} more` : ""));
  });
  showTip(event, element("div", bar.name, "name"), list);
}

function hoverMemory(event) {
  const time = timeAt(event.offsetX), { memory: curve } = schedule;
  const at = upperBound(curve.time, time) - 1;
  if (event.offsetX < labelWidth || at < 0 || time > schedule.step_us) return hideTip();
  const bytes = curve.bytes[at];
  const running = predicted.sections[firstEndingAfter(predicted.sections, time)];
  const rows = [["bytes", bytes.toLocaleString("en")], ["at", formatTime(time)], ["in", running ? running.name : ""]];
  showTip(event, element("div", formatBytes(bytes) + " live", "name"), rowsOf(rows));
}

/// A list of terms; `linked` makes the cell of rows that name bars.
function rowsOf(rows, linked) {
  const list = element("dl", undefined, "rows");
  for (const [term, value] of rows)
    list.append(element("dt", term), Array.isArray(value) ? linked(value) : element("dd", String(value)));
  return list;
}

function showTip(event, ...children) {
  tip.replaceChildren(...children);
  tip.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = tip;
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8)) + "px";
  const below = event.clientY + 18, above = Math.max(4, event.clientY - height - 12);
  tip.style.top = (below + height > innerHeight ? above : below) + "px";
}

function hideTip() {
  tip.hidden = true;
  if (view.hover) view.hover = null, redraw();
}

function select(bar) {
  view.selected = bar;
  const panel = byId("details");
  panel.replaceChildren(element("h2", "Selected"));
  if (!bar) panel.append(element("p", "Click an operation to keep its details here.", "hint"));
  else panel.append(element("div", bar.name, "name"), rowsOf(describe(bar), linkedCell));
  redraw();
}

function linkedCell(bars) {
  const cell = element("dd");
  for (const bar of bars.slice(0, 60)) {
    const button = element("button", bar.name);
    button.addEventListener("click", () => { select(bar); showBar(bar); });
    cell.append(button);
  }
  if (bars.length > 60) cell.append(`and ${bars.length - 60} more`);
  return cell;
}

/// The next or previous marked bar of the selected one's strip; of the whole page's operations at first.
function selectNeighbour(direction) {
  const strip = view.strips[view.selected?.strip] ??
    view.strips.find(candidate => candidate.bars[0].kind !== "section") ?? view.strips[0];
  if (!strip) return;
  let at = view.selected ? strip.bars.indexOf(view.selected) : direction > 0 ? -1 : strip.bars.length;
  do at += direction; while (at >= 0 && at < strip.bars.length && !isMarked(strip.bars[at]));
  if (strip.bars[at]) select(strip.bars[at]), showBar(strip.bars[at]);
}

// ---- search and legend ----

function buildLegend() {
  const legend = byId("legend");
  schedule.units.forEach((unit, index) => {
    const item = element("li"), button = element("button"), swatch = element("i");
    swatch.dataset.unit = index;
    button.setAttribute("aria-pressed", "false");
    button.title = unit.name + (unit.strategy ? ": " + unit.strategy : "");
    button.append(swatch, element("span", unit.name));
    button.addEventListener("click", () => toggleUnit(index));
    item.append(button);
    legend.append(item);
  });
}

function toggleUnit(index) {
  const marked = view.marked ?? new Set();
  if (!marked.delete(index)) marked.add(index);
  view.marked = marked.size ? marked : null;
  updateMarks();
}

function updateMarks() {
  byId("legend").querySelectorAll("button").forEach((button, index) =>
    button.setAttribute("aria-pressed", String(view.marked?.has(index) ?? false)));
  const count = predicted.events.filter(isMarked).length;
  byId("found").textContent = view.query || view.marked ? `${count} of ${predicted.events.length}` : "";
  redraw();
}

function clearMarks() {
  byId("search").value = view.query = "";
  view.marked = null;
  updateMarks();
}

// ---- profiles ----

function complain(text) {
  byId("message").textContent = text;
  byId("message").hidden = !text;
}

/// Pairs of a name and what gives the trace of that name.
async function openTraces(traces) {
  const problems = [];
  for (const [name, read] of traces)
    try {
      addProfile(readProfile(await read()));
    } catch (error) {
      problems.push(`${name}: ${error.message}`);
    }
  complain(problems.join("\n"));
}

function openFiles(files) {
  return openTraces([...files].map(file => [file.name, async () => JSON.parse(await file.text())]));
}

function addProfile(profile) {
  measured.profiles = measured.profiles.filter(other => other.rank !== profile.rank).concat(profile);
  measured.profiles.sort((a, b) => a.rank - b.rank);
  document.querySelectorAll(".measured").forEach(label => { label.hidden = false; });
  fillSelect(byId("rank"), measured.profiles.map(other => other.rank), profile.rank);
  chooseRank(profile.rank);
}

function fillSelect(select, values, chosen) {
  select.replaceChildren(...values.map(value => {
    const option = element("option", String(value));
    option.value = value;
    return option;
  }));
  select.value = chosen;
}

/// The step of middle length, until another is asked for.
function chooseRank(rank) {
  measured.profile = measured.profiles.find(profile => profile.rank === rank);
  const { steps: all } = measured.profile, steps = [...all.keys()].sort((a, b) => a - b);
  const byLength = [...steps].sort((a, b) => all.get(a).duration - all.get(b).duration);
  fillSelect(byId("step"), steps, byLength[byLength.length >> 1]);
  chooseStep();
}

function chooseStep() {
  measured.step = measured.profile.steps.get(Number(byId("step").value));
  const isStretched = byId("scale").checked && measured.step.duration > 0;
  measured.stretch = isStretched ? schedule.step_us / measured.step.duration : 1;
  hideTip();
  view.strips = makeStrips(measured.step, measured.stretch);
  select(null);
  fillFacts();
  fit();
}

// ---- what stands above and below ----

function fillFacts() {
  const facts = [...schedule.facts];
  for (const part of schedule.functions)
    if (part.calls > 1) facts.push([part.name, `${part.calls} times in a step, drawn once`]);
  facts.push(["predicted step", formatTime(schedule.step_us)]);
  facts.push(["predicted exposed", formatTime(schedule.exposed_ns / 1000)]);
  if (measured.step) {
    let waits = 0;
    for (const bar of measured.step.bars) if (bar.measures === "wait") waits += bar.end - bar.begin;
    facts.push(["measured step", formatTime(measured.step.duration)], ["measured in waits", formatTime(waits)]);
  }
  byId("facts").replaceChildren(...facts.map(([term, value]) => {
    const pair = element("div");
    pair.append(element("dt", term), element("dd", value));
    return pair;
  }));
}

function fillPeak() {
  const { peak, live, left_out: leftOut, arena_bytes: arenaBytes } = schedule.memory;
  const where = [peak.unit && "unit " + peak.unit, peak.node, peak.function].filter(Boolean).join(", ");
  byId("peakText").textContent = `${peak.bytes.toLocaleString("en")} bytes (${formatBytes(peak.bytes)}) at ${where}` +
    (peak.in_step ? ` (${formatTime(peak.time)})` : ", outside the step above") +
    (arenaBytes ? `; the arenas hold ${arenaBytes.toLocaleString("en")}` : "");
  const rows = live.map(value => tableRow(value.name, value.class, unitName(value.unit), value.bytes));
  if (leftOut.count) rows.push(tableRow(`${leftOut.count} smaller ones`, "", "", leftOut.bytes));
  byId("live").tBodies[0].replaceChildren(...rows);
  byId("toPeak").disabled = !peak.in_step;
}

function tableRow(name, memoryClass, unit, bytes) {
  const row = element("tr");
  for (const text of [name, memoryClass, unit]) row.append(element("td", text));
  row.append(element("td", bytes.toLocaleString("en"), "number"));
  return row;
}

function goToPeak() {
  const { peak } = schedule.memory, width = extent() / 10;
  if (peak.in_step) show(peak.time - width / 2, peak.time + width / 2);
}

function applyTheme() {
  document.documentElement.dataset.theme = view.dark ? "dark" : "light";
  for (const swatch of document.querySelectorAll("#legend i"))
    swatch.style.background = colorOf(Number(swatch.dataset.unit));
  redraw();
}

// ---- events ----

const keys = {
  "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), "0": fit, m: goToPeak,
  ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), n: () => selectNeighbour(1), p: () => selectNeighbour(-1),
  Enter: () => view.hover && select(view.hover), "/": () => byId("search").focus(),
  Escape: () => { select(null); clearMarks(); byId("search").blur(); },
};

function listen() {
  listenToPointer(timeline);
  listenToPointer(memory);
  addEventListener("resize", redraw);
  addEventListener("keydown", event => {
    const isTyping = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
    const isPressing = event.target.tagName === "BUTTON" && event.key === "Enter";
    if (event.ctrlKey || event.metaKey || event.altKey || isPressing || !keys[event.key]) return;
    if (isTyping && event.key !== "Escape") return;
    event.preventDefault();
    keys[event.key]();
  });
  byId("search").addEventListener("input", event => {
    view.query = event.target.value.trim().toLowerCase();
    updateMarks();
  });
  byId("zoomIn").addEventListener("click", () => zoom(0.5));
  byId("zoomOut").addEventListener("click", () => zoom(2));
  byId("fit").addEventListener("click", fit);
  byId("toPeak").addEventListener("click", goToPeak);
  byId("theme").addEventListener("click", () => { view.dark = !view.dark; applyTheme(); });
  byId("load").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", async event => {
    await openFiles(event.target.files);
    event.target.value = ""; // so that the same file can be opened again
  });
  byId("rank").addEventListener("change", event => chooseRank(Number(event.target.value)));
  byId("step").addEventListener("change", chooseStep);
  byId("scale").addEventListener("change", chooseStep);
  addEventListener("dragover", event => { event.preventDefault(); byId("drop").hidden = false; });
  addEventListener("dragleave", event => { if (!event.relatedTarget) byId("drop").hidden = true; });
  addEventListener("drop", event => {
    event.preventDefault();
    byId("drop").hidden = true;
    openFiles(event.dataTransfer.files);
  });
}

document.title = "schedule of " + schedule.title;
byId("title").textContent = schedule.title;
buildLegend();
fillFacts();
fillPeak();
view.strips = makeStrips(null, 1);
listen();
applyTheme();
fit();
openTraces(JSON.parse(byId("profiles").textContent).map((trace, i) => [`profile ${i + 1} of this page`, () => trace]));
