"""The command `fsdpc` of the wheel: starts the compiler in it, or names the package that this machine lacks."""
import ctypes
import os
import pathlib
import shutil
import sys

COMPILER = pathlib.Path(__file__).resolve().parent / "install/bin/fsdpc"
WITHOUT_PROGRAM = {"inspect", "init", "simulate", "estimate", "verify", "report", "help", "completion", "man"}
NO_PROGRAM = {"--dry_run", "--compile_to", "--emit", "--help", "--version", "--list_passes"}


def is_loadable(library):
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def missing(arguments):
    """What has to be installed, as Debian calls it, for these arguments."""
    packages = [] if is_loadable("libdnnl.so.2") else ["libdnnl-dev"]
    words = {argument.split("=")[0].replace("-", "_").replace("__", "--", 1) for argument in arguments}
    if not arguments or arguments[0] in WITHOUT_PROGRAM or words & NO_PROGRAM:
        return packages
    if not shutil.which("c++"):
        packages.append("g++")
    if not shutil.which("mpicxx"):
        packages += ["libopenmpi-dev", "openmpi-bin"]
    return packages


def main():
    packages = missing(sys.argv[1:])
    if packages:
        sys.exit(f"fsdpc: this machine lacks {', '.join(packages)}: apt install {' '.join(packages)}")
    os.execv(COMPILER, [str(COMPILER), *sys.argv[1:]])
