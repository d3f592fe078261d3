#!/usr/bin/env python3
"""Checks that two compilers emit the same programs, byte for byte.

    same_source.py BEFORE AFTER [--renames FILE] [--jobs 2] [FIXTURE...]

Every fixture is compiled with every strategy on both targets, and gpt2_tiny with every option set of sweep.py. Compares the
emitted source (program.*, program_info.cpp, CMakeLists.txt), or the exit status and message if nothing is emitted. FILE lists
renames of whole words, one `old<tab>new` a line, which are applied to the output of BEFORE. Prints differences and
`same_source: N the same, F differ`; exits 0 or 1.
"""
import argparse, concurrent.futures, fixture_sets, itertools, pathlib, re, subprocess, sys, tempfile
from sweep import OPTIONS, STRATEGIES, model_options

SOURCES = ("program.*", "program_info.cpp", "CMakeLists.txt")


def combinations(fixtures):
    """(fixture, strategy, options)"""
    for fixture, strategy, target in itertools.product(fixtures, STRATEGIES, ("cpu", "cuda")):
        yield fixture, strategy, f"--target {target}"
    for fixture in fixtures:
        if fixture.name == "gpt2_tiny":
            for options, target in itertools.product(OPTIONS, ("cpu", "cuda")):
                yield fixture, "full_shard", options if "--target" in options else f"{options} --target {target}"


def sources(fsdpc, combination):
    """Text by file name, or the failure under ""."""
    fixture, strategy, options = combination
    command = [fsdpc, fixture / "model.onnx", *model_options(fixture), "--micro_batch_size", 1, "--world_size", 4, "--strategy", strategy]
    if strategy.startswith("hybrid"):
        command += ["--data_parallel_shard_degree", 2]
    with tempfile.TemporaryDirectory(prefix="fsdpc-source-") as folder:
        result = subprocess.run([str(c) for c in [*command, *options.split(), "--emit", "src", "-o", "out"]], cwd=folder,
                                capture_output=True, text=True, errors="replace")
        if result.returncode != 0:
            return {"": f"exit {result.returncode}: {result.stderr}"}
        out = pathlib.Path(folder, "out")
        return {file.name: file.read_text() for pattern in SOURCES for file in sorted(out.glob(pattern))}


def renamed(text, renames):
    """The plan's hash is that of the stage's text, so it changes with a name in that text."""
    text = re.sub(r'planHash = "\w+"', 'planHash = ""', text)
    return re.sub(r"\w+", lambda word: renames.get(word[0], word[0]), text)


def differences(before, after, renames, combination):
    old, new = sources(before, combination), sources(after, combination)
    if renames:
        old = {name: renamed(text, renames) for name, text in old.items()}
        new = {name: renamed(text, {}) for name, text in new.items()}
    names = sorted(name or "messages" for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return f"{combination[0].name} {combination[1]} {combination[2]}: {', '.join(names)}" if names else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("--renames", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("fixtures", nargs="*")
    a = parser.parse_args()
    renames = dict(line.split("\t") for line in a.renames.read_text().splitlines() if line) if a.renames else {}
    runs = list(combinations(fixture_sets.everywhere(a.fixtures)))
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        found = [text for text in pool.map(lambda run: differences(a.before.resolve(), a.after.resolve(), renames, run), runs) if text]
    print(*found, f"same_source: {len(runs) - len(found)} the same, {len(found)} differ", sep="\n")
    return 1 if found or not runs else 0


if __name__ == "__main__":
    sys.exit(main())
