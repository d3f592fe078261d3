#!/usr/bin/env python3
"""Counts the instructions of a compile of a Llama with 8, 16 and 32 layers, and of their growth.

    count_work.py FSDPC FOLDER [COMPILE OPTION...]

If work grows with n log n, each doubling adds a little more than twice what the doubling before added; if any part grows with the square,
four times. The count is that of valgrind, the same on every machine and in every run but for a few per mille.
"""
import pathlib, re, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
LAYERS = (8, 16, 32)
LARGEST_GROWTH = 2.3


def instructions(fsdpc, folder, layers, options):
    model = folder / f"layers_{layers}.onnxtxt"
    size = ["--width", "64", "--heads", "4", "--key_heads", "2", "--hidden", "128", "--vocab", "256"]
    subprocess.run([sys.executable, ROOT / "samples/llama/write_llama.py", model, "--layers", str(layers), *size], check=True, stdout=subprocess.DEVNULL)
    run = subprocess.run(["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", fsdpc, model, "--dim", "tokens=128",
                          "--world_size", "4", "--loss", "cross_entropy", "--dry_run", "-o", folder / "out", *options], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    return int(re.search(r"I\s+refs:\s+([\d,]+)", run.stderr)[1].replace(",", ""))


def main():
    fsdpc, folder, options = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    folder.mkdir(parents=True, exist_ok=True)
    counts = [instructions(fsdpc, folder, layers, options) for layers in LAYERS]
    growth = (counts[2] - counts[1]) / (counts[1] - counts[0])
    print(f"{counts[0]} {counts[1]} {counts[2]} instructions; the second doubling adds {growth:.2f} times what the first adds")
    return growth > LARGEST_GROWTH


if __name__ == "__main__":
    sys.exit(main())
