#!/usr/bin/env python3
"""What checkpoints cost, on workload W2 and 2 ranks of one thread.   checkpoint.py [--steps 150] [--interval 50] [--rounds 3] [--build DIR]

Runs with and without checkpoints alternate, so that both meet the same machine. Prints the mean time of a step of each (without the
first ten), their ratio, how long a step stood still for the copy, and the rates at which a checkpoint is written and loaded beside
that of `dd conv=fsync` and `dd` of the same bytes on the same disk.
"""
import argparse, json, os, pathlib, shutil, statistics, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def run(command, folder):
    started = time.monotonic()
    subprocess.run([str(c) for c in command], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - started


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--interval", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fsdpc-checkpoint-", dir=ROOT / "build") as name:
        folder = pathlib.Path(name)
        run([sys.executable, ROOT / "tests/bench/gpt_model.py", folder], folder)
        run([options.build / "fsdpc", folder / "model.onnxtxt", "--target", "cpu", "--world_size", 2, "--micro_batch_size", 8, "--threads", 1,
             "--loss", "cross_entropy", "--optimizer", "adamw", "-o", folder / "out"], folder)
        train = ["mpirun", "-n", 2, folder / "out/train", "--batch", folder / "batch.safetensors", "--steps", options.steps, "--log_freq", 1,
                 "--progress", "none", "--threads", 1]
        times, copies, writes, size = {"with": [], "without": []}, [], [], 0
        for round in range(options.rounds):
            for kind in ("without", "with") if round % 2 else ("with", "without"):
                shutil.rmtree(folder / "saved", ignore_errors=True)
                more = ["--checkpoint_folder", folder / "saved", "--checkpoint_interval", options.interval] if kind == "with" else []
                run([*train, "--log", folder / "log", *more], folder)
                times[kind] += [line["step_ms"] for line in lines(folder / "log") if line.get("step", 0) > 10 and "step_ms" in line]
                for line in lines(folder / "log"):
                    if "checkpoint" in line and more:
                        copies.append(line["checkpoint"]["copy_ms"])
                        writes.append(line["checkpoint"]["write_ms"])
                        size = line["checkpoint"]["bytes"]
        # A step of the log does not include saving, which lies between steps.
        saving = statistics.mean(copies) / options.interval
        mean = {kind: statistics.mean(values) for kind, values in times.items()}
        print(f"step: {mean['without']:.1f} ms without, {mean['with']:.1f} ms with checkpoints every {options.interval} steps, and {saving:.2f} ms of copies a step: "
              f"ratio {(mean['with'] + saving) / mean['without']:.4f}")
        print(f"copy: {statistics.median(copies):.1f} ms of {size / 2 / 2**20:.0f} MiB a rank; written in {statistics.median(writes):.0f} ms")
        run([*train, "--steps", 1, "--checkpoint_folder", folder / "alone", "--checkpoint_staging", "off", "--log", folder / "log"], folder)
        write = next(line["checkpoint"] for line in lines(folder / "log") if "checkpoint" in line)["write_ms"]
        file = folder / "zeros"
        dd = run(["dd", "if=/dev/zero", f"of={file}", "bs=4M", f"count={size >> 22}", "conv=fsync"], folder) * 1e3
        print(f"save, training at rest: {size / write / 1e3:.0f} MB/s; dd with fsync {size / dd / 1e3:.0f} MB/s: ratio {dd / write:.2f}")
        run([*train, "--steps", 2, "--checkpoint_folder", folder / "alone", "--resume", "auto", "--log", folder / "log"], folder)
        load = next(line["resumed"] for line in lines(folder / "log") if "resumed" in line)["load_ms"]
        print(f"load, hashes verified: {size / load / 1e3:.0f} MB/s: ratio {dd / load:.2f} to dd with fsync")


if __name__ == "__main__":
    sys.exit(main())
