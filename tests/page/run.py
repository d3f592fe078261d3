#!/usr/bin/env python3
"""Makes the pages that fsdpc writes and uses each in a headless Chromium. The last line is `N passed, N failed`.

    run.py [--build BUILD] [--screenshots DIR]
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GPT2 = ROOT / "tests/fixtures/gpt2_tiny"


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def train(fsdpc, folder):
    """A program of two ranks, the profiles of both and the logs of two runs."""
    run(fsdpc, GPT2 / "model.onnx", "--target", "cpu", "--world_size", 2, "--micro_batch_size", 4, "--loss", "cross_entropy",
        "-o", folder / "out")
    for name, rate in (("one", "1e-3"), ("two", "3e-3")):
        run("mpirun", "-n", 2, folder / "out/train", "--batch", GPT2 / "batch.safetensors", "--steps", 30, "--lr", rate,
            "--log", folder / f"{name}.jsonl", "--log_freq", 1, "--progress", "none",
            *(["--profile", folder / "trace.json", "--report", folder / "run.html"] if name == "one" else []))
    ended = (folder / "run.html").read_text()
    (folder / "running.html").write_text(ended.replace('"state":"finished"', '"state":"running"'))
    run(fsdpc, "report", folder / "one.jsonl", folder / "two.jsonl", "-o", folder / "report.html")


def simulate(fsdpc, folder, layers):
    """The page of a model of so many units, embedding and output layer included."""
    model = folder / f"{layers}.onnxtxt"
    run("/usr/bin/python3", ROOT / "samples/llama/write_llama.py", model, "--layers", layers - 2, "--width", 1024, "--heads", 8,
        "--key_heads", 8, "--hidden", 4096, "--vocab", 8192)
    run(fsdpc, "simulate", model, "--dim", "tokens=1024", "--loss", "cross_entropy", "--world_size", 8, "--target", "cuda",
        "--hardware", "h100_8", "--schedule_format", "html", "-o", folder / f"{layers}.html")


def checks(fsdpc, folder, shots):
    """name, and the steps of each check"""
    schedule = ["/usr/bin/python3", HERE / "check_in_browser.py"]
    for layers in (12, 48):
        yield f"schedule of {layers} units", [lambda: simulate(fsdpc, folder, layers),
                                              lambda: run(*schedule, folder / f"{layers}.html", *shots(f"units_{layers}"))]
    yield "schedule with the profiles of two ranks", [
        lambda: train(fsdpc, folder),
        lambda: run(*schedule, folder / "out/schedule.html", *shots("profiles"), "--profile", folder / "trace.json",
                    folder / "trace.rank1.json")]
    yield "report of two runs", [lambda: run("/usr/bin/python3", HERE / "check_report_in_browser.py", folder / "report.html", 2,
                                             *shots("report"))]
    yield "page of a run that goes on", [lambda: run("/usr/bin/python3", HERE / "check_report_in_browser.py", folder / "running.html", 1,
                                                     "--running", *shots("running"))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--screenshots", type=pathlib.Path)
    options = parser.parse_args()
    shots = lambda name: ["--screenshots", options.screenshots / name] if options.screenshots else []
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="fsdpc-page-") as folder:
        for name, steps in checks(options.build.resolve() / "fsdpc", pathlib.Path(folder), shots):
            try:
                for step in steps:
                    step()
                passed += 1
                print(f"  ok   {name}", flush=True)
            except RuntimeError as error:
                failed += 1
                print(f"  FAIL {name}: {error}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
