"""Compares what fsdpc says of configuration files with what is expected.   check.py FSDPC FOLDER [--update]

Beside every file of FOLDER is FILE.expected: what `fsdpc init --config FILE` prints, or its exit code and errors. The first line of a
file, or of the expectation where the format has no comments, says where its keys and values are from. What `init` prints is read
again. A file that options of the command line make acceptable is read with them, too.
"""
import pathlib, re, subprocess, sys, tempfile


DECISIONS = {"optimizer": "adamw", "mixed_precision": "bf16"}


def init(fsdpc, config, options=()):
    command = [fsdpc, "init", "--config", config.name, *options]
    return subprocess.run(command, cwd=config.parent, capture_output=True, text=True)


def decisions(errors):
    """The options that lift every refusal of a file, if there are such."""
    named = [re.search(r"; --(\w+) can decide instead$", line) for line in errors.splitlines()]
    return [word for name in sorted({name[1] for name in named if name}) for word in ("--" + name, DECISIONS[name])] if all(named) else []


def outcome(fsdpc, config, options=()):
    run = init(fsdpc, config, options)
    lifting = decisions(run.stderr) if run.returncode == 2 and not options else []
    if lifting:
        return f"exit 2\n{run.stderr}with {' '.join(lifting)}:\n" + outcome(fsdpc, config, lifting)
    text = run.stderr + "---\n" + run.stdout if run.returncode == 0 else f"exit {run.returncode}\n{run.stderr}"
    if run.returncode == 0:
        with tempfile.TemporaryDirectory() as folder:
            again = pathlib.Path(folder, "own.yaml")
            again.write_text(run.stdout)
            # It is read up to the model, which init needs with a configuration of fsdpc's own.
            own = init(fsdpc, again)
            if "a file is missing" not in own.stderr:
                text += "read again: " + own.stderr
    return text


def sourceOf(path):
    first = path.read_text().split("\n", 1)[0]
    return first if first.startswith("# ") and ":" in first and "/" in first else None


def main():
    fsdpc, folder, update = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]), "--update" in sys.argv
    files = sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml", ".json", ".toml"))
    orphans = {path.name for path in folder.glob("*.expected")} - {path.name + ".expected" for path in files}
    failed = [f"{name}: belongs to no file" for name in sorted(orphans)]
    for path in files:
        beside = path.with_name(path.name + ".expected")
        source = sourceOf(path) or (beside.is_file() and sourceOf(beside))
        if not source:
            failed.append(f"{path.name}: its first line names no source")
        found = ("" if sourceOf(path) else f"{source}\n") + outcome(fsdpc, path)
        if update:
            beside.write_text(found)
        elif not beside.is_file():
            failed.append(f"{path.name}: has no expectation")
        elif found != beside.read_text():
            failed.append(f"{path.name}: expected\n{beside.read_text()}found\n{found}")
    print("\n".join(failed) or f"{len(files)} files mean what is expected")
    return 1 if failed or not files else 0


if __name__ == "__main__":
    sys.exit(main())
