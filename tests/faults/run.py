#!/usr/bin/env python3
"""Faults of processes, disks and clocks, put into real runs.   run.py [--full] [--parts A,B] [--record] [--build DIR]

A program of two ranks trains with checkpoints while something goes wrong. After each fault: the run ended with the right exit
code and named the right culprit, no rank is left, and a run with `--resume auto` finds a checkpoint, loses at most one interval
(with --checkpoint_staging host also what was done while a checkpoint was written, at most another), and ends with the bits of the
run that nothing happened to.
Without --full a part of each kind, for every change. --record writes RESULTS.md. Prints a line for each part, and
`faults: N passed, F failed`; exits 0 or 1.
"""
import argparse, json, os, pathlib, random, re, resource, shutil, signal, subprocess, sys, tempfile, time

from bench import INTERVAL, RANKS, ROOT, STEPS, Bench, Tally, last_step, preloaded, wait_for, write_data
import lost_writes, wrong_results


def moments_of(bench, rank):
    """The disk operations of a whole run, twice: before and after."""
    bench.clear("count")
    ended = bench.run(bench.arguments("count"), {"FSDPC_DISK_FAULT": f"{rank}:0:0"})
    return len(re.findall(r"disk moment \d+", ended.output))


def killed_at_every_moment(bench, full):
    tally = Tally()
    for rank in range(RANKS):
        count = moments_of(bench, rank)
        for moment in range(1, count + 1, 1 if full else max(1, count // 6) | 1):
            bench.clear("moment")
            staging = ("host", "off")[moment % 2]
            ended = bench.run(bench.arguments("moment", "--checkpoint_staging", staging), {"FSDPC_DISK_FAULT": f"{rank}:{moment}:kill"})
            fault, lost = (None, 0) if ended.status == 137 else (f"ended with {ended.status}, not killed", 0)
            if fault is None:
                fault, lost = bench.recover("moment", staging=staging)
            tally.add(f"rank {rank} killed at moment {moment}", fault, lost)
    return tally


def errors_of_the_disk(bench, full):
    """EIO, ENOSPC, EDQUOT and EROFS at the k-th operation."""
    tally = Tally()
    failed = 0
    for error in (5, 28, 122, 30) if full else (5, 28):
        for rank in range(RANKS):
            count = moments_of(bench, rank)
            for moment in range(1, count + 1, 2 if full else max(2, count // 4)):
                bench.clear("error")
                ended = bench.run(bench.arguments("error"), {"FSDPC_DISK_FAULT": f"{rank}:{moment}:{error}"})
                fault, lost = None, 0
                # After an operation an error changes nothing; many are before one.
                failed += ended.status == 8
                if ended.status != 0 and (ended.status, ended.code, ended.rank) != (8, 8, rank):
                    fault = f"ended with {ended.status}, exit={ended.code} rank={ended.rank}: {ended.output[-400:]}"
                if fault is None:
                    fault, lost = bench.recover("error")
                tally.add(f"error {error} on rank {rank} at moment {moment}", fault, lost)
    if failed < tally.injected / 4:
        tally.wrong.append(f"only {failed} of {tally.injected} runs met an error")
    return tally


def killed_at_random(bench, full):
    tally = Tally()
    numbers = random.Random(7)
    for trial in range(200 if full else 8):
        bench.clear("random")
        process = bench.start(bench.arguments("random"))
        time.sleep(numbers.uniform(0, bench.seconds * 1.1))
        victims = bench.ranks()
        victim = victims.get(numbers.randrange(RANKS))
        if victim is None: # not started yet, or over: nothing is injected
            bench.finish(process)
            continue
        os.kill(victim, signal.SIGKILL)
        ended = bench.finish(process)
        fault, lost = (None, 0) if ended.status in (137, 0) or ended.launcher_hangs else (f"ended with {ended.status}: {ended.output[-300:]}", 0)
        if fault is None:
            fault, lost = bench.recover("random")
        tally.add(f"trial {trial}", fault, lost)
    return tally


def killed_while_resuming(bench, full):
    """A run that goes on is killed while it reads its checkpoint, or soon after; the next one goes on all the same."""
    tally = Tally()
    numbers = random.Random(9)
    for trial in range(60 if full else 4):
        bench.clear("resuming")
        process = bench.start(bench.arguments("resuming", "--steps", 4000))
        wait_for(lambda: last_step(bench.folder / "resuming.jsonl") > 2 * INTERVAL)
        for rank in bench.ranks().values():
            os.kill(rank, signal.SIGKILL)
        bench.finish(process)
        process = bench.start(bench.arguments("resuming", "--resume", "auto", "--steps", 4000))
        victim = numbers.randrange(RANKS)
        wait_for(lambda: victim in bench.ranks())
        time.sleep(numbers.uniform(0, bench.seconds / 2))
        if victim in bench.ranks():
            os.kill(bench.ranks()[victim], signal.SIGKILL)
        ended = bench.finish(process)
        fault = None if ended.status == 137 or ended.launcher_hangs else f"ended with {ended.status}: {ended.output[-300:]}"
        left = bench.orphans()
        intact = subprocess.run([bench.fsdpc, "checkpoint", "verify", bench.folder / "resuming"], capture_output=True, text=True)
        if fault is None and (left or intact.returncode != 0):
            fault = f"ranks {left} were left; {intact.stdout[-300:]}"
        again = bench.run(bench.arguments("resuming", "--resume", "auto", "--max_runtime", "1s", "--steps", 100000))
        if fault is None and (again.status != 75 or "goes on after step" not in again.output):
            fault = f"going on ended with {again.status}: {again.output[-300:]}"
        tally.add(f"trial {trial}", fault)
    return tally


def clock_set(bench, full):
    """The wall clock jumps by an hour, again and again: nothing times out, and no bit changes."""
    tally = Tally()
    bench.clear("clock")
    ended = bench.run(bench.arguments("clock"), {"LD_PRELOAD": preloaded(bench, "jumping_clock")})
    fault = None if ended.status == 0 else f"ended with {ended.status}: {ended.output[-400:]}"
    if fault is None and (bench.folder / "clock.safetensors").read_bytes() != bench.whole:
        fault = "other bits than the run that nothing happened to"
    steps = [json.loads(line) for line in (bench.folder / "clock.jsonl").read_text().splitlines() if line.startswith('{"step"')]
    if fault is None and not all(0 < step["step_ms"] < 60e3 for step in steps):
        fault = f"times of steps: {[step['step_ms'] for step in steps]}"
    tally.add("one run", fault)
    return tally


def stopped_in_evaluation(bench, full):
    """A signal during an evaluation ends it; the run that goes on repeats it, and evaluates all in all as if nothing had happened."""
    tally = Tally()
    write_data(bench.folder / "val.safetensors", 60000)
    more = ["--val_data", bench.folder / "val.safetensors", "--eval_every", 4]

    def evaluations(name):
        lines = (json.loads(line) for line in (bench.folder / f"{name}.jsonl").read_text().splitlines())
        return [(line["step"], line["epoch"], line["val_loss"]) for line in lines if "val_loss" in line]

    bench.clear("evaluated")
    bench.run(bench.arguments("evaluated", *more))
    expected = evaluations("evaluated")
    for trial in range(8 if full else 2):
        bench.clear("stopped")
        process = bench.start(bench.arguments("stopped", *more))
        wait_for(lambda: last_step(bench.folder / "stopped.jsonl") >= 4 + 4 * (trial % 3))
        time.sleep(0.02)
        for rank in list(bench.ranks().values())[:1]:
            os.kill(rank, signal.SIGUSR1)
        ended = bench.finish(process)
        fault = None if ended.code == 75 else f"ended with {ended.status}: {ended.output[-400:]}"
        again = bench.run(bench.arguments("stopped", "--resume", "auto", *more))
        if fault is None and (again.status != 0 or evaluations("stopped") != expected):
            fault = f"going on ended with {again.status}; {evaluations('stopped')} for {expected}"
        if fault is None and (bench.folder / "stopped.safetensors").read_bytes() != bench.whole:
            fault = "other bits than the run that nothing happened to"
        tally.add(f"trial {trial}", fault)
    return tally


def handles(process, number):
    try:
        caught = re.search(r"SigCgt:\s*(\w+)", pathlib.Path(f"/proc/{process}/status").read_text())
    except OSError:
        return False
    return bool(caught) and int(caught[1], 16) >> (number - 1) & 1 == 1


def signalled(bench, full):
    """A signal to the launcher or to one rank, at random moments: exit code 75 and a checkpoint of the last step."""
    tally = Tally()
    numbers = random.Random(3)
    for trial in range(60 if full else 6):
        bench.clear("signal")
        number = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)[trial % 3]
        process = bench.start(bench.arguments("signal", "--steps", 20000))
        # Before the program handles it, a signal kills; then nothing is lost that was not there.
        started = wait_for(lambda: len(bench.ranks()) == RANKS and all(handles(p, number) for p in bench.ranks().values()))
        time.sleep(numbers.uniform(0, bench.seconds + 0.3))
        rank = bench.ranks().get(numbers.randrange(RANKS))
        if started and rank:
            os.kill(rank, number)
        ended = bench.finish(process)
        fault = None if (ended.status, ended.code) == (75, 75) else f"ended with {ended.status}: {ended.output[-400:]}"
        if fault is None and "checkpoint=step-" not in ended.output:
            fault = "no checkpoint is named"
        bench.orphans()
        tally.add(f"trial {trial}: {number.name}", fault)
    return tally


def stopped_rank(bench, full):
    """SIGSTOP: the others give up within the time limit and name the rank."""
    tally = Tally()
    for rank in range(RANKS) if full else (1,):
        bench.clear("stopped")
        process = bench.start(bench.arguments("stopped", "--steps", 4000, "--train_timeout_seconds", 4))
        wait_for(lambda: last_step(bench.folder / "stopped.jsonl") > 2 * INTERVAL)
        os.kill(bench.ranks()[rank], signal.SIGSTOP)
        ended = bench.finish(process)
        fault = None if ended.code == 6 and f"missing={rank}" in ended.output else f"ended with {ended.status}: {ended.output[-400:]}"
        if left := bench.orphans():
            fault = fault or f"ranks {left} were left"
        tally.add(f"rank {rank}", fault)
    for staging in ("host", "off"):
        stopped_in_a_save(bench, staging, tally)
    return tally


def stopped_in_a_save(bench, staging, tally):
    """Rank 0 waits for the part of the rank that was stopped, and names it."""
    bench.clear("stopped")
    ended = bench.run(bench.arguments("stopped", "--checkpoint_staging", staging, "--train_timeout_seconds", 4, "--init_timeout_seconds", 15),
                      {"FSDPC_DISK_FAULT": "1:12:stop"}) # in its first save
    fault = None if ended.code == 6 and "missing=1" in ended.output else f"ended with {ended.status}: {ended.output[-400:]}"
    if left := bench.orphans():
        fault = fault or f"ranks {left} were left"
    tally.add(f"rank 1 in a save, staging {staging}", fault)


def launcher_killed(bench, full):
    tally = Tally()
    for trial in range(10 if full else 1):
        bench.clear("launcher")
        process = bench.start(bench.arguments("launcher", "--steps", 4000))
        wait_for(lambda: last_step(bench.folder / "launcher.jsonl") > 2 * INTERVAL)
        os.killpg(process.pid, signal.SIGKILL) if trial % 2 else kill_launcher(process)
        ended = bench.finish(process)
        left = bench.orphans()
        tally.add(f"trial {trial}", f"ranks {left} were left" if left else "the launcher was not killed" if ended.status == 0 else None)
    return tally


def kill_launcher(process):
    """mpirun itself, which may be the child of a script."""
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getpgid(int(entry.name)) == process.pid and os.readlink(entry / "exe").endswith(("orterun", "mpirun")):
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            pass


IN_MOUNTS = """
set -e
mount -t tmpfs -o size=%(size)s none "$1"
shift
%(before)s
"$@" & job=$!
%(during)s
wait $job || status=$?
if [ -d %(folder)s ]; then cp -r %(folder)s/. %(keep)s/; fi # on too small a disk it may never have been made
exit ${status:-0}
"""


def file_systems(bench, full):
    """A full disk, and one that is read-only, as real mounts; a limit on the size of files."""
    tally = Tally()
    disk, keep = bench.folder / "disk", bench.folder / "keep"
    disk.mkdir(exist_ok=True)
    # Some machines give namespaces to root only.
    forbidden = subprocess.run(["unshare", "-Urm", "true"], stderr=subprocess.DEVNULL).returncode
    namespace = ["unshare", "-m" if forbidden else "-Urm"]

    def mounted(name, size, before, during, expected):
        bench.clear(name)
        shutil.rmtree(keep, ignore_errors=True)
        keep.mkdir()
        script = IN_MOUNTS % {"size": size, "before": before, "during": during, "folder": disk / "c", "keep": keep}
        ended = bench.run(bench.arguments(name, "--steps", 4000, checkpoints=disk / "c"), wrapper=[*namespace, "sh", "-c", script, "sh", disk])
        fault = None if (ended.status, ended.code) == expected else f"ended with {ended.status}: {ended.output[-500:]}"
        if fault is None and during:
            complete = [p for p in keep.glob("step-*") if ".tmp-" not in p.name]
            intact = [subprocess.run([bench.fsdpc, "checkpoint", "verify", p], stdout=subprocess.DEVNULL).returncode == 0 for p in complete]
            fault = None if intact and all(intact) else f"no checkpoint is left, or a damaged one: {complete} {intact}"
        bench.orphans()
        tally.add(name, fault)

    # All the time, because the run itself gives space back when it deletes a checkpoint.
    full_soon = f'until ls {disk}/c | grep -q "^step-[0-9]*$"; do sleep 0.01; done; ' \
                f'while kill -0 $job 2>/dev/null; do dd if=/dev/zero bs=4096 >> {disk}/fill 2>/dev/null || sleep 0.01; done'
    weights_kept_for(bench, tally, namespace, disk, keep)
    mounted("full", "1m", "", full_soon, (8, 8))
    mounted("small", "100k", "", "", (8, 8))
    mounted("readonly", "1m", f"mkdir {disk}/c; mount -o remount,ro {disk}", "", (8, 8))
    bench.clear("limited")
    process = bench.start(bench.arguments("limited", "--steps", 100000))
    # From the first steps on: MPI's own files are larger.
    wait_for(lambda: last_step(bench.folder / "limited.jsonl") > INTERVAL)
    for rank in bench.ranks().values():
        resource.prlimit(rank, resource.RLIMIT_FSIZE, (20000, 20000))
    ended = bench.finish(process)
    tally.add("limit on the size of files", None if (ended.status, ended.code) == (8, 8) else f"ended with {ended.status}: {ended.output[-400:]}")
    return tally


def weights_kept_for(bench, tally, namespace, disk, keep):
    """The weights at the end have their space from the start on: the disk is full by then, and they are saved. If it is too small,
    the run does not begin."""
    # dd ends when there is no space left. If it ends otherwise, the disk was not full, and this tests nothing.
    fill = f'until grep -qs "\\"step\\":" {disk}/log; do sleep 0.01; done; ' \
           f'if LC_ALL=C dd if=/dev/zero bs=512 of={disk}/fill 2> {keep}/dd; then exit 3; fi; grep -q "No space left" {keep}/dd || exit 3'
    for size, status in ((200 << 10, 0), (len(bench.whole) // 2, 8)):
        bench.clear("kept")
        shutil.rmtree(keep, ignore_errors=True)
        keep.mkdir()
        script = IN_MOUNTS % {"size": size, "before": "", "during": fill if status == 0 else "", "folder": disk, "keep": keep}
        arguments = bench.arguments("kept", "--save_model", disk / "final", "--log", disk / "log", "--steps", STEPS)
        ended = bench.run(arguments, {"FSDPC_SLOW_RANK": "0:50"}, wrapper=[*namespace, "sh", "-c", script, "sh", disk])
        fault = None if ended.status == status else f"ended with {ended.status}: {ended.output[-500:]}"
        if fault is None and status == 0 and (keep / "final").read_bytes() != bench.whole:
            fault = "other weights than those of the run that nothing happened to"
        if fault is None and status == 0 and ended.output.count("log: cannot write") != 1:
            fault = f"what the log said: {ended.output[-500:]}"
        if fault is None and status == 8 and "cannot reserve" not in ended.output:
            fault = f"said {ended.output[-300:]}"
        tally.add(f"weights on a disk of {size} bytes", fault)


def limits(bench, full):
    """Too little memory: the run ends, and no rank waits."""
    tally = Tally()
    for value in (150 << 20, 100 << 20):
        bench.clear("limits")
        ended = limited_ranks(bench, value)
        tally.add(f"memory of {value >> 20} MiB", None if ended.status not in (None, 0) and ended.seconds < 40 else f"ended with {ended.status} after {ended.seconds:.0f} s: {ended.output[-400:]}")
    return tally


def limited_ranks(bench, value):
    script = f'ulimit -v {value >> 10}; exec "$0" "$@"'
    command = ["mpirun", "-n", RANKS, "bash", "-c", script, bench.program, *bench.arguments("limits")]
    process = subprocess.Popen([str(c) for c in command], cwd=bench.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
    return bench.finish(process)


PARTS = {
    "killed_at_every_moment": killed_at_every_moment,
    "killed_at_random": killed_at_random,
    "killed_while_resuming": killed_while_resuming,
    "errors_of_the_disk": errors_of_the_disk,
    "file_systems": file_systems,
    "signalled": signalled,
    "stopped_in_evaluation": stopped_in_evaluation,
    "stopped_rank": stopped_rank,
    "launcher_killed": launcher_killed,
    "limits": limits,
    "clock_set": clock_set,
    **lost_writes.PARTS,
    **wrong_results.PARTS,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory(prefix="fsdpc-faults-") as folder:
        bench = Bench(pathlib.Path(folder).resolve(), options.build)
        for name in options.parts.split(","):
            started = time.monotonic()
            tally = results[name] = PARTS[name](bench, options.full)
            if tally.injected == 0:
                tally.wrong.append("nothing was injected")
            print(f"{'ok  ' if not tally.wrong else 'FAIL'} {name}: {tally.injected} injected, {tally.survived} survived, at most "
                  f"{tally.most_lost} steps lost ({time.monotonic() - started:.0f} s)", flush=True)
            for wrong in tally.wrong[:10]:
                print(f"  {wrong}", flush=True)
    if options.record:
        record(results, options.full)
    failed = sum(bool(t.wrong) for t in results.values())
    print(f"faults: {len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


def record(results, full):
    rows = "".join(f"| {name.replace('_', ' ')} | {t.injected} | {t.survived} | {t.most_lost} | {len(t.wrong)} |\n" for name, t in results.items())
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    (ROOT / "tests/faults/RESULTS.md").write_text(
        f"# Faults put into real runs\n\n`tests/faults/run.py{' --full' if full else ''} --record` wrote this file at {commit}. Two ranks, {STEPS} steps, a checkpoint every "
        f"{INTERVAL}.\n*Survived*: right exit code and culprit, no rank left, and the run that went on ended with the bits of the uninterrupted one.\n\n"
        f"| part | injected | survived | most steps lost | wrong |\n|---|---|---|---|---|\n{rows}")


if __name__ == "__main__":
    sys.exit(main())
