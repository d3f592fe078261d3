'use strict';
// Reads the data of run_report.h: runs with settings, figures by step and events.

// Lines of logs; before each log a line with its name. A line that a killed run left incomplete is left out.
function readRuns(text) {
  const runs = [];
  for (const line of text.split('\n')) {
    let entry = null;
    try {
      entry = JSON.parse(line);
    } catch {}
    if (entry?.run !== undefined)
      runs.push({ name: entry.run, page: entry, settings: {}, series: {}, events: [], last: 0 });
    else if (entry)
      take(runs.at(-1), entry);
  }
  return runs;
}

function take(run, entry) {
  if (entry.settings)
    return flatten(run.settings, '', entry.settings);
  if (Number.isInteger(entry.step)) {
    run.last = entry.step;
    for (const [key, value] of Object.entries(entry))
      takeFigure(run, entry.step, key, value);
  }
  takeEvent(run, entry);
}

// Objects in objects become names with dots. Settings have two levels.
function flatten(settings, prefix, object) {
  for (const [key, value] of Object.entries(object))
    if (!prefix && value && typeof value === 'object' && !Array.isArray(value))
      flatten(settings, key + '.', value);
    else
      settings[prefix + key] = value;
}

function takeFigure(run, step, key, value) {
  if (Array.isArray(value))
    value.forEach((one, index) => takeFigure(run, step, `${key}.${index}`, one));
  else if (typeof value === 'number' && key !== 'step')
    (run.series[key] ??= []).push([step, value]);
}

function takeEvent(run, entry) {
  const add = (step, text) => run.events.push([step ?? run.last, text]);
  if ('skipped_step' in entry)
    add(entry.skipped_step, `skipped: ${entry.why ?? ''}`);
  if ('note' in entry)
    add(run.last, entry.note);
  if (entry.checkpoint)
    add(entry.checkpoint.step, `checkpoint ${entry.checkpoint.path ?? ''}`);
  if (entry.straggler)
    add(entry.straggler.step, `rank ${entry.straggler.rank} is slower than the others`);
  if (entry.resumed)
    resume(run, entry.resumed, add);
}

// Steps after the checkpoint that a run goes on from are computed again.
function resume(run, resumed, add) {
  const kept = Object.entries(run.series).map(([key, points]) => [key, points.filter(point => point[0] <= resumed.step)]);
  run.series = Object.fromEntries(kept.filter(([, points]) => points.length));
  run.last = resumed.step;
  add(resumed.step, `resumed ${resumed.checkpoint ?? ''}`);
}
