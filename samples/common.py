"""What the samples in Python share: they print every command that they run, keep all files in one folder, and end with a line of figures."""
import argparse
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
IS_SOURCE = (ROOT / "frontend/python").is_dir()     # else the package and the command are those that pip installed
if IS_SOURCE:
    sys.path.insert(0, str(ROOT / "frontend/python"))
import fsdpc

# Containers run as root, and may have fewer cores than ranks.
MPI_SETTINGS = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
                "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


def parser(description):
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", type=pathlib.Path, help="for everything that the sample writes")
    p.add_argument("--fsdpc", default=str(ROOT / "build/fsdpc") if IS_SOURCE else "fsdpc", help="the compiler; default: %(default)s")
    return p


def parse(p):
    a = p.parse_args()
    if not shutil.which(a.fsdpc):
        p.error(f"there is no command {a.fsdpc}: build it, or activate the environment that has it; --fsdpc names another")
    a.folder.mkdir(parents=True, exist_ok=True)
    return a


def run(*command, quiet=False):
    """quiet: the command and what it says are shown only if it fails."""
    words = [str(word) for word in command]
    shown = "$ " + shlex.join(words)
    if not quiet:
        print(shown, flush=True)
    ended = subprocess.run(words, env={**MPI_SETTINGS, **os.environ}, text=True, stdout=subprocess.PIPE if quiet else None,
                           stderr=subprocess.STDOUT if quiet else None)
    if ended.returncode != 0:
        sys.exit(f"{shown}\n{ended.stdout}" if quiet else f"{words[0]} ended with {ended.returncode}")


def train(out, ranks, *options, quiet=False):
    """Runs the program in the folder `out` on `ranks` ranks and returns its log."""
    log = f"{out}.jsonl"
    run(*(["mpirun", "-n", ranks] if ranks > 1 else []), out / "train", *options, "--log", log, quiet=quiet)
    return fsdpc.read_log(log)


def print_figures(**figures):
    """The last line of a sample, which tests/samples.py compares with the table in samples/README.md."""
    print("figures: " + ", ".join(f"{name} {value:.5f}" if isinstance(value, float) else f"{name} {value}" for name, value in figures.items()))
