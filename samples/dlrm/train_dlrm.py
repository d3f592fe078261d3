#!/usr/bin/python3
"""Writes a recommender and its data (write_dlrm.py), compiles it and trains it; the ranks exchange rows of its tables.

    train_dlrm.py FOLDER [--fsdpc build/fsdpc] [--ranks 2] [--rows 20000] [--epochs 12]

Standard library only.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from common import parse, parser, print_figures, run, train

BATCH, SAMPLES = 128, 4096


def main():
    p = parser(__doc__)
    for name, value in dict(ranks=2, rows=20000, epochs=12).items():
        p.add_argument("--" + name, type=int, default=value)
    a = parse(p)
    if BATCH % a.ranks:
        p.error(f"--ranks {a.ranks} does not divide the global batch of {BATCH}")
    model, data, out = a.folder / "dlrm.onnxtxt", a.folder / "dlrm.safetensors", a.folder / "dlrm"
    run(sys.executable, HERE / "write_dlrm.py", model, "--rows", a.rows, "--data", data, "--samples", SAMPLES)
    run(a.fsdpc, model, "--target", "cpu", "--world_size", a.ranks, "--micro_batch_size", BATCH // a.ranks,
        "--loss", "bce_with_logits", "--optimizer", "adagrad", "--lr", "0.02", "--remarks", "units", "-o", out)
    log = train(out, a.ranks, "--train_data", data, "--epochs", a.epochs, "--log_freq", SAMPLES // BATCH, "--progress", "plain")
    _, losses = log.column("loss")
    print_figures(first_loss=losses[0], last_loss=losses[-1])


if __name__ == "__main__":
    main()
