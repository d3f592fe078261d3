"""Checks the traces of --profile.

check_profile.py OUT FIRST LAST F.json ...   the steps FIRST to LAST, a file per rank
check_profile.py device OUT FIRST LAST F.json ...   of a device: implied waits are absent, streams are joined between steps
check_profile.py page PAGE F.json ...        a page that holds these traces
"""
import json
import pathlib
import re
import sys

SLACK = 0.01  # microseconds: times are written with three decimals


def spans(trace, process):
    return [event for event in trace["traceEvents"] if event["ph"] == "X" and event["pid"] == process]


def names(trace, kind):
    return {(event["pid"], event["tid"]): event["args"]["name"] for event in trace["traceEvents"] if event["name"] == kind}


def inside(inner, outer):
    return outer["ts"] - SLACK <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + SLACK


def check_nesting(trace):
    """Exact to the nanosecond: a viewer drops a span that overlaps another one of its lane without being inside it."""
    lanes = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            begin = round(event["ts"] * 1000)
            lanes.setdefault((event["pid"], event["tid"]), []).append((begin, -begin - round(event["dur"] * 1000), event["name"]))
    for lane in lanes.values():
        open_ends = []
        for begin, minus_end, name in sorted(lane, key=lambda span: span[:2]):
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
            assert not open_ends or -minus_end <= open_ends[-1], f"{name} ends {-minus_end - open_ends[-1]} ns after what it began in"
            open_ends.append(-minus_end)


def of_kind(events, step, kind):
    return [event for event in events if event["args"]["step"] == step and event["cat"] == kind]


def check_step(events, step, lanes, collectives, device):
    kinds = {kind: of_kind(events, step, kind) for kind in ("step", "section", "wait", "collective")}
    whole = kinds["step"][0]
    assert len(kinds["step"]) == 1
    # Gathers of `update` are left to the next step. Those of the last step are waited for when the program ends.
    left = {id for id, collective in collectives.items() if collective["function"] == "update"}
    sections_behind = of_kind(events, step + 1, "section")
    assert all(inside(event, whole) for event in kinds["section"])
    assert all(inside(event, whole) for event in kinds["wait"] if event["args"]["id"] not in left)
    edges = [(event["ts"], event["ts"] + event["dur"]) for event in kinds["section"]]
    assert all(a[1] <= b[0] + SLACK for a, b in zip(edges, edges[1:])), "sections follow each other"
    ran = {event["args"]["id"]: event for event in kinds["collective"]}
    waited = {event["args"]["id"]: event for event in kinds["wait"]}
    assert set(ran) == set(collectives)
    assert set(waited) == set(collectives) or device and set(waited) and set(waited) <= set(collectives)
    twice = left if step == 1 else set()  # the first step itself starts the gathers that other steps get from their predecessor
    assert len(kinds["collective"]) == len(ran) + len(twice)
    for id, event in ran.items():
        assert event["args"]["started"] <= event["ts"] + SLACK, "started, then begun"
        if id not in waited or device and id in left:
            continue
        wait = waited[id]
        assert event["ts"] + event["dur"] <= wait["ts"] + wait["dur"] + SLACK, "done before its wait returns"
        assert event["args"]["bytes"] == collectives[id]["bytes"] and event["args"]["unit"] == collectives[id]["unit"]
        assert lanes[event["pid"], event["tid"]] in ("comm", "reduce")
        sections = sections_behind if id in left else kinds["section"]
        assert any(inside(wait, section) for section in sections) or (id in left and not sections)


def check_names(trace, schedule):
    """The page contains the names of the trace."""
    events, strings = schedule["events"], schedule["strings"]
    shown = {strings[name] for name, id in zip(events["name"], events["id"]) if id >= 0}
    written = {event["name"] for event in trace["traceEvents"] if event.get("cat") == "collective"}
    assert written <= shown, written - shown
    units = {unit["name"] for unit in schedule["units"]}
    assert {event["args"]["unit"] for event in trace["traceEvents"] if event.get("cat") == "section"} <= units | {""}


def data_of(page, name):
    return json.loads(re.search(rf'<script id="{name}" type="application/json">(.*?)</script>', page, re.S).group(1))


def check_page(path, traces):
    page = pathlib.Path(path).read_text()
    assert data_of(page, "profiles") == [json.loads(pathlib.Path(trace).read_text()) for trace in traces]
    assert {trace["plan_hash"] for trace in data_of(page, "profiles")} == {data_of(page, "data")["plan_hash"]}


def main():
    if sys.argv[1] == "page":
        return check_page(sys.argv[2], sys.argv[3:])
    device = sys.argv[1] == "device"
    sys.argv[1:2] = sys.argv[1:2] * (not device)
    out, first, last = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    plan = json.loads((out / "plan.json").read_text())
    schedule = data_of((out / "schedule.html").read_text(), "data")
    collectives = {c["id"]: c for c in plan["collectives"] if c["function"] in ("prologue", "micro_step", "update")}
    for rank, path in enumerate(sys.argv[4:]):
        trace = json.loads(pathlib.Path(path).read_text())
        assert trace["schema"] == "fsdpc.profile/1" and trace["rank"] == rank and trace["plan_hash"] == schedule["plan_hash"]
        processes = names(trace, "process_name")
        assert sorted(processes.values()) == [f"measured, rank {rank}", "predicted"]
        measured = next(pid for (pid, tid), name in processes.items() if name.startswith("measured"))
        predicted = next(pid for (pid, tid), name in processes.items() if name == "predicted")
        lanes = names(trace, "thread_name")
        for process in (measured, predicted):
            assert [name for (pid, tid), name in lanes.items() if pid == process] == schedule["lanes"][:len(lanes) // 2]
        threads = [tid for pid, tid in lanes]
        assert 0 not in threads and len(set(threads)) == len(threads), "a viewer knows threads by their id"
        events = spans(trace, measured)
        steps = sorted({event["args"]["step"] for event in events})
        assert steps == list(range(first, last + 1)), steps
        for step in steps:
            check_step(events, step, lanes, collectives, device)
        assert {event["args"]["id"] for event in spans(trace, predicted) if event["cat"] == "collective"} == set(collectives)
        check_names(trace, schedule)
        check_nesting(trace)
    print("profile: ok")


if __name__ == "__main__":
    main()
