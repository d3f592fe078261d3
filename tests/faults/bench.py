"""The program that faults are put into, its runs, and what became of them."""
import dataclasses, json, os, pathlib, random, re, shutil, signal, struct, subprocess, time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STEPS, INTERVAL, RANKS = 16, 3, 2
NAMED = re.compile(r"fsdpc: exit=(\d+) rank=(\d+)")
GOES_ON = re.compile(r"goes on after step (\d+)")


@dataclasses.dataclass
class Tally:
    """What a part has seen."""
    injected: int = 0
    survived: int = 0
    most_lost: int = 0          # steps
    wrong: list = dataclasses.field(default_factory=list)

    def add(self, name, fault, lost=0):
        self.injected += 1
        self.survived += fault is None
        self.most_lost = max(self.most_lost, lost)
        if fault is not None:
            self.wrong.append(f"{name}: {fault}")


class Ended:
    def __init__(self, status, output, seconds):
        self.status, self.output, self.seconds = status, output, seconds
        named = NAMED.search(output)
        self.code, self.rank = (int(named[1]), int(named[2])) if named else (None, None)

    @property
    def launcher_hangs(self):
        """Open MPI 4.1's mpirun may not end if a rank dies while it connects to it. Nothing of a program runs then."""
        return self.status is None and "ptl_base_connection_hdlr.c" in self.output


class Bench:
    """A program, its data, and the run that nothing happens to."""

    def __init__(self, folder, build, count=RANKS, strategy="full_shard"):
        self.folder, self.build, self.fsdpc, self.count = folder, build, build / "fsdpc", count
        folder.mkdir(exist_ok=True)
        self.program = folder / "out" / "train"
        model = ROOT / "tests/fixtures/mlp/model.onnx"
        if not model.exists():
            model = pathlib.Path(os.environ.get("FSDPC_FIXTURES", ROOT.parent / "shared/fixtures")) / "mlp/model.onnx"
        subprocess.run([build / "fsdpc", model, "--target", "cpu", "--test_build", "--world_size", str(count), "--strategy", strategy, "--micro_batch_size", "2",
                        "--loss", "cross_entropy", "--optimizer", "adamw", "--lr", "0.01", "-o", folder / "out"],
                       check=True, stdout=subprocess.DEVNULL)
        write_data(folder / "data.safetensors", 24)
        ended = self.run(self.arguments("whole"))
        assert ended.status == 0, ended.output
        self.whole = (folder / "whole.safetensors").read_bytes()
        self.seconds = ended.seconds

    def arguments(self, name, *more, checkpoints=None):
        return ["--train_data", self.folder / "data.safetensors", "--shuffle", "--steps", STEPS, "--log_freq", 1, "--progress", "plain",
                "--checkpoint_folder", checkpoints or self.folder / name, "--checkpoint_interval", INTERVAL, "--train_timeout_seconds", 40,
                "--init_timeout_seconds", 40, "--log", self.folder / f"{name}.jsonl", "--save_model", self.folder / f"{name}.safetensors", *more]

    def start(self, arguments, environment={}, wrapper=()):
        command = [*wrapper, "mpirun", "-n", self.count, self.program, *arguments]
        return subprocess.Popen([str(c) for c in command], cwd=self.folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)

    def finish(self, process, timeout=150):
        started = time.monotonic()
        try:
            output, _ = process.communicate(timeout=timeout)
            status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            status = None
        return Ended(status, output, time.monotonic() - started)

    def run(self, arguments, environment={}, **more):
        return self.finish(self.start(arguments, environment, **more))

    def ranks(self):
        """The processes of the program, by rank."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.readlink(entry / "exe") == str(self.program):
                    variables = (entry / "environ").read_bytes().split(b"\0")
                    rank = next((int(v.split(b"=")[1]) for v in variables if v.startswith(b"OMPI_COMM_WORLD_RANK=")), 0)
                    found[rank] = int(entry.name)
            except OSError:
                pass
        return found

    def orphans(self):
        """Waits up to five seconds for the ranks to end. Returns those that do not."""
        until = time.monotonic() + 5
        while self.ranks() and time.monotonic() < until:
            time.sleep(0.02)
        left = list(self.ranks().values())
        for process in left:
            os.kill(process, signal.SIGKILL)
        return left

    def recover(self, name, checkpoints=None, staging="host"):
        """Goes on. Returns (what is wrong or None, steps lost)."""
        if left := self.orphans():
            return f"ranks {left} were left", 0
        done = last_step(self.folder / f"{name}.jsonl")
        ended = self.run(self.arguments(name, "--resume", "auto", checkpoints=checkpoints))
        if ended.status != 0:
            return f"going on ended with {ended.status}: {ended.output[-600:]}", 0
        if (self.folder / f"{name}.safetensors").read_bytes() != self.whole:
            return "other bits than the run that nothing happened to", 0
        resumed = GOES_ON.search(ended.output)
        lost = done - (int(resumed[1]) if resumed else 0)
        # While a checkpoint is written, the training goes on to the next one at most.
        if lost > (1 if staging == "off" else 2) * INTERVAL:
            return f"{lost} steps were lost", lost
        for left in pathlib.Path(checkpoints or self.folder / name).iterdir():
            if ".tmp-" in left.name or left.name.startswith("trash-"):
                return f"{left.name} was left", lost
        return None, lost

    def clear(self, name):
        for path in (self.folder / name, self.folder / f"{name}.jsonl", self.folder / f"{name}.safetensors"):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def write_data(path, samples):
    numbers = random.Random(1)
    x = struct.pack(f"<{samples * 32}f", *(numbers.uniform(-1, 1) for _ in range(samples * 32)))
    labels = struct.pack(f"<{samples}q", *(numbers.randrange(10) for _ in range(samples)))
    header = json.dumps({"labels": {"dtype": "I64", "shape": [samples], "data_offsets": [0, len(labels)]},
                         "x": {"dtype": "F32", "shape": [samples, 32], "data_offsets": [len(labels), len(labels) + len(x)]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + labels + x)


def last_step(log):
    """The last step that the log has; 0 if there is none."""
    try:
        steps = [json.loads(line).get("step", 0) for line in log.read_text().splitlines() if line.startswith('{"step"') and line.endswith("}")]
    except OSError:
        return 0
    return max(steps, default=0)


def wait_for(condition, seconds=20):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def preloaded(bench, name):
    """The library of tests/faults/NAME.c, for LD_PRELOAD."""
    library = bench.folder / f"{name}.so"
    if not library.exists():
        source = pathlib.Path(__file__).resolve().parent / f"{name}.c"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", source, "-o", library, "-ldl", "-lpthread"], check=True)
    return str(library)
