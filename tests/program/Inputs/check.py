#!/usr/bin/env python3
"""Compares what emitted programs wrote. Exits 0, or 1 with the first difference.

    check.py losses LOG LOG... [--limit X]     the losses of all logs agree (relative; default: they are equal); --figure val_loss:
                                               those of evaluations
    check.py tensors FILE FILE... [--limit X]  as losses, for tensors; the scale is that of the tensor, or 1e-4 of the largest
    check.py first_loss LOG FIXTURE            the first loss is the fixture's last one: that of the trained model
    check.py logits FILE FIXTURE               predictions equal the reference's
    check.py rows FILE OTHER [--limit X]       FILE's tensors are the first rows of those in OTHER, to X (default: equal)
    check.py arenas OUTPUT RANKS PROGRAM       every rank changed its arenas up to the highest planned byte, less at most 64
    check.py growth LOG BYTES                  the ranks use at most the plan and BYTES per rank
    check.py averages X FILE STEP1 STEP2 ...   FILE holds the moving averages with decay X of the weights after steps 1, 2, ..., to 1e-6
    check.py initial FILE PLAN.json [NAME=X]...   every parameter of FILE starts as the plan says, NAME at X
    check.py falls LOG --limit X               the last loss is at most X times the first
    check.py loss_scales LOG                   the scale starts too large, tolerates one overflow, is halved until steps apply,
                                               and these are finite
    check.py page PAGE NAME STATE WHY STEPS    a page of --report is whole: the run's name, its state, why it ended (a part of that), its
                                               logged steps ("1,2", their number, or "" for any)
    check.py same_page PAGE PAGE               two pages hold the same lines of logs
    check.py common_results TRACE TRACE        the ranks' traces hold the same collectives, all with hashes, equal for common results
"""
import argparse, json, pathlib, re, sys
import numpy as np

TESTS = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TESTS))
import accept
from compare import relative_error, scale_of, worst  # found through accept

PADDING_BYTES = 64


def require(condition, message):
    if not condition:
        sys.exit("check.py: " + message)


def entries(log):
    return [json.loads(line) for line in pathlib.Path(log).read_text().splitlines()]


def losses_of(log, figure="loss"):
    values = np.array([entry[figure] for entry in entries(log) if figure in entry])
    require(len(values) > 0, f"{log}: no {figure}")
    return values


def losses(logs, limit, figure="loss"):
    first = losses_of(logs[0], figure)
    for log in logs[1:]:
        other = losses_of(log, figure)
        require(len(other) == len(first), f"{log}: {len(other)} losses, {logs[0]} has {len(first)}")
        require(relative_error(other, first) <= limit, f"losses differ:\n{logs[0]}: {first.tolist()}\n{log}: {other.tolist()}")


def tensors(files, limit):
    first = accept.load_safetensors(files[0])
    largest = worst(scale_of(value) for value in first.values())
    for file in files[1:]:
        other = accept.load_safetensors(file)
        require(other.keys() == first.keys(), f"{file}: {list(other)}, {files[0]} has {list(first)}")
        errors = {name: relative_error(other[name], value, max(scale_of(value), 1e-4 * largest)) for name, value in first.items()}
        furthest = max(errors, key=errors.get)
        print(f"{file}: {len(errors)} tensors, {furthest} is furthest: {errors[furthest]:.1e}")
        require(worst(errors.values()) <= limit, f"{furthest} of {file} differs from that of {files[0]} by {errors[furthest]:.1e}")


def loss_scales(log):
    steps = [entry for entry in entries(log) if "step" in entry]
    skipped = {entry["skipped_step"] for entry in entries(log) if "skipped_step" in entry}
    scales = [step["loss_scale"] for step in steps]
    first = next(step["step"] for step in steps if step["step"] not in skipped)
    require(first > 3, f"{log}: step {first} applied, so nothing was found out")
    # The log holds the scale of the next step.
    require(scales[0] == 2 * scales[1] and all(scales[i] == 2 * scales[i + 1] for i in range(first - 2)), f"{log}: scales {scales}")
    require(steps[-1]["skipped_steps"] == len(skipped), f"{log}: {len(skipped)} steps were skipped, the last line says otherwise")
    require(all(step["loss"] is not None for step in steps), f"{log}: a loss is not finite")
    require(all((step["grad_norm"] is None) == (step["step"] in skipped) for step in steps), f"{log}: norms of skipped steps")
    require(steps[-1]["loss"] < steps[0]["loss"], f"{log}: nothing was learnt")


def first_loss(log, fixture):
    meta = json.loads((TESTS / "fixtures" / fixture / "meta.json").read_text())
    ours, wanted = losses_of(log)[0], meta["losses"][-1]
    limit = max(1e-5, 16 * meta["torch_f32_error"]["losses"], 16 * meta["torch_f32_error"]["final"])
    require(abs(ours - wanted) <= limit * abs(wanted), f"first loss {ours}, the trained model of the reference has {wanted}")


def logits(file, fixture):
    reference = accept.load_safetensors(TESTS / "fixtures" / fixture / "reference.safetensors")["logits"]
    (ours,) = accept.load_safetensors(file).values()
    require(ours.shape == reference.shape, f"{file}: {ours.shape}, the reference has {reference.shape}")
    require(relative_error(ours, reference) <= 1e-5, f"{file}: off by {relative_error(ours, reference)}")


def rows(file, whole, limit):
    ours, wanted = accept.load_safetensors(file), accept.load_safetensors(whole)
    require(ours.keys() == wanted.keys(), f"{list(ours)} against {list(wanted)}")
    for name, value in ours.items():
        error = relative_error(value, wanted[name][:len(value)])
        require(error <= limit, f"{name} differs by {error:.1e}")


def averages(decay, file, *steps):
    ours, weights = accept.load_safetensors(file), [accept.load_safetensors(step) for step in steps]
    require(all(ours.keys() == one.keys() for one in weights), f"{file}: {list(ours)}")
    for name, value in ours.items():
        average = weights[0][name].astype(np.float64)
        for later in weights[1:]:
            average = float(decay) * average + (1 - float(decay)) * later[name]
        error = relative_error(value, average)
        require(error <= 1e-6, f"the average of {name} is off by {error:.1e}")
        require(np.any(value != weights[-1][name]) or not np.any(weights[0][name] != weights[-1][name]), f"{name} is not averaged")


def arenas(output, ranks, program):
    """Compares the arenas stated by the program with those measured by the runtime (cpu) or by the emulated device (cuda)."""
    text = (pathlib.Path(program) / "program_info.cpp").read_text()
    stated = [(name, int(planned), int(used)) for name, planned, used in re.findall(r"\{Space::(\w+), (\d+), (\d+)\},", text)]
    measured = pathlib.Path(output).read_text()
    names = {"privateSpace": "private", "window": "window", "host": "host"}
    require(stated, f"{program}: no arenas")
    for size in {planned for _, planned, _ in stated if planned > 0}:
        used = sorted(ranks * [used for _, planned, used in stated if planned == size])
        if "allocation of" in measured:
            changed = re.findall(rf"allocation of {size} bytes, changed (\d+)", measured)
        else:
            changed = [changed for name, planned, said in stated if planned == size
                       for changed in re.findall(rf"arena {names[name]}: planned {size} used {said} changed (\d+)", measured)]
        changed = sorted(map(int, changed))
        require(len(changed) == len(used), f"{len(changed)} arenas of {size} bytes reported, {len(used)} expected")
        for most, mine in zip(used, changed):
            require(most - PADDING_BYTES <= mine <= most <= size, f"planned {size} used {most} changed {mine}")


def growth(log, limit):
    (report,) = [entry["memory_report"] for entry in entries(log) if "memory_report" in entry]
    planned, held = report["planned_bytes"] * report["world_size"], report["pss_growth_bytes"]
    beside = (held - planned) / report["world_size"]
    print(f"{report['world_size']} ranks: planned {planned}, held {held}, beside the plan {beside:.0f} per rank")
    require(beside <= limit, f"more than {limit} bytes per rank beside the plan")


def initial(file, plan, *constants):
    """Every parameter starts as plan.json says; `constants` are name=value."""
    values, stated = accept.load_safetensors(file), json.loads(pathlib.Path(plan).read_text())["parameters"]
    require(values.keys() == {p["name"] for p in stated}, f"{list(values)}")
    for parameter in stated:
        how, value = parameter["initial"], values[parameter["name"]].astype("f8")
        error = 6 / value.size ** 0.5  # standard errors of the moments, six of them
        if how["kind"] == "constant":
            require((value == how["value"]).all(), f"{parameter['name']} is not {how['value']}")
        elif how["kind"] == "uniform":
            low, high = how["low"], how["high"]
            require(low <= value.min() and value.max() <= high, f"{parameter['name']} is not within {low} and {high}")
            require(abs(value.mean() - (low + high) / 2) <= error * (high - low), f"{parameter['name']}: mean {value.mean()}")
        elif how["kind"] == "normal":
            require(abs(value.mean() - how["mean"]) <= error * how["std"], f"{parameter['name']}: mean {value.mean()}")
            require(abs(value.std() - how["std"]) <= error * how["std"], f"{parameter['name']}: deviation {value.std()}")
    for name, value in (c.split("=") for c in constants):
        require((values[name] == float(value)).all(), f"{name} is not {value}")


def falls(log, limit):
    numbers = [entry["loss"] for entry in entries(log) if "loss" in entry]
    require(numbers[-1] <= limit * numbers[0], f"the loss goes from {numbers[0]} to {numbers[-1]}")


def page_of(file):
    """The data of a page: what it says of itself, and the lines of the log. A page that is not whole is an error."""
    text = pathlib.Path(file).read_text()
    require(text.rstrip().endswith("</html>"), f"{file} is not whole")
    data = re.search(r'<script id="data" type="application/jsonl">(.*?)</script>', text, re.S)[1]
    own, *lines = [json.loads(line) for line in data.strip().split("\n")]
    return own, lines


def page(file, name, state, why, steps):
    own, lines = page_of(file)
    require(own["run"] == name and own["state"] == state and why in own["why"], f"{file}: {own}")
    require(sum("settings" in line for line in lines) == 1, f"{file} does not have the settings once")
    logged = [line["step"] for line in lines if "loss" in line and "step" in line]
    wanted = list(map(int, steps.split(","))) if "," in steps else list(range(1, int(steps or len(logged)) + 1))
    require(logged == wanted, f"{file} has the steps {logged}")


def same_page(one, other):
    (_, first), (_, second) = page_of(one), page_of(other)
    # A program keeps the last settings alone.
    first, second = ([line for line in lines if "settings" not in line] for lines in (first, second))
    require(first == second, f"{one} and {other} differ")


def common_results(one, other):
    first, second = [json.loads(pathlib.Path(file).read_text()) for file in (one, other)]
    require(first["exit"] == second["exit"] == 0 and len(first["collectives"]) == len(second["collectives"]) > 0, "the traces differ")
    for mine, theirs in zip(first["collectives"], second["collectives"]):
        for key in ("seq", "op", "unit", "id", "bytes", "fingerprint"):
            require(mine[key] == theirs[key], f"{mine} {theirs}")
        if mine["state"] != "waited":  # started for a step after the last one
            continue
        common = mine["op"] != "reduce_scatter"
        require(mine["operand_hash"] and (mine["result_hash"] == theirs["result_hash"]) == common, f"{mine} {theirs}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what")
    parser.add_argument("arguments", nargs="+")
    parser.add_argument("--limit", type=float, default=0)
    parser.add_argument("--figure", default="loss")
    a = parser.parse_args()
    if a.what == "losses":
        losses(a.arguments, a.limit, a.figure)
    elif a.what == "tensors":
        tensors(a.arguments, a.limit)
    elif a.what in ("falls", "rows"):
        globals()[a.what](*a.arguments, a.limit)
    elif a.what in ("arenas", "growth"):
        globals()[a.what](a.arguments[0], int(a.arguments[1]), *a.arguments[2:])
    else:
        {"first_loss": first_loss, "logits": logits, "initial": initial, "common_results": common_results, "page": page, "same_page": same_page,
          "loss_scales": loss_scales, "averages": averages}[a.what](*a.arguments)


if __name__ == "__main__":
    main()
