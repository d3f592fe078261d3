#!/usr/bin/python3
"""prediction.py [--fsdpc build/fsdpc] [--work build/prediction] [--skip_calibration] [--only NAME]

Compares predicted with measured exposed communication on 2 ranks: benchmark models over shared memory, over MPI, and over
an artificially slowed link with --streams threads. Calibrates first, compiles everything, then runs all cases in turn, three
rounds, 20 steps each after 3 warm-up steps. A case passes if |predicted - measured| <= max(20 % of measured, 2 % of the step),
medians of all steps of the three runs. A benchmark, not a test: run it on an idle machine.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WARM_UP, STEPS, ROUNDS = 3, 20, 3
GPT = {"gpt": dict(layers=4, width=256, heads=4, seq=128, vocab=512, batch=4),
       "gpt_w2": dict(layers=6, width=384, heads=6, seq=256, vocab=512, batch=8)}
DIGITS = ["--train_data", str(ROOT / "samples/digits/train-*"), "--normalize", "0.305,0.325"]
# name, model, options of the compile, link slowed down by (microseconds, bytes per microsecond)
CASES = [("gpt inline", "gpt", ["--streams", "inline"], None),
         ("gpt threads", "gpt", ["--streams", "threads"], None),
         ("gpt mpi", "gpt", ["--streams", "inline", "--transport", "mpi"], None),
         ("gpt slow", "gpt", ["--streams", "threads"], (500, 200)),
         ("gpt very slow", "gpt", ["--streams", "threads"], (1000, 60)),
         ("gpt_w2 inline", "gpt_w2", ["--streams", "inline"], None),
         ("gpt_w2 slow", "gpt_w2", ["--streams", "threads"], (2000, 60)),
         ("mnist_cnn inline", "mnist_cnn", ["--streams", "inline"], None),
         ("mnist_cnn slow", "mnist_cnn", ["--streams", "threads"], (2000, 100))]


def run(command, **more):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, **more)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nexit {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def hardware_file(a, slow):
    table = json.loads((a.work / "hardware.json").read_text())
    if slow:
        table["node_local"].update(slow_us=slow[0], slow_bytes_per_us=slow[1])
    path = a.work / (f"hardware_{slow[0]}_{slow[1]}.json" if slow else "hardware.json")
    path.write_text(json.dumps(table, indent=2))
    return path


def compile_case(a, name, model, options, slow):
    out = a.work / name.replace(" ", "_")
    command = [a.fsdpc, "--target", "cpu", "--world_size", 2, "--threads", 1, "--hardware", hardware_file(a, slow), "-o", out, *options]
    if model == "mnist_cnn":
        run(command + [ROOT / "samples/mnist_cnn/model.onnx", "--loss", "nll", "--optimizer", "adadelta", "--micro_batch_size", 16,
                       "--train_mode", "train"])
    else:
        folder = a.work / model
        if not (folder / "model.onnxtxt").exists():
            run([sys.executable, ROOT / "tests/bench/gpt_model.py", folder] + [x for k, v in GPT[model].items() for x in ("--" + k, v)])
        run(command + [folder / "model.onnxtxt", "--loss", "cross_entropy", "--micro_batch_size", GPT[model]["batch"]])
    return out


def measure(a, out, model, slow):
    data = DIGITS if model == "mnist_cnn" else ["--batch", a.work / model / "batch.safetensors"]
    log = out / "log.jsonl"
    command = ["mpirun", "-n", 2, out / "train", *data, "--steps", WARM_UP + STEPS, "--threads", 1, "--log", log, "--log_freq", 1,
               "--progress", "none"]
    if slow:
        command += ["--slow_link_microseconds", slow[0], "--slow_link_bytes_per_microsecond", slow[1]]
    run(command)
    return [line for line in map(json.loads, log.read_text().splitlines()) if "step_ms" in line][WARM_UP:]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--fsdpc", type=pathlib.Path, default=ROOT / "build/fsdpc")
    p.add_argument("--work", type=pathlib.Path, default=ROOT / "build/prediction")
    p.add_argument("--skip_calibration", action="store_true", help="use the table that lies in --work")
    p.add_argument("--only", default="", help="cases whose name begins so")
    a = p.parse_args()
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"):
        os.environ.setdefault(name, "1")
    os.environ.setdefault("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
    a.work.mkdir(parents=True, exist_ok=True)
    if not a.skip_calibration:
        print(run([a.fsdpc, "calibrate", "--output", a.work / "hardware.json"]), end="")
    cases = [(case, compile_case(a, *case)) for case in CASES if case[0].startswith(a.only)]
    steps = {case[0]: [] for case, _ in cases}
    for _ in range(ROUNDS):
        for (name, model, _, slow), out in cases:
            steps[name] += measure(a, out, model, slow)
    print(f"{'case':18s} {'step ms':>9s} {'predicted':>9s}   {'exposed ms':>10s} {'predicted':>9s} {'off by':>8s} {'limit':>8s}")
    failed = 0
    for (name, *_), out in cases:
        median = lambda key: statistics.median(line[key] for line in steps[name])
        plan = json.loads((out / "plan.json").read_text())
        step, measured, predicted = median("step_ms"), median("comm_exposed_ms"), median("predicted_comm_exposed_ms")
        limit = max(0.2 * measured, 0.02 * step)
        failed += abs(predicted - measured) > limit
        print(f"{name:18s} {step:9.2f} {plan['predicted_step_us'] / 1e3:9.2f}   {measured:10.3f} {predicted:9.3f} "
              f"{abs(predicted - measured):8.3f} {limit:8.3f} {'' if abs(predicted - measured) <= limit else 'too far'}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
