#!/usr/bin/env python3
"""Compiles a model once for all tests that use the same options, and links LINK to its output folder.

    program.py LINK FIXTURE[=MODEL] N [more fsdpc options]

FIXTURE is a folder name of tests/fixtures: its loss, optimizer and dims are passed as accept.py passes them, the batch split
over N ranks. MODEL is compiled in place of the fixture's own model. Programs are kept in build/lit/programs until the
compiler or the runtime changes.
"""
import fcntl, hashlib, json, os, pathlib, shutil, subprocess, sys, types

TESTS = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FSDPC_BUILD", TESTS.parent / "build"))
sys.path.insert(0, str(TESTS))
import accept


def fixture_options(folder, world_size):
    meta = json.loads((folder / "meta.json").read_text())
    rows = meta["dim_params"]["batch"]
    request = types.SimpleNamespace(target="cpu", strategy="full_shard", world_size=world_size, variant="file")
    return [str(option) for option in accept.compile_options(meta, rows, request, False)]


def stamp():
    """A key for the current state of everything that a program is built from."""
    digest = hashlib.sha256(pathlib.Path(__file__).read_bytes() + os.environ.get("ONEDNN_MAX_CPU_ISA", "").encode())
    files = [BUILD / "fsdpc", *sorted(BUILD.glob("libfsdpc_runtime_cpu*.a")), *sorted((TESTS.parent / "runtime").rglob("*.h"))]
    for file in files:
        status = file.stat()
        digest.update(f"{file} {status.st_size} {status.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def compile_once(command, folder):
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "train").exists():
            return 0
        return subprocess.run([*command, "-o", str(folder)], stdin=subprocess.DEVNULL).returncode


def main():
    link, model, world_size, *extra = sys.argv[1:]
    fixture, _, model = model.partition("=")
    folder = TESTS / "fixtures" / fixture
    model = model or str(folder / "model.onnx")
    status = os.stat(model)
    identity = f"{status.st_size} {status.st_mtime_ns}"
    command = [str(BUILD / "fsdpc"), model, *fixture_options(folder, int(world_size)), *extra]
    programs, current = BUILD / "lit/programs", stamp()
    name = hashlib.sha256("\0".join([*command, identity]).encode()).hexdigest()[:16]
    status = compile_once(command, programs / current / name)
    if status == 0:
        pathlib.Path(link).unlink(missing_ok=True)
        pathlib.Path(link).symlink_to(programs / current / name)
    for old in programs.iterdir():
        if old.name != current:
            shutil.rmtree(old, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
