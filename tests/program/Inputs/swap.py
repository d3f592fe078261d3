#!/usr/bin/env python3
"""Rebuilds an emitted program so that one rank issues two of its collectives in the other order.

    swap.py OUT NEW_OUT RANK     swaps the first two all_gathers of the text, which belong to a step, on RANK

The compiler cannot emit this, so the text is edited: every rank runs the same executable, which branches on its rank.
"""
import os, pathlib, re, shutil, subprocess, sys

TESTS = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FSDPC_BUILD", TESTS.parent / "build"))
GATHER = re.compile(r"allGatherStart\(c, (?P<id>\d+), (?P<source>[^,]+), (?P<destination>[^,]+), (?P<bytes>\d+)\)")


def swapped(text, rank):
    first, second = list(GATHER.finditer(text))[:2]

    def choose(own, other):
        """The other collective, with the destination of this one: no data is moved anyway."""
        return f"(c.rank == {rank} ? allGatherStart(c, {other['id']}, {other['source']}, {own['destination']}, {other['bytes']}) : {own[0]})"

    return text[:first.start()] + choose(first, second) + text[first.end():second.start()] + choose(second, first) + text[second.end():]


def main():
    out, new, rank = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(out, new, ignore=shutil.ignore_patterns("train", "stages"))
    program = new / "program.cpp"
    program.write_text(swapped(program.read_text(), rank))
    sources = [str(path) for path in sorted(new.glob("*.cpp"))]
    command = ["mpicxx", "-std=c++20", "-O1", "-march=native", "-fopenmp", f"-I{new}", *sources, str(BUILD / "libfsdpc_runtime_cpu.a"), "-ldnnl", "-lpthread", "-o", str(new / "train")]
    return subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(main())
