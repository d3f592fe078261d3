#!/usr/bin/env python3
"""Runs every sample by the command in the table of samples/README.md and compares its figures with those that the table states.

    samples.py [--fsdpc build/fsdpc] [NAME...]

Each runs in a folder of its own and ends with `figures: NAME VALUE, ...`. On one machine, with the same versions of the libraries, every
digit is the same; another processor or another PyTorch rounds otherwise, so 2 % of a figure are allowed, but for those in EXACT. The
README in the folder of a sample must have each figure as the table has it. Samples find their own faults too: results of PyTorch that
differ from the program's, losses that do not fall. Prints a line for each; the last line is `N passed, N failed`.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOLERANCE = 0.02
EXACT = {"settings"}


def table():
    """name: (command, figures as text by name) of each row of samples/README.md that has a command."""
    lines = (ROOT / "samples/README.md").read_text().splitlines()
    rows = [cells for cells in (line.strip("| ").split(" | ") for line in lines) if len(cells) > 1 and cells[1].startswith("`samples/")]
    return {name: (command.strip("`"), dict(figure.split() for figure in figures.split(", "))) for name, command, _, figures in rows}


def run(command, folder, fsdpc):
    """The figures that a sample prints, as text by name. RuntimeError: what went wrong."""
    words = [word if word != "FOLDER" else str(folder) for word in command.split()]
    if words[0].endswith(".py"):
        words = [sys.executable, *words, "--fsdpc", fsdpc]
    ended = subprocess.run(words, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    lines = ended.stdout.splitlines()
    if ended.returncode != 0 or not lines or not lines[-1].startswith("figures: "):
        raise RuntimeError(f"{command}: status {ended.returncode}\n" + "\n".join(lines[-30:]))
    return dict(figure.split() for figure in lines[-1].removeprefix("figures: ").split(", "))


def text_of(figures):
    return ", ".join(f"{figure} {value}" for figure, value in figures.items())


def compare(name, own, stated):
    differing = [figure for figure in {**own, **stated} if not is_close(figure, own.get(figure, "nan"), stated.get(figure, "nan"))]
    if differing:
        raise RuntimeError(f"{text_of(own)}; the table has {text_of(stated)}: {', '.join(differing)}")
    page = ROOT / f"samples/{name}/README.md"
    missing = [value for value in stated.values() if page.exists() and value not in page.read_text()]
    if missing:
        raise RuntimeError(f"{page.relative_to(ROOT)} does not have {', '.join(missing)}")


def is_close(figure, own, stated):
    return abs(float(own) - float(stated)) <= (0 if figure in EXACT else TOLERANCE * float(stated))


def check(name, command, stated, folder, fsdpc):
    own = run(command, folder, fsdpc)
    compare(name, own, stated)
    if name == "finetune":   # a folder that is given, and its own: the same bits
        given = run(f"{command} --model {folder}/base", folder / "given", fsdpc)
        if given != own:
            raise RuntimeError(f"with --model {text_of(given)}; without it {text_of(own)}")
    return own


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--fsdpc", default=str(ROOT / "build/fsdpc"))
    p.add_argument("names", nargs="*")
    a = p.parse_args()
    samples, passed, failed = table(), 0, 0
    unknown = [name for name in a.names if name not in samples]
    if unknown or not samples:
        p.error(f"the table of samples/README.md has {', '.join(samples) or 'no samples'}, not {', '.join(unknown)}")
    for name in a.names or samples:
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f"fsdpc-{name}-") as folder:
            try:
                own = check(name, *samples[name], pathlib.Path(folder), a.fsdpc)
                passed, state, said = passed + 1, "ok  ", text_of(own)
            except RuntimeError as error:
                failed, state, said = failed + 1, "FAIL", str(error)
        print(f"  {state} {name}: {said} ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
