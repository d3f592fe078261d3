#!/usr/bin/env python3
"""start_memory.py [--ranks 4] [--width 8192] [--layers 8]: the memory of all ranks together from start to first step.

A network with 2 GiB of weights is compiled for RANKS ranks twice: weights in a file, and weights that are drawn. The proportional set
sizes of all ranks are summed 20 times a second; the maximum must be within RANKS x (planned bytes + 64 MiB). Needs about
7 GiB of memory with the sizes above.
"""
import argparse, json, os, pathlib, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPARSE = ROOT / "tests/program/Inputs/sparse_model.py"
BUILD = pathlib.Path(os.environ.get("FSDPC_BUILD", ROOT / "build"))
MEBIBYTE = 1 << 20


def proportional_set(program):
    """The memory of all processes that run `program`, in bytes."""
    total = 0
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.path.samefile(process / "exe", program):
                lines = (process / "smaps_rollup").read_text().splitlines()
                total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except OSError:
            pass
    return total


def measure(folder, ranks, options):
    out = folder / "out"
    subprocess.run([BUILD / "fsdpc", folder / "model.onnxtxt", "--loss", "mse", "--optimizer", "sgd", "--world_size", str(ranks),
                    *options, "-o", out], check=True, stdout=subprocess.DEVNULL)
    planned = json.loads((out / "plan.json").read_text())["memory"]["total_bytes"]
    start, most = time.monotonic(), 0
    run = subprocess.Popen(["mpirun", "-n", str(ranks), out / "train", "--batch", folder / "batch.safetensors", "--steps", "1",
                            "--progress", "none"], stdout=subprocess.DEVNULL)
    while run.poll() is None:
        most = max(most, proportional_set(out / "train"))
        time.sleep(0.05)
    if run.returncode:
        sys.exit(f"the program ended with {run.returncode}")
    limit = ranks * (planned + 64 * MEBIBYTE)
    print(f"{' '.join(options) or '--init file':14} planned {ranks} x {planned / MEBIBYTE:.0f} MiB, held {most / MEBIBYTE:.0f} MiB at most, "
          f"{(most - ranks * planned) / ranks / MEBIBYTE:+.0f} MiB per rank beside the plan, {time.monotonic() - start:.1f} s")
    return most <= limit


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ranks", type=int, default=4)
    p.add_argument("--width", type=int, default=8192)
    p.add_argument("--layers", type=int, default=8)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([sys.executable, SPARSE, "write", folder, "--width", str(a.width), "--layers", str(a.layers)], check=True)
        within = [measure(folder, a.ranks, options) for options in ([], ["--init", "random"])]
    sys.exit(0 if all(within) else "more than the plan and 64 MiB per rank")


if __name__ == "__main__":
    main()
