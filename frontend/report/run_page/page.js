'use strict';
// Draws the runs that log.js reads: one chart per group of figures, all runs in it.

const data = { runs: readRuns(document.getElementById('data').textContent) };
const SVG = 'http://www.w3.org/2000/svg';
const COLORS = ['#0b57d0', '#b3261e', '#1e7d34', '#8e44ad', '#b26a00', '#00838f', '#6d4c41', '#c2185b'];
// Of one chart: figures, the first solid, the others dashed. Charts without data are left out.
const CHARTS = [
  { title: 'loss', figures: ['loss', 'val_loss'], note: 'dashed: validation', canBeLogarithmic: true },
  { title: 'learning rate', figures: ['lr'] },
  { title: 'gradient norm', figures: ['grad_norm'], canBeLogarithmic: true },
  { title: 'validation accuracy', figures: ['val_percent', ...figuresLike(/^val_top\d+_percent$/)], unit: '%', note: 'dashed: top k' },
  { title: 'perplexity', figures: ['val_perplexity'], canBeLogarithmic: true },
  { title: 'tokens per second', figures: ['tokens_per_s'] },
  { title: 'samples per second', figures: ['samples_per_s'] },
  { title: 'step time', figures: ['step_ms', 'compute_ms'], unit: 'ms', note: 'dashed: computation alone' },
  { title: 'exposed communication', figures: ['comm_exposed_ms', 'predicted_comm_exposed_ms'], unit: 'ms', note: 'dashed: predicted' },
  { title: 'wait for slower ranks', figures: ['comm_skew_ms'], unit: 'ms' },
  { title: 'reading samples', figures: ['data_ms'], unit: 'ms' },
  { title: 'time without waiting, per rank', figures: figuresLike(/^rank_busy_ms\.\d+$/), unit: 'ms', note: 'one curve per rank', isPerRank: true },
  { title: 'MFU', figures: ['mfu'], scale: 100, unit: '%' },
  { title: 'loss scale', figures: ['loss_scale'] },
  { title: 'memory of a rank', figures: ['memory_peak_bytes', 'memory_planned_bytes'], scale: 1 / 2 ** 30, unit: 'GiB', note: 'dashed: planned' },
];
const WIDTH = 560, HEIGHT = 220, LEFT = 58, RIGHT = 24, TOP = 8, BOTTOM = 22;

// The parts of a step, of which the last is the rest.
const PARTS = [['comm_exposed_ms', 'exposed communication'], ['comm_skew_ms', 'wait for slower ranks'],
  ['data_ms', 'reading samples'], ['step_ms', 'computation']];
const RELOAD_SECONDS = 5;

const hidden = new Set();
let smoothing = 0, isLogarithmic = false;

// The figures of that form in any run.
function figuresLike(form) {
  return [...new Set(data.runs.flatMap(run => Object.keys(run.series)))].filter(figure => form.test(figure));
}

function element(name, attributes = {}, text = '') {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes))
    made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

function html(name, text = '', className = '') {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = className;
  return made;
}

const color = run => COLORS[run % COLORS.length];
// One run has a color for each rank.
const colorOf = curve => color(curve.isPerRank && data.runs.length === 1 ? curve.order : curve.run);

function short(value) {
  if (value === 0)
    return '0';
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3)
    return value.toExponential(2);
  return Number(value.toPrecision(4)).toLocaleString('en-US', { maximumSignificantDigits: 4 });
}

// Exponential average, corrected at its begin.
function smoothed(points) {
  let sum = 0, weight = 0;
  return points.map(([step, value]) => {
    sum = smoothing * sum + (1 - smoothing) * value;
    weight = smoothing * weight + (1 - smoothing);
    return [step, sum / weight];
  });
}

// About `count` round numbers in [low, high].
function ticks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(candidate => candidate >= raw);
  const result = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step)
    result.push(at);
  return result;
}

function pointsOf(run, figure, chart) {
  return (data.runs[run].series[figure] || []).map(([step, value]) => [step, value * (chart.scale || 1)]);
}

function curvesOf(chart) {
  const curves = [];
  data.runs.forEach((run, index) => chart.figures.forEach((figure, order) => {
    const points = pointsOf(index, figure, chart);
    if (points.length && !hidden.has(index))
      curves.push({ run: index, figure, points, order, isPerRank: chart.isPerRank, isDashed: order > 0 && !chart.isPerRank });
  }));
  return curves;
}

function draw(chart, svg) {
  svg.replaceChildren();
  const curves = curvesOf(chart), isLog = isLogarithmic && chart.canBeLogarithmic;
  const all = curves.flatMap(curve => curve.points);
  if (!all.length)
    return;
  const transform = value => isLog ? Math.log10(Math.max(value, 1e-12)) : value;
  const steps = all.map(point => point[0]), values = all.map(point => transform(point[1]));
  const reduce = (list, pick) => list.reduce((a, b) => pick(a, b));
  const first = reduce(steps, Math.min), last = reduce(steps, Math.max);
  let low = reduce(values, Math.min), high = reduce(values, Math.max);
  const margin = (high - low) * 0.05 || Math.abs(high) * 0.05 || 1;
  low -= margin;
  high += margin;
  const x = step => LEFT + (WIDTH - LEFT - RIGHT) * (last === first ? 0.5 : (step - first) / (last - first));
  const y = value => HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (transform(value) - low) / (high - low);
  for (const tick of ticks(low, high, 5)) {
    const at = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (tick - low) / (high - low);
    svg.append(element('line', { class: 'grid', x1: LEFT, x2: WIDTH - RIGHT, y1: at, y2: at }));
    svg.append(element('text', { x: LEFT - 6, y: at + 4, 'text-anchor': 'end' }, short(isLog ? 10 ** tick : tick)));
  }
  for (const tick of ticks(first, last, 6))
    svg.append(element('text', { x: x(tick), y: HEIGHT - 6, 'text-anchor': 'middle' }, short(tick)));
  const path = (points, className, curve) => svg.append(points.length > 1
    ? element('polyline', { class: className, stroke: colorOf(curve), points: points.map(([s, v]) => `${x(s).toFixed(1)},${y(v).toFixed(1)}`).join(' ') })
    : element('circle', { class: className, fill: colorOf(curve), r: 3, cx: x(points[0][0]), cy: y(points[0][1]) }));
  for (const curve of curves) {
    const style = 'curve' + (curve.isDashed ? ' dashed' : '');
    if (smoothing > 0 && curve.points.length > 2) {
      path(curve.points, style + ' raw', curve);
      path(smoothed(curve.points), style, curve);
    } else {
      path(curve.points, style, curve);
    }
  }
  svg.onmousemove = event => showTip(event, svg, curves, first, last);
  svg.onmouseleave = () => { document.getElementById('tip').hidden = true; };
}

// The figures at the step under the pointer.
function showTip(event, svg, curves, first, last) {
  const box = svg.getBoundingClientRect();
  const at = (event.clientX - box.left) / box.width * WIDTH;
  const step = first + (last - first) * Math.min(1, Math.max(0, (at - LEFT) / (WIDTH - LEFT - RIGHT)));
  const lines = curves.map(curve => {
    const near = curve.points.reduce((a, b) => Math.abs(b[0] - step) < Math.abs(a[0] - step) ? b : a);
    return `${data.runs[curve.run].name}  ${curve.figure} ${short(near[1])} at step ${near[0]}`;
  });
  const tip = document.getElementById('tip');
  tip.textContent = lines.join('\n');
  tip.hidden = false;
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';
  tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8) + 'px';
}

const drawn = [];
function redraw() {
  for (const [chart, svg] of drawn)
    draw(chart, svg);
}

function makeCharts() {
  for (const chart of CHARTS) {
    if (!curvesOf(chart).length)
      continue;
    const figure = html('figure'), caption = html('figcaption', chart.title + (chart.unit ? ` (${chart.unit})` : ''));
    const hasSecond = chart.note && data.runs.some(run => chart.figures.slice(1).some(name => run.series[name]));
    if (hasSecond)
      caption.append(html('small', chart.note));
    const svg = element('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': chart.title });
    figure.append(caption, svg);
    document.getElementById('charts').append(figure);
    drawn.push([chart, svg]);
  }
  redraw();
}

function makeLegend() {
  data.runs.forEach((run, index) => {
    const item = html('li'), button = html('button'), mark = html('i');
    mark.style.background = color(index);
    button.append(mark, run.name);
    button.setAttribute('aria-pressed', String(!hidden.has(index)));
    button.onclick = () => {
      hidden.has(index) ? hidden.delete(index) : hidden.add(index);
      button.setAttribute('aria-pressed', String(!hidden.has(index)));
      redraw();
    };
    item.append(button);
    document.getElementById('legend').append(item);
  });
}

function row(table, cells, name = 'td') {
  const made = html('tr');
  for (const cell of cells)
    made.append(html(name, cell, name === 'td' && /^[-\d]/.test(cell) ? 'number' : ''));
  table.append(made);
}

function figureText(name, value) {
  return name.endsWith('_bytes') ? `${(value / 2 ** 30).toFixed(2)} GiB` : short(value);
}

function makeFigures() {
  const table = document.getElementById('figures');
  const names = [...new Set(data.runs.flatMap(run => Object.keys(run.series)))];
  row(table, ['', ...data.runs.map(run => run.name)], 'th');
  for (const name of names)
    row(table, [name, ...data.runs.map(run => run.series[name] ? figureText(name, run.series[name].at(-1)[1]) : '')]);
}

// Of several runs only what differs: the rest is what they have in common.
function makeSettings() {
  const table = document.getElementById('settings'), isOne = data.runs.length === 1;
  const text = value => typeof value === 'string' ? value : JSON.stringify(value);
  const names = [...new Set(data.runs.flatMap(run => Object.keys(run.settings)))].sort();
  const rows = names.map(name => [name, ...data.runs.map(run => name in run.settings ? text(run.settings[name]) : '')])
    .filter(cells => isOne || new Set(cells.slice(1)).size > 1);
  document.getElementById('settingsTitle').textContent = isOne ? 'Settings' : 'Settings that differ';
  row(table, ['', ...data.runs.map(run => run.name)], 'th');
  for (const cells of rows)
    row(table, cells);
  table.parentElement.hidden = !rows.length;
}

// Means over the lines that have them.
function mean(run, figure) {
  const points = run.series[figure] || [];
  return points.reduce((sum, point) => sum + point[1], 0) / (points.length || 1);
}

// Where the time of a step goes, one bar for each run, on one scale.
function makeParts() {
  const runs = data.runs.filter(run => run.series.step_ms && run.series.comm_exposed_ms);
  const longest = Math.max(...runs.map(run => mean(run, 'step_ms')));
  const table = document.getElementById('parts');
  for (const run of runs) {
    const bar = html('div', '', 'bar'), texts = [];
    let rest = mean(run, 'step_ms');
    for (const [order, [figure, title]] of PARTS.entries()) {
      const isRest = order === PARTS.length - 1;
      const size = isRest ? Math.max(rest, 0) : mean(run, figure);
      rest -= size;
      if (!isRest && !run.series[figure])
        continue;
      const part = html('i', '', `part${order}`);
      part.style.width = `${100 * size / longest}%`;
      part.title = title;
      bar.prepend(part);
      texts.unshift([`part${order}`, `${title} ${short(size)} ms`]);
    }
    const cell = html('td'), made = html('tr');
    cell.append(bar);
    for (const [className, text] of texts) {
      const label = html('span', text, 'label');
      label.prepend(html('i', '', className));
      cell.append(label);
    }
    made.append(html('td', run.name), cell);
    table.append(made);
  }
  table.parentElement.hidden = !runs.length;
}

// What a run says of itself that writes its page.
function makeState() {
  const states = data.runs.filter(run => run.page.state);
  for (const { name, last, page } of states) {
    const text = page.state === 'running' ? `running, after step ${last}`
      : page.state === 'finished' ? `finished after step ${last}` : `ended after step ${last}: ${page.why}`;
    const item = html('p', `${name}: ${text}`);
    item.append(html('small', `written ${new Date(page.written_ms).toLocaleString()}`
      + (page.every > 1 ? `; of the log's steps one of ${page.every} is drawn` : '')));
    document.getElementById('state').append(item);
  }
  if (states.some(run => run.page.state === 'running'))
    setTimeout(() => location.reload(), RELOAD_SECONDS * 1000);
}

// A page that reloads keeps what was chosen in it.
function keepChoices() {
  const choices = { smoothing, isLogarithmic, hidden: [...hidden], theme: document.documentElement.dataset.theme };
  try {
    sessionStorage.setItem(location.pathname, JSON.stringify(choices));
  } catch {} // no storage: the choices last until the page reloads
}

function restoreChoices() {
  let choices;
  try {
    choices = JSON.parse(sessionStorage.getItem(location.pathname));
  } catch {}
  if (matchMedia('(prefers-color-scheme: dark)').matches)
    document.documentElement.dataset.theme = 'dark';
  if (!choices)
    return;
  ({ smoothing, isLogarithmic } = choices);
  choices.hidden.forEach(run => hidden.add(run));
  if (choices.theme)
    document.documentElement.dataset.theme = choices.theme;
  document.getElementById('smoothing').value = smoothing;
  document.getElementById('logarithmic').checked = isLogarithmic;
}

function makeEvents() {
  const table = document.getElementById('events');
  const events = data.runs.flatMap(run => run.events.map(([step, text]) => [String(step), run.name, String(text)]));
  row(table, ['step', 'run', 'event'], 'th');
  for (const event of events)
    row(table, event);
  table.parentElement.hidden = !events.length;
}

document.getElementById('smoothing').oninput = event => { smoothing = Number(event.target.value); redraw(); };
document.getElementById('logarithmic').onchange = event => { isLogarithmic = event.target.checked; redraw(); };
document.getElementById('theme').onclick = () => {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === 'dark' ? 'light' : 'dark';
};
addEventListener('pagehide', keepChoices);
restoreChoices();
makeState();
makeLegend();
makeCharts();
makeParts();
makeFigures();
makeSettings();
makeEvents();
