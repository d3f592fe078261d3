#!/usr/bin/env python3
"""Opens the page of `fsdpc report` in a headless Chromium and uses it: curves, hover, runs, smoothing, tables, themes.

check_report_in_browser.py report.html RUNS [--screenshots DIR]
"""
import argparse
import pathlib

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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("page")
    parser.add_argument("runs", type=int)
    parser.add_argument("--screenshots", type=pathlib.Path)
    options = parser.parse_args()
    if options.screenshots:
        options.screenshots.mkdir(parents=True, exist_ok=True)
    with Browser(1400, 1000) as browser:
        browser.open(options.page)
        page = Page(browser, options.screenshots)
        page.settle()
        check_drawn(page, options.runs)
        check_hover(page, options.runs)
        check_controls(page, options.runs)
        check_tables(page, options.runs)
        print(f"report in a browser: ok, {curves(page)} curves")


if __name__ == "__main__":
    main()
