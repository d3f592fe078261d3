"""Checks that OUT/schedule.html is one self-contained file whose data agree with plan.json.

check_page.py OUT
"""
import json
import pathlib
import re
import sys


def data_of(page, name):
    return json.loads(re.search(rf'<script id="{name}" type="application/json">(.*?)</script>', page, re.S).group(1))


def check_one_file(page):
    markup = re.sub(r'<script id="data".*?</script>', "", page, flags=re.S)
    for word in ("http:", "https:", "src=", "href=", "@import", "fetch(", "XMLHttpRequest", "innerHTML", "insertAdjacent", "document.write"):
        assert word not in markup, word
    assert "Content-Security-Policy" in page and "default-src 'none'" in page


def check_columns(schedule):
    sections, events = schedule["sections"], schedule["events"]
    for columns in (sections, events):
        assert len({len(column) for column in columns.values()}) == 1, "columns of one length"
    last = {}
    for begin, end, lane in sorted(zip(events["begin_ns"], events["end_ns"], events["lane"])):
        assert begin <= end and begin + 2 >= last.get(lane, 0), f"what begins at {begin} overlaps the one before it on its stream"
        last[lane] = end
    for i in range(len(events["name"])):
        assert all(0 <= other < i for other in events["before"][i]), f"event {i} needs a later one"
    edges = list(zip(sections["begin_ns"], sections["end_ns"]))
    assert all(a[1] <= b[0] + 2 for a, b in zip(edges, edges[1:])), "sections follow each other"


def check_against_plan(schedule, plan):
    memory, planned = schedule["memory"], plan["memory"]
    assert memory["peak"]["bytes"] == planned["live_at_peak_bytes"]
    assert memory["arena_bytes"] == planned["total_bytes"]
    assert sum(value["bytes"] for value in memory["live"]) + memory["left_out"]["bytes"] == memory["peak"]["bytes"]
    assert memory["time_ns"] == sorted(memory["time_ns"])
    if memory["peak"]["in_step"]:
        assert max(memory["bytes"]) == memory["peak"]["bytes"]
    events = schedule["events"]
    shown = {id: i for i, id in enumerate(events["id"]) if id >= 0 and not events["wait"][i]}
    steps = [part["name"] for part in schedule["functions"]]
    for collective in plan["collectives"]:
        if collective["function"] in steps:
            i = shown.pop(collective["id"])
            assert events["bytes"][i] == collective["bytes"]
            assert schedule["strings"][events["name"][i]].startswith(collective["op"])
            assert abs(events["end_ns"][i] - events["begin_ns"][i] - 1000 * collective["predicted_us"]) < 2
            assert schedule["strings"][events["reason"][i]] == collective["why_not_earlier"]
    assert not shown, "a collective that plan.json does not know"
    lane = schedule["lanes"].index("copy")
    drawn = sorted((schedule["strings"][events["name"][i]].split()[0], events["bytes"][i])
                   for i in range(len(events["lane"])) if events["lane"][i] == lane)
    assert drawn == sorted((copy["op"], copy["bytes"]) for copy in plan["copies"] if copy["function"] in steps)


def main():
    out = pathlib.Path(sys.argv[1])
    page = (out / "schedule.html").read_text()
    schedule = data_of(page, "data")
    assert schedule["schema"] == "fsdpc.schedule_page/1"
    check_one_file(page)
    check_columns(schedule)
    check_against_plan(schedule, json.loads((out / "plan.json").read_text()))
    print(f"page: ok, {len(schedule['events']['lane'])} events on {len(set(schedule['events']['lane']))} streams")


if __name__ == "__main__":
    main()
