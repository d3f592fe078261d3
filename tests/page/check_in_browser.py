#!/usr/bin/env python3
"""Opens OUT/schedule.html in a headless Chromium and uses it: hover, zoom, pan, keys, search, profiles, themes.

check_in_browser.py OUT/schedule.html [--profile F.json ...] [--screenshots DIR]
"""
import argparse
import pathlib
import tempfile
import time

from browser import Browser


class Page:
    def __init__(self, browser, screenshots):
        self.browser, self.screenshots, self.count = browser, screenshots, 0

    def run(self, script, *arguments):
        return self.browser.run(script, *arguments)

    def settle(self):
        time.sleep(0.25)
        messages = self.browser.log()
        assert not messages, messages

    def shoot(self, name):
        self.settle()
        if self.screenshots:
            self.count += 1
            self.browser.screenshot(self.screenshots / f"{self.count}_{name}.png")

    def view(self):
        return self.run("return [view.begin, view.end]")

    def middle_of(self, bar):
        """The position on the screen of the bar of this expression."""
        return self.run(f"const bar = {bar}, box = boxOf(bar), edge = timeline.getBoundingClientRect();"
                        "return [edge.left + (box.x0 + box.x1) / 2, edge.top + (box.y0 + box.y1) / 2]")

    def tip(self):
        return self.run("return tip.hidden ? '' : tip.innerText")


def check_drawn(page):
    assert page.run("return performance.getEntriesByType('resource').length") == 0, "the page asked for something"
    for canvas in ("timeline", "memory"):
        colors = page.run(f"const d = {canvas}.getContext('2d').getImageData(0, 0, {canvas}.width, {canvas}.height).data;"
                          "const seen = new Set(); for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i+1] << 8 | d[i+2]);"
                          "return seen.size")
        assert colors > 3, f"{canvas} is blank"
    page.shoot("whole_step")


def check_labels(page):
    """Labels of units are large enough to read, and none covers another."""
    boxes = page.run("return [...legend.querySelectorAll('button')].map(button => { const box = button.getBoundingClientRect();"
                     "return [box.left, box.top, box.right, box.bottom, parseFloat(getComputedStyle(button).fontSize)]; })")
    assert len(boxes) == page.run("return schedule.units.length"), len(boxes)
    assert all(box[4] >= 11 for box in boxes), boxes
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            assert a[0] >= b[2] or b[0] >= a[2] or a[1] >= b[3] or b[1] >= a[3], (a, b)


def check_hover(page):
    communicates = page.run("return predicted.events.some(bar => bar.lane > 0)")
    bar = "predicted.events.filter(bar => bar.lane === %d).sort((a, b) => (b.end - b.begin) - (a.end - a.begin))[0]" % communicates
    name = page.run(f"return ({bar}).name")
    page.browser.move(*page.middle_of(bar))
    page.settle()
    tip = page.tip()
    for part in (name, "bytes", "predicted") + (("why not earlier",) if communicates else ()):
        assert part in tip, (part, tip)
    assert "needs" in tip or "needed by" in tip, tip  # a gather may need nothing of this step
    page.shoot("hover")
    return bar, name


def check_zoom_and_pan(page, bar):
    x, y = page.middle_of(bar)
    before = page.view()
    for _ in range(4):
        page.browser.wheel(x, y, -300)
    page.settle()
    zoomed = page.view()
    assert zoomed[1] - zoomed[0] < (before[1] - before[0]) / 10, (before, zoomed)
    page.shoot("zoomed")
    shift = 200 if x < 700 else -200
    page.browser.drag(x, y, x + shift, y)
    page.settle()
    panned = page.view()
    assert (panned[0] < zoomed[0]) == (shift > 0) and abs((panned[1] - panned[0]) - (zoomed[1] - zoomed[0])) < 1e-6 * before[1]
    page.browser.keys("-")
    page.settle()
    assert page.view()[1] - page.view()[0] > panned[1] - panned[0]
    page.browser.keys("0")
    page.settle()
    assert page.view() == before


def check_selection(page, bar, name):
    page.browser.click(*page.middle_of(bar))
    page.settle()
    assert name in page.run("return details.innerText")
    page.browser.keys("n")
    page.settle()
    page.shoot("selected_the_next")
    assert page.run("return view.selected !== null")
    page.browser.keys("\ue00c")  # Escape
    page.settle()
    assert page.run("return view.selected === null")


def check_search(page):
    page.browser.keys("/")
    unit = page.run("return (schedule.units[1] ?? schedule.units[0]).name")
    page.browser.keys(unit)
    page.settle()
    of, total = map(int, page.run("return found.textContent").split(" of "))
    assert 0 < of <= total
    page.shoot("search")
    page.browser.keys("\ue00c")
    page.settle()
    assert page.run("return found.textContent") == ""


def check_memory(page):
    page.browser.move(*page.run("const edge = memory.getBoundingClientRect();"
                                "return [edge.left + xOf(schedule.step_us / 2), edge.top + edge.height / 2]"))
    page.settle()
    assert "live" in page.tip(), page.tip()
    page.run("toPeak.click()")
    page.shoot("memory_peak")
    page.browser.keys("0")


def check_profiles(page, profiles):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as other:
        other.write('{"schema": "fsdpc.profile/1", "plan_hash": "0", "traceEvents": []}')
        other.flush()
        page.browser.give_files("#file", other.name)
        page.settle()
        assert "another plan" in page.run("return message.innerText")
    page.browser.give_files("#file", *profiles)
    page.settle()
    assert page.run("return message.hidden"), page.run("return message.innerText")
    assert page.run("return measured.profiles.length") == len(profiles)
    assert page.run("return view.strips.filter(strip => strip.label === 'measured').length") >= 1
    unmatched = page.run("return measured.step.bars.filter(bar => !bar.predicted && bar.measures !== 'wait').length")
    assert unmatched == 0, f"{unmatched} measured bars without a prediction"
    page.shoot("measured")
    page.browser.move(*page.middle_of("view.strips.find(strip => strip.label === 'measured').bars[0]"))
    page.settle()
    assert "measured" in page.tip() and "predicted" in page.tip(), page.tip()
    page.run("scale.click()")
    page.shoot("measured_stretched")


def measure_drawing(page):
    return page.run("const since = performance.now(); for (let i = 0; i < 40; ++i) {"
                    " show(extent() * i / 80, extent() * (i / 80 + 0.5)); drawTimeline(); drawMemory(); }"
                    "return (performance.now() - since) / 40")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("page")
    parser.add_argument("--profile", nargs="*", default=[])
    parser.add_argument("--screenshots", type=pathlib.Path)
    options = parser.parse_args()
    if options.screenshots:
        options.screenshots.mkdir(parents=True, exist_ok=True)
    with Browser(1400, 1000) as browser:
        browser.open(options.page)
        page = Page(browser, options.screenshots)
        page.settle()
        check_drawn(page)
        check_labels(page)
        bar, name = check_hover(page)
        check_zoom_and_pan(page, bar)
        check_selection(page, bar, name)
        check_search(page)
        check_memory(page)
        if options.profile:
            check_profiles(page, options.profile)
        page.run("theme.click()")
        page.shoot("other_theme")
        events = page.run("return predicted.events.length")
        print(f"page in a browser: ok, {events} events, {measure_drawing(page):.1f} ms to draw half of the step")


if __name__ == "__main__":
    main()
