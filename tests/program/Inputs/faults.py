#!/usr/bin/env python3
"""Runs an emitted program on several ranks, injects a fault while it trains, and checks how it ends.

    faults.py stop_rank PROGRAM RANKS VICTIM BATCH [option...]      a stopped rank: exit 6, closing line, traces
    faults.py stop_before_start PROGRAM RANKS VICTIM BATCH          ... before it has joined the others
    faults.py kill_rank PROGRAM RANKS VICTIM BATCH [option...]      kill -9 of a rank: the launcher's status, 128 + 9
    faults.py page_of_killed PROGRAM RANKS BATCH                    ... of all ranks: the page of --report is whole, and did not stand still
    faults.py kill_launcher PROGRAM RANKS BATCH                     kill -9 of mpirun, one of its ranks stopped
    faults.py cut_link PROGRAM RANKS BATCH [option...]              inside cluster/hosts.sh 2: a network that is cut
    faults.py suspend_job PROGRAM RANKS BATCH                       all ranks stopped for longer than the limit: continues

Each rank is found by its working folder, WORK = PROGRAM.<scenario>, which also shows whether one is left over. Time limits
only stop runs that would never end.
"""
import json, os, pathlib, re, shutil, signal, subprocess, sys, time

PATIENCE_SECONDS = 120
LIMIT_SECONDS = 6
MOST_BETWEEN_COLLECTIVES = 5  # runs whose rank is stopped there


def require(condition, message):
    if not condition:
        sys.exit("faults.py: " + message)


def until(condition, what):
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        require(time.monotonic() < end, f"{what}: not within {PATIENCE_SECONDS} s")
        time.sleep(0.05)


class Job:
    def __init__(self, scenario, program, ranks, batch, *options, wrapper=(), launch=()):
        self.program, self.ranks = pathlib.Path(program).resolve() / "train", ranks
        self.work = pathlib.Path(f"{program}.{scenario}").absolute()
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        self.log, self.output = self.work / "log.jsonl", self.work / "output.txt"
        command = ["mpirun", "-n", str(ranks), *launch, *wrapper, str(self.program), "--batch", str(pathlib.Path(batch).resolve()), "--steps", "1000000000",
                   "--log", str(self.log), "--log_freq", "20", "--progress", "none",
                   "--train_timeout_seconds", str(LIMIT_SECONDS), *options]
        with open(self.output, "w") as output:
            self.process = subprocess.Popen(command, cwd=self.work, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def processes(self):
        """Processes that run the program for this job, zombies excepted: rank by process id."""
        found = {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if (folder / "cwd").resolve() != self.work or (folder / "exe").resolve() != self.program:
                    continue
                environment = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            found[int(folder.name)] = next(int(entry.split(b"=")[1]) for entry in environment if entry.startswith(b"OMPI_COMM_WORLD_RANK="))
        return found

    def pid_of(self, rank):
        pids = [pid for pid, its in self.processes().items() if its == rank]
        require(len(pids) == 1, f"rank {rank} is {len(pids)} processes; the program said:\n{self.text()}")
        return pids[0]

    def launcher(self):
        """The real mpirun: the parent of a rank."""
        status = pathlib.Path(f"/proc/{self.pid_of(0)}/status").read_text()
        return int(re.search(r"PPid:\s+(\d+)", status).group(1))

    def lines(self):
        return self.log.read_text().count('"step":') if self.log.exists() else 0

    def await_steps(self):
        begun = self.lines()
        until(lambda: self.lines() > begun + 1 or self.process.poll() is not None, "steps")
        require(self.process.poll() is None, "ended by itself:\n" + self.text())

    def text(self):
        return self.output.read_text()

    def await_end(self):
        try:
            return self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            require(False, "does not end; it said:\n" + self.text())

    def require_nothing_left(self):
        until(lambda: not self.processes(), "a rank stays behind")

    def destroy(self):
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        if self.process.poll() is None:
            self.process.kill()


def closing_lines(text):
    return [dict(word.split("=", 1) for word in line.split()[1:]) for line in text.splitlines() if line.startswith("fsdpc: exit=")]


def require_trace(job, rank):
    """Checks the trace of a rank that was not the victim, and returns its collectives that are not complete, by number."""
    trace = json.loads((job.work / f"comm_traces/rank_{rank}.json").read_text())
    require(trace["schema"] == "fsdpc.comm_trace/1" and trace["rank"] == rank, f"another trace: {trace['rank']}")
    require(trace["exit"] == 6 and trace["phase"] == "step" and trace["step"] > 0, f"{trace['exit']} {trace['phase']} {trace['step']}")
    records = trace["collectives"]
    require(0 < len(records) <= 256, f"{len(records)} collectives")
    require([record["seq"] for record in records] == list(range(records[0]["seq"], records[-1]["seq"] + 1)), "sequence numbers")
    (waited,) = [record for record in records if record["seq"] == trace["waiting_for_seq"]]
    require(waited["state"] in ("started", "begun", "done") and waited["started_ms_ago"] >= 0 and waited["bytes"] > 0, f"{waited}")
    require(any(record["state"] == "waited" for record in records), "no collective is complete")
    require(len(trace["ranks"]) == job.ranks, "the ranks")
    return {record["seq"]: record for record in records if record["state"] != "waited"}


def stop_rank(program, ranks, victim, batch, *options):
    for _ in range(MOST_BETWEEN_COLLECTIVES):
        job = Job("stop_rank", program, ranks, batch, *options)
        try:
            job.await_steps()
            os.kill(job.pid_of(victim), signal.SIGSTOP)
            status = job.await_end()
            require(status == 6, f"status {status}:\n{job.text()}")
            named = require_victim_named(job, victim)
            job.require_nothing_left()
        finally:
            job.destroy()
        if named:
            return
    require(False, "no run named a collective")


def require_victim_named(job, victim):
    """Returns whether a collective was named: the reporter may wait for the times that every rank reports between two steps."""
    (closing,) = closing_lines(job.text())
    reporter = 1 if victim == 0 else 0
    require(closing["exit"] == "6" and closing["rank"] == str(reporter) and closing["missing"] == str(victim), f"{closing}")
    if "seq" not in closing:
        require(closing["phase"] == "step" and f"the others wait for rank {victim}, which is stopped" in job.text(), job.text())
        return False
    incomplete = require_trace(job, reporter)
    named = incomplete.get(int(closing["seq"]))
    require(named and closing["op"] == named["op"] and closing.get("unit", "") == named["unit"], f"{closing} {incomplete}")
    require(f"rank {victim} did not join within {LIMIT_SECONDS} s: {named['op']}" in job.text(), job.text())
    for rank in set(range(job.ranks)) - {victim, reporter}:
        require_trace(job, rank)
    return True


def stop_before_start(program, ranks, victim, batch):
    wrapper = ["bash", "-c", f'[ "$OMPI_COMM_WORLD_RANK" = {victim} ] && kill -STOP $$; exec "$0" "$@"']
    job = Job("stop_before_start", program, ranks, batch, "--init_timeout_seconds", str(LIMIT_SECONDS), wrapper=wrapper)
    try:
        status = job.await_end()
        require(status == 6, f"status {status}:\n{job.text()}")
        require(any(line["exit"] == "6" and line["phase"] == "start_up" for line in closing_lines(job.text())), job.text())
        require(not job.log.exists(), "it began")
        job.require_nothing_left()
    finally:
        job.destroy()


def kill_rank(program, ranks, victim, batch, *options):
    job = Job("kill_rank", program, ranks, batch, *options)
    try:
        job.await_steps()
        os.kill(job.pid_of(victim), signal.SIGKILL)
        status = job.await_end()
        require(status == 128 + signal.SIGKILL, f"status {status}:\n{job.text()}")
        require(f"process rank {victim} " in job.text(), f"the launcher does not name rank {victim}:\n{job.text()}")
        job.require_nothing_left()
    finally:
        job.destroy()


def page_of_killed(program, ranks, batch):
    job = Job("page_of_killed", program, ranks, batch, "--report", "page.html")
    page = job.work / "page.html"
    try:
        until(page.exists, "the page")
        first = page.read_text()
        until(lambda: page.read_text() != first, "another page")
        for pid in job.processes():
            os.kill(pid, signal.SIGKILL)
        job.await_end()
        for text in (first, page.read_text()):
            require(text.endswith("</html>\n") and '"state":"running"' in text, f"the page ends with {text[-200:]}")
        require('"step":' in page.read_text(), "the page has no step")
    finally:
        job.destroy()


def kill_launcher(program, ranks, batch):
    job = Job("kill_launcher", program, ranks, batch)
    try:
        job.await_steps()
        launcher = job.launcher()
        os.kill(job.pid_of(ranks - 1), signal.SIGSTOP)
        os.kill(launcher, signal.SIGKILL)
        job.require_nothing_left()
        job.await_end()
    finally:
        job.destroy()


def cut_link(program, ranks, batch, *options):
    """Half of the ranks live on either side. Those of host1 can tell nobody, but have to end by themselves."""
    hosts = os.environ["FSDPC_HOSTS"]
    job = Job("cut_link", program, ranks, batch, *options, launch=["--host", f"host0:{ranks // 2},host1:{ranks // 2}"])
    try:
        job.await_steps()
        subprocess.run([hosts + "/link", "host1", "down"], check=True)
        status = job.await_end()
        require(status == 128 + signal.SIGKILL, f"status {status}:\n{job.text()}")  # of mpirun, which waits for host1 forever
        (closing,) = closing_lines(job.text())
        require(closing["exit"] == "6" and closing["rank"] == "0" and closing["missing"] == str(ranks // 2), f"{closing}")
        job.require_nothing_left()
    finally:
        job.destroy()


def suspend_job(program, ranks, batch):
    job = Job("suspend_job", program, ranks, batch)
    try:
        job.await_steps()
        pids = list(job.processes())
        require(len(pids) == ranks, f"{len(pids)} processes")
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(2 * LIMIT_SECONDS)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        job.await_steps()
        require(not closing_lines(job.text()), job.text())
    finally:
        job.destroy()


def main():
    scenario, program, ranks, *rest = sys.argv[1:]
    numbers = 1 if scenario in ("stop_rank", "stop_before_start", "kill_rank") else 0
    globals()[scenario](program, int(ranks), *map(int, rest[:numbers]), *rest[numbers:])


if __name__ == "__main__":
    main()
