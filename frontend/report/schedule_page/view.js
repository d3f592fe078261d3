"use strict";
// Drawing: two canvases over one time axis.

const timeline = document.getElementById("timeline");
const memory = document.getElementById("memory");
const labelWidth = 92, axisHeight = 24, stripGap = 3, laneGap = 10, memoryHeight = 150, rightMargin = 12;

const view = {
  begin: 0, end: 1,          ///< microseconds in sight
  width: 800,                ///< of both canvases; asking the page for it costs more than drawing a bar
  strips: [], tops: [],      ///< rows, and where each begins
  hover: null, selected: null,
  marked: null,              ///< units not greyed out; null: all
  query: "",
  dark: matchMedia("(prefers-color-scheme: dark)").matches,
};

function extent() {
  return Math.max(schedule.step_us, measured.step ? measured.step.duration * measured.stretch : 0, 1e-3);
}

const plotWidth = () => view.width - labelWidth - rightMargin;
const xOf = time => labelWidth + (time - view.begin) / (view.end - view.begin) * plotWidth();
const timeAt = x => view.begin + (x - labelWidth) / plotWidth() * (view.end - view.begin);

/// Equal lightness for every unit, so that text on a bar and bars on the ground keep their contrast; neighbours differ
/// by the golden angle.
function colorOf(unit) {
  const key = view.dark ? -2 - unit : unit;
  if (!colors.has(key)) {
    const [lightness, chroma] = view.dark ? [0.76, 0.12] : [0.51, 0.13];
    colors.set(key, hexOf(`oklch(${lightness} ${unit < 0 ? 0 : chroma} ${(unit * 137.508 + 250) % 360})`));
  }
  return colors.get(key);
}
const colors = new Map();

/// A canvas takes #rrggbb many times faster than other notations.
function hexOf(color) {
  const context = hexOf.context ??= new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  context.fillStyle = color;
  context.fillRect(0, 0, 1, 1);
  const parts = [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  return "#" + parts.map(part => part.toString(16).padStart(2, "0")).join("");
}

function themeColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

/// A context in CSS pixels on a cleared canvas.
function prepare(canvas, height) {
  const ratio = devicePixelRatio || 1, width = view.width = canvas.clientWidth;
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  return context;
}

function layOut() {
  view.tops = [];
  let top = axisHeight;
  view.strips.forEach((strip, i) => {
    if (i > 0) top += strip.lane === view.strips[i - 1].lane ? stripGap : laneGap;
    view.tops.push(top);
    top += strip.height;
  });
  return top + 6;
}

/// A round step of at least `least`.
function tickStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map(factor => factor * power).find(step => step >= least);
}

function drawAxis(context, height) {
  const step = tickStep((view.end - view.begin) / Math.max(2, plotWidth() / 90));
  context.strokeStyle = themeColor("line");
  context.fillStyle = themeColor("quiet");
  context.textAlign = "center";
  for (let k = Math.ceil(view.begin / step); k * step <= view.end; ++k) {
    const x = Math.round(xOf(k * step)) + 0.5;
    context.beginPath();
    context.moveTo(x, axisHeight - 4);
    context.lineTo(x, height);
    context.stroke();
    context.fillText(formatTime(k * step), x, 10);
  }
}

function isMarked(bar) {
  if (view.marked && !view.marked.has(bar.unit)) return false;
  return !view.query || [bar.name, unitName(bar.unit)].some(text => text.toLowerCase().includes(view.query));
}

function drawStrip(context, strip, top, theme) {
  const right = view.width - rightMargin, { bars } = strip;
  let drawnTo = -1;
  for (let i = firstEndingAfter(bars, view.begin); i < bars.length && bars[i].begin <= view.end; ++i) {
    const bar = bars[i];
    const left = Math.max(labelWidth, xOf(bar.begin)), end = Math.min(right, xOf(bar.end));
    // Many bars in one pixel: the first of them stands for all.
    if (end <= drawnTo + 1 && end - left < 1 && bar !== view.hover && bar !== view.selected) continue;
    drawBar(context, bar, left, top, Math.max(1, end - left), strip.height, theme);
    drawnTo = Math.max(drawnTo, end);
  }
  context.globalAlpha = 1;
}

function drawBar(context, bar, left, top, width, height, theme) {
  const isHollow = bar.kind === "measured" || bar.kind === "wait";
  const isWait = bar.kind === "wait" || bar.measures === "wait";
  const alpha = isMarked(bar) ? 1 : 0.14;
  context.fillStyle = isWait ? theme.wait : colorOf(bar.unit);
  context.globalAlpha = isHollow && width > 3 ? alpha * 0.3 : alpha;
  context.fillRect(left, top, width > 3 ? width - 0.5 : width, height);
  context.globalAlpha = alpha;
  if (isHollow && width > 3) {
    context.strokeStyle = isWait ? theme.wait : colorOf(bar.unit);
    context.strokeRect(left + 0.5, top + 0.5, width - 1.5, height - 1);
  }
  if (width > 28) {
    context.fillStyle = isHollow ? theme.text : theme.ground;
    context.fillText(fitted(context, bar.label, width - 8), left + 4, top + height / 2 + 0.5);
  }
}

/// As much of `text` as fits, by the width of its characters on average.
function fitted(context, text, width) {
  const most = Math.floor(width / 5.2);
  let short = text.length <= most ? text : text.slice(0, Math.max(0, most - 1)) + "…";
  while (short.length > 2 && context.measureText(short).width > width) short = short.slice(0, -2) + "…";
  return short;
}

/// Where a bar is drawn: {x0, x1, y0, y1}, or null when its strip is not on the page.
function boxOf(bar) {
  if (bar.strip === undefined) return null;
  const top = view.tops[bar.strip];
  return { x0: xOf(bar.begin), x1: xOf(bar.end), y0: top, y1: top + view.strips[bar.strip].height };
}

/// Curves from the end of what a bar needs to its beginning, and on to what needs it.
function drawDependencies(context, bar, theme) {
  const box = boxOf(bar);
  if (!box) return;
  context.save();
  context.beginPath();
  context.rect(labelWidth, axisHeight, plotWidth(), timeline.clientHeight);
  context.clip();
  context.strokeStyle = theme.text;
  context.lineWidth = 2;
  context.strokeRect(box.x0 - 1, box.y0 - 1, Math.max(2, box.x1 - box.x0) + 1.5, box.y1 - box.y0 + 2);
  context.lineWidth = 1.5;
  for (const [others, color, isInto] of [[bar.before, theme.accent, true], [bar.after, theme.quiet, false]])
    for (const other of others.slice(0, 40)) {
      const end = boxOf(other);
      if (!end) continue;
      const [a, b] = isInto ? [end, box] : [box, end];
      // A wait is there before what it waits for is done.
      const isWait = (isInto ? bar : other).kind === "wait";
      drawArrow(context, a.x1, (a.y0 + a.y1) / 2, isWait ? b.x1 : b.x0, (b.y0 + b.y1) / 2, color);
    }
  context.restore();
}

function drawArrow(context, x0, y0, x1, y1, color) {
  const bend = Math.max(18, Math.abs(x1 - x0) / 3);
  context.strokeStyle = context.fillStyle = color;
  context.beginPath();
  context.moveTo(x0, y0);
  context.bezierCurveTo(x0 + bend, y0 === y1 ? y0 - 26 : y0, x1 - bend, y0 === y1 ? y1 - 26 : y1, x1, y1);
  context.stroke();
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x1 - 7, y1 - 4);
  context.lineTo(x1 - 7, y1 + 4);
  context.fill();
}

function drawTimeline() {
  const height = layOut();
  const context = prepare(timeline, height);
  const theme = Object.fromEntries(["text", "ground", "wait", "accent", "quiet"].map(name => [name, themeColor(name)]));
  drawAxis(context, height);
  context.textAlign = "left";
  view.strips.forEach((strip, i) => {
    context.fillStyle = theme.text;
    context.fillText(strip.label, 0, view.tops[i] + strip.height / 2);
    drawStrip(context, strip, view.tops[i], theme);
  });
  for (const bar of new Set([view.selected, view.hover])) if (bar) drawDependencies(context, bar, theme);
}

/// The most bytes alive in each pixel column; -1 before and after the step.
function memoryColumns() {
  const { time, bytes } = schedule.memory, width = Math.ceil(plotWidth());
  const columns = new Float64Array(width).fill(-1);
  let at = Math.max(0, upperBound(time, view.begin) - 1), live = bytes[at] ?? 0;
  for (let x = 0; x < width; ++x) {
    const until = timeAt(labelWidth + x + 1);
    let most = live;
    for (; at < time.length && time[at] < until; ++at) {
      live = bytes[at];
      most = Math.max(most, live);
    }
    const isOutside = until < 0 || timeAt(labelWidth + x) > schedule.step_us;
    columns[x] = isOutside ? -1 : most;
  }
  return columns;
}

function upperBound(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function drawMemory() {
  const context = prepare(memory, memoryHeight);
  const { arena_bytes: arenaBytes, permanent_bytes: permanentBytes, peak } = schedule.memory;
  const top = 20, bottom = memoryHeight - 8, most = Math.max(1, arenaBytes, peak.bytes);
  const yOf = bytes => bottom - bytes / most * (bottom - top);
  drawMemoryScale(context, yOf, most);
  context.beginPath();
  let first = -1, last = 0;
  memoryColumns().forEach((bytes, x) => {
    if (bytes < 0) return;
    if (first < 0) context.moveTo(labelWidth + (first = x), bottom);
    context.lineTo(labelWidth + x, yOf(bytes));
    context.lineTo(labelWidth + (last = x + 1), yOf(bytes));
  });
  context.lineTo(labelWidth + last, bottom);
  context.closePath();
  context.fillStyle = themeColor("curve-fill");
  context.fill();
  context.strokeStyle = themeColor("curve");
  context.stroke();
  drawMemoryLine(context, yOf(permanentBytes), themeColor("quiet"), "kept over steps " + formatBytes(permanentBytes));
  drawPeak(context, yOf);
}

function drawMemoryScale(context, yOf, most) {
  context.fillStyle = themeColor("text");
  context.textAlign = "left";
  context.fillText("memory", 0, 10);
  context.fillStyle = themeColor("quiet");
  context.fillText(formatBytes(most), 0, yOf(most) + 6);
  context.fillText("0", 0, yOf(0) - 2);
}

function drawMemoryLine(context, y, color, label) {
  context.save();
  context.setLineDash([4, 4]);
  context.strokeStyle = context.fillStyle = color;
  context.beginPath();
  context.moveTo(labelWidth, y);
  context.lineTo(view.width - rightMargin, y);
  context.stroke();
  context.fillStyle = themeColor("text");
  context.textAlign = "right";
  context.fillText(label, view.width - rightMargin - 4, y + 9);
  context.restore();
}

function drawPeak(context, yOf) {
  const { peak } = schedule.memory;
  if (!peak.in_step || peak.time < view.begin || peak.time > view.end) return;
  const x = xOf(peak.time), y = yOf(peak.bytes);
  context.strokeStyle = context.fillStyle = themeColor("peak");
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x, yOf(0));
  context.stroke();
  context.beginPath();
  context.arc(x, y, 4, 0, 7);
  context.fill();
  const isRight = x > view.width / 2;
  context.textAlign = isRight ? "right" : "left";
  context.fillText("peak " + formatBytes(peak.bytes), x + (isRight ? -8 : 8), Math.max(8, y - 10));
}

let isDrawPending = false;
/// Draws once before the next frame, however often it is asked for.
function redraw() {
  if (isDrawPending) return;
  isDrawPending = true;
  requestAnimationFrame(() => {
    isDrawPending = false;
    drawTimeline();
    drawMemory();
  });
}

/// The bar under a point of the timeline, with a few pixels of tolerance for narrow ones.
function barAt(x, y) {
  const at = view.strips.findIndex((strip, i) => y >= view.tops[i] && y < view.tops[i] + strip.height);
  if (at < 0 || x < labelWidth) return null;
  const { bars } = view.strips[at], time = timeAt(x), slack = timeAt(x + 3) - time;
  let best = null, distance = slack;
  for (let i = firstEndingAfter(bars, time - slack); i < bars.length && bars[i].begin <= time + slack; ++i) {
    const away = Math.max(bars[i].begin - time, time - bars[i].end, 0);
    if (away < distance || (away === 0 && distance === 0)) best = bars[i], distance = away;
  }
  return best;
}
