#!/usr/bin/env python3
"""The share of a step that reading its samples takes, for several sources of tokens.

    data.py FOLDER [--steps 30] [--gigabytes 6] [-- OPTIONS OF FSDPC]

FOLDER has model.onnxtxt and batch.safetensors (gpt_model.py writes such). Trains on 2 ranks of one thread: a fixed batch; one file of
tokens; eight files, mixed and shuffled, from a page cache that is cold but for what a start checks (1 GiB of a rank). Prints step_ms and data_ms of the log's last line of each.
"""
import argparse, json, os, pathlib, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "frontend/python"))
from fsdpc.prepare_tokens import HEADER_WORDS, SHORT

MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


def write_tokens(path, count, seed):
    import numpy
    magic, version, kind = SHORT
    head = numpy.zeros(HEADER_WORDS, "<i4")
    head[:3] = magic, version, count
    with path.open("wb") as file:
        file.write(head.tobytes() + numpy.random.default_rng(seed).integers(0, 256, count, "u2").astype(kind).tobytes())
        os.fsync(file.fileno())


def forget(paths):
    """Drops them from the page cache."""
    for path in paths:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def train(out, steps, *data):
    log = out / "log.jsonl"
    subprocess.run(["mpirun", "-n", "2", out / "train", *data, "--steps", str(steps), "--threads", "1", "--progress", "none", "--log", log,
                    "--log_freq", str(steps)], check=True, env={**os.environ, **MPI}, stdout=subprocess.DEVNULL)
    return [line for line in map(json.loads, log.read_text().splitlines()) if "step_ms" in line][-1]


def main():
    own, _, options = " ".join(sys.argv[1:]).partition(" -- ")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--gigabytes", type=float, default=6)
    a = parser.parse_args(own.split())
    out = ROOT / "build/bench/data"
    subprocess.run([ROOT / "build/fsdpc", a.folder / "model.onnxtxt", "--world_size", "2", "--threads", "1", "-o", out, *options.split()],
                   check=True, stdout=subprocess.DEVNULL)
    shards = [a.folder / f"tokens_{i}.bin" for i in range(8)]
    for i, shard in enumerate(shards):
        write_tokens(shard, int(a.gigabytes * 1e9 / len(shards) / 2), i)
    mixed = ",".join(f"{shard}:{i + 1}" for i, shard in enumerate(shards))
    for name, data in (("fixed batch", ["--batch", a.folder / "batch.safetensors"]), ("one file", ["--train_data", shards[0]]),
                       ("eight, mixed, shuffled, cold", ["--train_data", mixed, "--shuffle", "--shuffle_window", "65536"])):
        forget(shards)
        line = train(out, a.steps, *data)
        print(f"{name:30} step {line['step_ms']:8.1f} ms, samples {line['data_ms']:6.2f} ms, {100 * line['data_ms'] / line['step_ms']:5.2f} %")


if __name__ == "__main__":
    main()
