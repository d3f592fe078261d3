#!/usr/bin/env python3
"""Replays a recording with an emitted program of the fixture mlp (README.md).

    replay.py data RECORDING OUT.safetensors    a sample for each step: its forward overflows, or no label counts
    replay.py compare RECORDING LOG             the program's log has the scale and the outcome of every step
"""
import itertools, json, pathlib, sys
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "program/Inputs"))
from data import save_safetensors

TOO_LARGE = 1e30    # for 16 bits, whatever the loss scale
IGNORED = -100


def steps_of(recording):
    """(outcome, scale after it) of each step"""
    lines = [line.split() for line in pathlib.Path(recording).read_text().splitlines() if not line.startswith(("#", "initial"))]
    return [(how, float(scale)) for count, how, scale in lines for _ in range(int(count))]


def write_data(recording, out):
    steps = steps_of(recording)
    x, labels = np.zeros((len(steps), 32), "f4"), np.full(len(steps), IGNORED, "i8")
    for step, (how, _) in enumerate(steps):
        if how != "ok":
            x[step], labels[step] = TOO_LARGE, 0
    save_safetensors(out, {"x": x, "labels": labels})


def compare(recording, log):
    wanted = [step for step in steps_of(recording) if step[0] != "error"]
    entries = [json.loads(line) for line in pathlib.Path(log).read_text().splitlines()]
    skipped = {entry["skipped_step"] for entry in entries if "skipped_step" in entry}
    ours = [("overflow" if entry["step"] in skipped else "ok", entry["loss_scale"]) for entry in entries if "step" in entry]
    for number, (got, want) in enumerate(itertools.zip_longest(ours, wanted), 1):
        if got != want:
            sys.exit(f"step {number} of {len(wanted)}: {got}, recorded is {want}")
    print(f"{len(wanted)} steps, {len(skipped)} overflows: the scale of every step is the recorded one")


if __name__ == "__main__":
    {"data": write_data, "compare": compare}[sys.argv[1]](*sys.argv[2:])
