#!/usr/bin/env python3
"""Opens the page of `fsdpc report` in a headless Chromium and uses it: curves, hover, runs, smoothing, tables, themes.

check_report_in_browser.py report.html RUNS [--running] [--screenshots DIR]

--running: the page is that of one run, which goes on.
"""
import argparse
import pathlib
import time

from browser import Browser
from check_in_browser import Page


def curves(page):
    return page.run("return document.querySelectorAll('svg .curve').length")


def check_drawn(page, runs):
    assert page.run("return performance.getEntriesByType('resource').length") == 0, "the page asked for something"
    titles = page.run("return [...document.querySelectorAll('figcaption')].map(caption => caption.firstChild.textContent)")
    for title in ("loss", "learning rate", "step time (ms)", "memory of a rank (GiB)"):
        assert title in titles, titles
    per_chart = page.run("return [...document.querySelectorAll('figure')].map(f => f.querySelectorAll('.curve').length)")
    assert all(count >= runs for count in per_chart), per_chart
    # Texts of the axes are inside of their chart.
    outside = page.run("return [...document.querySelectorAll('svg text')].filter(text => {"
                       "const box = text.getBoundingClientRect(), chart = text.ownerSVGElement.getBoundingClientRect();"
                       "return box.left < chart.left - 1 || box.right > chart.right + 1; }).map(text => text.textContent)")
    assert not outside, outside
    page.shoot("report")


def check_hover(page, runs):
    x, y = page.run("const box = document.querySelector('svg').getBoundingClientRect();"
                    "return [box.left + box.width / 2, box.top + box.height / 2]")
    page.browser.move(x, y)
    page.settle()
    tip = page.run("return document.getElementById('tip').textContent")
    assert tip.count("loss") >= runs and "at step" in tip, tip
    page.shoot("report_hover")


def check_controls(page, runs):
    whole = curves(page)
    page.run("document.querySelector('#legend button').click()")
    page.settle()
    assert curves(page) < whole
    page.run("document.querySelector('#legend button').click()")
    assert curves(page) == whole
    page.run("document.getElementById('smoothing').value = 0.9;"
             "document.getElementById('smoothing').dispatchEvent(new Event('input'))")
    page.settle()
    assert page.run("return document.querySelectorAll('svg .raw').length") > 0
    page.run("document.getElementById('logarithmic').click()")
    page.run("document.getElementById('theme').click()")
    page.shoot("report_smoothed")


def check_tables(page, runs):
    header = page.run("return document.querySelectorAll('#figures tr:first-child th').length")
    assert header == runs + 1, header
    assert "loss" in page.run("return document.getElementById('figures').innerText")
    assert "options.lr" in page.run("return document.getElementById('settings').innerText")


LOG = """{"run":"a","state":"running"}
{"settings":{"options":{"lr":0.5,"log":"a"},"world_size":2}}
{"note":"fed otherwise"}
{"step":1,"loss":3.5,"compute_ms":null,"rank_busy_ms":[2,4]}
{"step":2,"loss":2.5,"lr":0.25}
{"step":3,"loss":2,"l
{"resumed":{"step":1,"checkpoint":"c/1"}}
{"step":2,"epoch":1,"val_loss":2.25}
{"skipped_step":3,"why":"the loss is NaN"}
{"checkpoint":{"step":3,"path":"c/3"}}
{"run":"b"}
{"step":7,"loss":1}
"""


def check_log(page):
    """A log is read as figures by step, flat settings and events; what a resumed run computes again replaces what was there."""
    first, second = page.run("return readRuns(arguments[0])", LOG)
    assert first["settings"] == {"options.lr": 0.5, "options.log": "a", "world_size": 2}, first
    assert first["series"] == {"loss": [[1, 3.5]], "rank_busy_ms.0": [[1, 2]], "rank_busy_ms.1": [[1, 4]], "epoch": [[2, 1]],
                               "val_loss": [[2, 2.25]]}, first
    assert first["events"] == [[0, "fed otherwise"], [1, "resumed c/1"], [3, "skipped: the loss is NaN"], [3, "checkpoint c/3"]], first
    assert second["name"] == "b" and second["series"] == {"loss": [[7, 1]]} and second["last"] == 7, second


def check_parts(page, runs):
    bars = page.run("return [...document.querySelectorAll('#parts .bar')].map(bar => [...bar.children].map(part => part.offsetWidth))")
    assert len(bars) == runs and all(sum(bar) > 0 for bar in bars), bars
    labels = page.run("return document.getElementById('parts').innerText")
    for label in ("computation", "exposed communication", "wait for slower ranks", "reading samples"):
        assert label in labels, labels


def check_running(page):
    state = page.run("return document.getElementById('state').innerText")
    assert "running, after step" in state and "written" in state, state
    page.run("document.getElementById('logarithmic').click()")
    for _ in range(200):
        if page.run("return performance.getEntriesByType('navigation')[0].type") == "reload":
            break
        time.sleep(0.1)
    else:
        raise AssertionError("the page does not reload")
    page.settle()
    assert page.run("return document.getElementById('logarithmic').checked"), "what was chosen is lost"
    page.shoot("report_running")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("page")
    parser.add_argument("runs", type=int)
    parser.add_argument("--running", action="store_true")
    parser.add_argument("--screenshots", type=pathlib.Path)
    options = parser.parse_args()
    if options.screenshots:
        options.screenshots.mkdir(parents=True, exist_ok=True)
    with Browser(1400, 1000) as browser:
        browser.open(options.page)
        page = Page(browser, options.screenshots)
        page.settle()
        check_drawn(page, options.runs)
        check_log(page)
        check_parts(page, options.runs)
        if options.running:
            return check_running(page)
        check_hover(page, options.runs)
        check_controls(page, options.runs)
        check_tables(page, options.runs)
        print(f"report in a browser: ok, {curves(page)} curves")


if __name__ == "__main__":
    main()
