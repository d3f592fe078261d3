"""The steps of tests/run.sh. Each counts what it ran; a step that crashes counts as one failure.

Counted once each: a GoogleTest case, a lit file, a class of mutants, the sweep, an acceptance run, a random graph or program,
the format check, the include check, the check of words. A skipped case fails unless SKIPS has a reason for it; then it is printed and counted
neither way.
"""
import concurrent.futures, dataclasses, fixture_sets, functools, json, os, pathlib, re, shutil, signal, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
BUILD_ASAN = ROOT / "build-asan"
LIT = "/usr/lib/llvm-19/build/utils/lit/lit.py"
JOBS = max(2, min(4, (os.cpu_count() or 2) // 2))


@dataclasses.dataclass
class Result:
    passed: int = 0
    failed: int = 0
    note: str = ""                  # shown next to the counts
    output: str = ""                # shown when something failed

    def __add__(self, other):
        return Result(self.passed + other.passed, self.failed + other.failed, "; ".join(filter(None, (self.note, other.note))),
                      "\n".join(filter(None, (self.output, other.output))))


def run(command, timeout=1800, **environment):
    """(exit status, output). A command past its time limit is stopped with its child processes, and its status is None."""
    process = subprocess.Popen([str(c) for c in command], cwd=ROOT, env={**os.environ, **environment}, text=True, errors="replace",
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=timeout)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        # Ranks are in their own process groups. mpirun ends them on SIGTERM, not when it is killed.
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, signal_number)
                output, _ = process.communicate(timeout=10)
                break
            except subprocess.TimeoutExpired:
                output = ""
            except ProcessLookupError:
                output, _ = process.communicate()
                break
        return None, f"{output}\nstopped after {timeout} s: {' '.join(map(str, command))}"


def check(command):
    status, output = run(command)
    return Result(1, 0) if status == 0 else Result(0, 1, output=output)


def build():
    # Without a device nothing runs kernels, and to optimize and assemble them takes minutes. Who configured build/ keeps that.
    draft = ["-DFSDPC_DRAFT_KERNELS=ON", "-DCMAKE_CUDA_ARCHITECTURES=80-virtual"]
    kernels = [] if shutil.which("nvidia-smi") or (BUILD / "CMakeCache.txt").exists() else draft
    for command in (["cmake", "--preset", "default", *kernels], ["cmake", "--build", "--preset", "default"], ["cmake", "--preset", "asan"],
                    build_sanitized()):
        status, output = run(command, timeout=3600)
        if status != 0:
            return Result(0, 1, " ".join(command) + " failed", output)
    return Result(note="build/ and build-asan/ are up to date")


# Cases that may skip themselves, and why. Any other skip is a failure.
SKIPS = {
    "KernelsMatmul.ScratchThatIsTooSmallIsAFailureNotAnOverrun": "oneDNN needs no scratch for the product on some processors",
    "RanksTransports.ATimeOutBetweenHostsNamesTheMissingRank": "on one rank nobody can be missing; it runs on 2, 3 and 4",
    "WindowStore.TooLittleRoomIsExitCode9BeforeAnyPageIsTouched": "it needs a /dev/shm that has a limit",
    "HostMemory.ProportionalSetSizeGrowsWithTouchedPages": "some kernels do not tell the proportional set size",
}


def gtest(program, launcher=(), ranks=1, arguments=(), **environment):
    """Runs a GoogleTest program; under mpirun a case has passed if it passed on every rank."""
    program = pathlib.Path(program)
    if not program.exists():
        return Result(0, 1, output=f"{program.relative_to(ROOT)} was not built")
    with tempfile.TemporaryDirectory(prefix="fsdpc-gtest-") as folder:
        # The rank is known only to the launched process, hence the shell.
        script = f'exec "$0" --gtest_output=json:{folder}/${{OMPI_COMM_WORLD_RANK:-0}}.json "$@"'
        status, output = run([*launcher, "/bin/sh", "-c", script, program, "--gtest_brief=1", *arguments], **environment)
        cases = {}
        for rank in range(ranks):
            file = pathlib.Path(folder, f"{rank}.json")
            if not file.exists():
                return Result(0, 1, output=f"{output}\n{program.name} ended early (status {status})")
            for suite in json.loads(file.read_text())["testsuites"]:
                for case in suite["testsuite"]:
                    state = ("failed" if case.get("failures") else
                             "passed" if case["status"] == "RUN" and case["result"] == "COMPLETED" else "skipped")
                    cases.setdefault(f"{suite['name']}.{case['name']}", set()).add(state)
    failed = sum("failed" in states for states in cases.values())
    passed = sum(states == {"passed"} for states in cases.values())
    skipped = sorted(name for name, states in cases.items() if "failed" not in states and states != {"passed"})
    for name in skipped:
        if name.split("/")[0] not in SKIPS:
            failed += 1
            output += f"\n{program.name}: {name} was skipped, and SKIPS has no reason for it"
    if status != 0 and not failed:
        failed += 1
        output += f"\n{program.name}: status {status} although no case failed"
    if not cases:
        failed += 1
        output += f"\n{program.name}: no cases"
    note = "; ".join(f"{name} skipped: {SKIPS[name.split('/')[0]]}" for name in skipped if name.split("/")[0] in SKIPS)
    return Result(passed, failed, note, output if failed else "")


def part_of_tree():
    """(part, number of parts). Where many settings must give the same, or another step runs the same tests, a tree tests the first and
    one of three parts of the others, and its seed says which; --nightly tests all of them, and its part `settings` is for that."""
    return (0, 1) if os.environ.get("FSDPC_SETTINGS") == "every" else (int(seed()) % 3, 3)


def part_of(settings):
    """Of settings in a list, those that this tree tests."""
    part, parts = part_of_tree()
    return settings[part::parts]


def sanitized_parts():
    """(program, part, number of parts) of the runtime's tests and the emulated device's under AddressSanitizer. Either program takes
    minutes to build and minutes to run, and other steps run all of it: a tree builds one of them and runs a third."""
    programs = ("fsdpc_runtime_tests", "fsdpc_emulated_tests")
    if part_of_tree()[1] == 1:
        return [(program, 0, 1) for program in programs]
    drawn = int(seed()) % 6
    return [(programs[drawn % 2], drawn // 2, 3)]


def build_sanitized():
    """The command that builds what asan and tsan run."""
    return ["cmake", "--build", "--preset", "asan", "--target", "fsdpc", "fsdpc_unit_tests", "fsdpc_thread_tests",
            *(program for program, _, _ in sanitized_parts())]


def unit():
    """The compiler's unit tests without sanitizers, for a quick check of a change. asan runs the same cases."""
    built = check(["cmake", "--build", BUILD, "--target", "fsdpc_unit_tests"])
    return gtest(BUILD / "tests/fsdpc_unit_tests") if built.passed else built


def asan():
    """The compiler, and by sanitized_parts the runtime or the emulated device, and an emitted program, under AddressSanitizer and
    UndefinedBehaviorSanitizer. Leaks are checked in the compiler alone, since MPI and tests of kernels never free their
    memory. The runtime's tests expect a memory fault to arrive as a signal."""
    compiler = {"UBSAN_OPTIONS": "print_stacktrace=1", "ASAN_OPTIONS": "detect_stack_use_after_return=1"}
    others = {**compiler, "ASAN_OPTIONS": compiler["ASAN_OPTIONS"] + ":detect_leaks=0:handle_segv=0"}
    built = check(build_sanitized())
    if built.failed:
        return built
    fixture, fsdpc = ROOT / "tests/fixtures/mlp", BUILD_ASAN / "fsdpc"
    runs = []
    for program, part, parts in sanitized_parts(): # the longest runs first, so that no job waits for one of them at the end
        runs.append(functools.partial(gtest, BUILD_ASAN / "tests" / program, GTEST_TOTAL_SHARDS=str(parts), GTEST_SHARD_INDEX=str(part), **others))
        if program == "fsdpc_emulated_tests": # with the device that its program links
            runs.append(functools.partial(emulated_run, "accept", fixture, 2, "--seeds", 1, "--fsdpc", fsdpc, **others))
    runs += [functools.partial(gtest, BUILD_ASAN / "tests/fsdpc_unit_tests", GTEST_TOTAL_SHARDS="4", GTEST_SHARD_INDEX=shard, **compiler)
             for shard in "0123"]
    runs += [functools.partial(acceptance_run, fixture, 2, "full_shard", TEST_BUILD, fsdpc=fsdpc, **others)]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        return sum(pool.map(lambda call: call(), runs), Result())


def tsan():
    """Code that threads share, under ThreadSanitizer."""
    return gtest(BUILD_ASAN / "tests/fsdpc_thread_tests")


def runtime():
    """Everything on one rank; the suites named Ranks... also on 2, 3 and 4."""
    program = BUILD / "tests/fsdpc_runtime_tests"
    result = gtest(program)
    if program.exists():
        for ranks in (2, 3, 4):
            result += gtest(program, ["mpirun", "-n", ranks], ranks, ["--gtest_filter=Ranks*"])
    return result


def lit():
    part, parts = part_of_tree()
    with tempfile.TemporaryDirectory(prefix="fsdpc-lit-") as folder:
        report = pathlib.Path(folder, "lit.json")
        status, output = run(["/usr/bin/python3", LIT, "-v", "-j", JOBS, "--skip-test-time-recording", "-o", report, "tests"], timeout=3600,
                             FSDPC_PART=f"{part}/{parts}")
        if not report.exists():
            return Result(0, 1, output=output)
        codes = [test["code"] for test in json.loads(report.read_text())["tests"]]
    passed = codes.count("PASS")
    failed = len(codes) - passed # no test file may be unsupported, skipped or expected to fail
    if not failed and (status != 0 or not codes):
        failed = 1
    return Result(passed, failed, output=output if failed else "")


def seed():
    """A seed for random graphs and mutants that depends only on the tree, so that every test of a tree uses the same ones."""
    status, tree = run(["git", "rev-parse", "--verify", "HEAD^{tree}"])
    return os.environ.get("FSDPC_RANDOM_SEED") or str(int(tree[:7], 16) if status == 0 else 1)


def mutation(*options):
    """Errors injected into real programs. Each class is one case. The table is always shown."""
    status, output = run([BUILD / "tests/fsdpc_mutation_tests", "--seed", seed(), *options], timeout=7200)
    counts = re.fullmatch(r"(\d+) passed, (\d+) failed", (output.rstrip().splitlines() or [""])[-1])
    if not counts:
        return Result(0, 1, output=f"{output}\nfsdpc_mutation_tests ended early (status {status})")
    return Result(int(counts[1]), int(counts[2]), output=output)


def sweep():
    """Every fixture, strategy and option set: no false alarm of the checker, and no superfluous event. One case."""
    status, output = run(["/usr/bin/python3", "tests/sweep.py", "--jobs", JOBS, "--needed", BUILD / "tests/fsdpc_mutation_tests"])
    note = (output.rstrip().splitlines() or [""])[-1]
    return Result(1, 0, note) if status == 0 else Result(0, 1, note, output)


HYBRID = ("--data_parallel_shard_degree", 2)
# One unit unsharded on every rank, one in replicas, the others sharded over all ranks.
MIXED = ("--unit", ".*([.]0|fc1|fc1_to_fc2):strategy=no_shard", "--unit", ".*([.]1|fc2|conv1_to_conv2):strategy=hybrid_shard", *HYBRID)
# Another split of the 8 rows of the fixtures' batches.
TWO_MICRO_STEPS = ("--micro_batch_size", 2, "--gradient_accumulation_steps", 2)
STRATEGIES = ("shard_grad_op", "shard_optimizer", "no_shard")
TEST_BUILD = ("--test_build",)
# The first as users build it; the others in the test build, which checks more and compiles in half of the time.
FIRST_SETTINGS = [(2, "full_shard", ()), (1, "full_shard", TEST_BUILD), (4, "full_shard", TEST_BUILD)]


def acceptance_settings():
    """(world size, strategy, further compiler options), after FIRST_SETTINGS. FSDPC_ACCEPTANCE=full selects all combinations."""
    full = os.environ.get("FSDPC_ACCEPTANCE") == "full"
    settings = [(2, "full_shard", ("--streams", streams)) for streams in ("threads", "inline")]
    settings += [(n, strategy, ()) for strategy in STRATEGIES for n in ((1, 2, 4) if full else (2,))]
    settings += [(4, "hybrid_shard", HYBRID), (4, "full_shard", MIXED)]
    settings += [(2, "full_shard", ("--activation_checkpointing", mode)) for mode in ("full", "selective")]
    settings += [(2, "full_shard", ("--activation_checkpointing", "budget", "--activation_memory_budget", 0.3, "--offload_activations"))]
    settings += [(2, "full_shard", TWO_MICRO_STEPS), (2, "full_shard", (*TWO_MICRO_STEPS, "--accumulation", "keep_both"))]
    settings += [(2, "full_shard", ("--offload_params",)), (2, "shard_grad_op", ("--offload_optimizer", "--offload_activations"))]
    if full:
        settings += [(2, strategy, TWO_MICRO_STEPS) for strategy in STRATEGIES]
        settings += [(2, "full_shard", (*TWO_MICRO_STEPS, "--accumulation", kept)) for kept in ("keep_gradients", "keep_parameters")]
        settings += [(4, "hybrid_shard", (*HYBRID, "--micro_batch_size", 1, "--gradient_accumulation_steps", 2))]
        settings += [(1, "full_shard", ("--micro_batch_size", 1, "--gradient_accumulation_steps", 8))]
        settings += [(4, "hybrid_shard_zero2", HYBRID), (4, "hybrid_shard", ("--streams", "threads", *HYBRID))]
        settings += [(4, "full_shard", ("--reshard_after_forward", reshard)) for reshard in ("always", "never", 2)]
        settings += [(2, strategy, ("--reduce_communicator", "own", "--streams", "threads")) for strategy in ("full_shard", *STRATEGIES)]
        settings += [(2, "full_shard", ("--max_inflight_all_gathers", 4)), (2, "full_shard", ("--allgather_bucket_size", "100kb")),
                     (2, "no_shard", ("--reduce_bucket_size", "100kb")), (2, "shard_optimizer", ("--streams", "threads"))]
    return settings


def settings_of(fixture, settings):
    """All settings for a fixture, or a part of them for one of a model that another fixture has, too."""
    return part_of(settings) if fixture.name in fixture_sets.SAME_MODELS else settings


def few_settings():
    """(world size, strategy, no further options) of fixtures that cover one feature each."""
    return [*FIRST_SETTINGS, (2, "shard_grad_op", TEST_BUILD)]


def batch_norm_settings():
    """(world size, strategy, further compiler options, variant) of settings that affect batch statistics."""
    return [(2, "no_shard", TEST_BUILD, "train"), (2, "shard_grad_op", ("--streams", "threads", *TEST_BUILD), "train"),
            (2, "full_shard", ("--activation_checkpointing", "full", *TEST_BUILD), "train")]


def acceptance_run(fixture, world_size, strategy, options, variant="file", fsdpc=BUILD / "fsdpc", **environment):
    name = " ".join(map(str, (fixture.name, *([variant] if variant != "file" else []), f"N={world_size}", strategy, *options)))
    started = time.monotonic()
    status, output = run(["/usr/bin/python3", "tests/accept.py", fixture, "--fsdpc", fsdpc, "--world_size", world_size,
                          "--strategy", strategy, "--variant", variant, "--", *options], timeout=900, **environment)
    ok = status == 0 and output.rstrip().endswith("accept: ok")
    print(f"  {'ok  ' if ok else 'FAIL'} {name} ({time.monotonic() - started:.0f} s)", flush=True)
    return Result(1, 0) if ok else Result(0, 1, output=f"--- acceptance of {name}\n{output}")


def acceptance():
    """Every fixture of fixture_sets.py, and the small exports. FSDPC_FIXTURES selects some of either."""
    wanted = fixture_sets.wanted()
    calls = [functools.partial(acceptance_run, fixture, *setting) for setting in FIRST_SETTINGS for fixture in fixtures_wanted()]
    calls += [functools.partial(acceptance_run, fixture, ranks, strategy, (*options, *TEST_BUILD)) for fixture in fixtures_wanted()
              for ranks, strategy, options in settings_of(fixture, acceptance_settings())]
    calls += [functools.partial(acceptance_run, fixture, *setting, variant)
              for fixture, variant in fixture_sets.few_settings(wanted) for setting in few_settings()]
    calls += [functools.partial(acceptance_run, fixture, *setting) for fixture, variant in fixture_sets.few_settings(wanted)
              if variant == "train" for setting in batch_norm_settings()]
    calls += [functools.partial(acceptance_run, fixture, 2, "full_shard", ("--rows", "on")) for fixture in fixture_sets.with_tables(wanted)]
    exports = {name: kind for name, kind in expected_exports().items() if not wanted or name.split()[0] in wanted}
    calls += [functools.partial(export_run, name, kind) for name, kind in exports.items() if kind != "not yet"]
    if not calls:
        return Result(0, 1, output="no fixtures")
    not_yet = [*(f for f in fixture_sets.NOT_YET if not wanted or f in wanted), *(name for name, kind in exports.items() if kind == "not yet")]
    if not_yet:
        print("  not accepted yet, not counted: " + ", ".join(not_yet), flush=True)
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        return sum(pool.map(lambda call: call(), calls), Result(note=f"{len(not_yet)} not yet" if not_yet else ""))


def expected_exports():
    return json.loads((ROOT / "tests/exports/expected.json").read_text())


def export_run(name, kind):
    """One small export of tests/exports on 2 ranks."""
    started = time.monotonic()
    status, output = run(["/usr/bin/python3", "tests/exports/run.py", *name.split(), "--fsdpc", BUILD / "fsdpc", "--as", kind], timeout=300)
    print(f"  {'ok  ' if status == 0 else 'FAIL'} export {name}: {kind} ({time.monotonic() - started:.0f} s)", flush=True)
    return Result(1, 0) if status == 0 else Result(0, 1, output=f"--- export {name}: {kind}\n{output}")


def random():
    """Counts graphs and programs, some on the emulated device. FSDPC_RANDOM_GRAPHS, FSDPC_RANDOM_SEED: more or other graphs."""
    return random_run("--graphs", os.environ.get("FSDPC_RANDOM_GRAPHS", "500"), "--placements", 2) + random_run("--graphs", 0, "--programs", 4, "--target", "cuda")


def random_run(*options):
    command = ["/usr/bin/python3", "tests/random/run.py", "--build", BUILD, "--jobs", JOBS, "--first_seed", seed(), *options]
    status, output = run(command, timeout=7200)
    print(output.rstrip(), flush=True)
    counts = re.search(r"^random: (\d+) passed, (\d+) failed$", output, re.M)
    if not counts or (status != 0) != (counts[2] != "0"):
        return Result(0, 1, output=f"tests/random/run.py: status {status}")
    return Result(int(counts[1]), int(counts[2]))


def bf16():
    """Every node of programs in bf16 against the evaluator, and their losses against PyTorch's (tests/bf16), on both targets."""
    names = fixture_sets.wanted()
    wanted = [fixture for fixture in fixture_sets.with_batches() if not names or fixture.name in names]
    torch = json.loads((ROOT / "tests/bf16/torch_bf16.json").read_text())["fixtures"]
    missing = [fixture.name for fixture in wanted if fixture.name not in torch]
    if missing:
        return Result(0, len(missing), output=f"tests/bf16/torch_bf16.json has no losses of {', '.join(missing)}")
    runs = [(what, fixture, target) for fixture in wanted if fixture.name in fixture_sets.BF16_EVERY_NODE
            for target in ("cuda", "cpu") for what in ("trajectory", "rounding")]
    runs += [("trajectory", fixture, "cpu") for fixture in wanted
             if fixture.name not in fixture_sets.BF16_EVERY_NODE]
    runs += [("random", seed, "cpu") for seed in (3, 6)]
    # The only kernel of the cuda target that computes in either 16-bit type itself.
    runs += [("rounding", fixture, "cuda", "--mixed_precision", "fp16") for fixture in wanted if fixture.name == "gpt2_tiny"]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        return sum(pool.map(lambda r: bf16_run(*r), runs), Result())


def bf16_run(what, subject, target, *options):
    started = time.monotonic()
    status, output = run(["/usr/bin/python3", "tests/bf16/run.py", what, subject, "--target", target, "--build", BUILD, "--", *options])
    name = " ".join([what, pathlib.Path(str(subject)).name, target, *options])
    print(f"  {'ok  ' if status == 0 else 'FAIL'} {name} ({time.monotonic() - started:.0f} s)", flush=True)
    return Result(1, 0) if status == 0 else Result(0, 1, output=f"--- {name}\n{output}")


def fixtures_wanted():
    return fixture_sets.everywhere(fixture_sets.wanted())


def emulated_run(what, fixture, ranks, *options, **environment):
    started = time.monotonic()
    status, output = run(["/usr/bin/python3", "tests/emulated/run.py", what, fixture, "-n", ranks, *options], timeout=7200, **environment)
    name = " ".join(map(str, (what, fixture.name, f"N={ranks}", *options)))
    print(f"  {'ok  ' if status == 0 else 'FAIL'} {name} ({time.monotonic() - started:.0f} s)", flush=True)
    return Result(1, 0) if status == 0 else Result(0, 1, output=f"--- {name}\n{output}")


def emulated():
    """The cuda target without a GPU: kernels against f64, fixtures under several interleavings of the streams, and programs
    with one synchronization edge removed. FSDPC_EMULATED=full: 20 seeds everywhere."""
    full = os.environ.get("FSDPC_EMULATED") == "full"
    often = {("mlp", 2), ("gpt2_tiny", 2)}
    runs = [("accept", fixture, ranks, "--seeds", 20 if full or (fixture.name, ranks) in often else 2)
            for fixture in fixtures_wanted() for ranks in settings_of(fixture, (1, 2, 4))]
    runs += [("accept", fixture, 2, "--seeds", 2, "--", *TWO_MICRO_STEPS) for fixture in fixtures_wanted() if full or (fixture.name, 2) in often]
    runs += [("accept", fixture, 2, "--seeds", 4, "--", "--offload_params", "--offload_activations") for fixture in fixtures_wanted() if full or (fixture.name, 2) in often]
    runs += [("accept", fixture, 2, "--seeds", 4, "--", "--rows", "on") for fixture in fixture_sets.with_tables(fixture_sets.wanted())]
    runs += [("events", fixture, 2, "--seeds", 200, *options) for fixture in fixtures_wanted() if fixture.name == "mlp"
             for options in ((), ("--", "--offload_optimizer"))]
    # The transport with which gpu/accept.sh runs several ranks on one device.
    runs += [("accept", fixture, ranks, "--seeds", 2, "--", "--test_build", "emulated_loopback")
             for fixture in fixtures_wanted() for ranks in (2, 4) if full or (fixture.name, ranks) in often]
    result = gtest(BUILD / "tests/fsdpc_emulated_tests")
    # The host waits for a missing rank, so the device has no time-out.
    result += gtest(BUILD / "tests/fsdpc_loopback_tests", arguments=["--gtest_filter=-*ARankThatStartsOneAlone*"])
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        return sum(pool.map(lambda r: emulated_run(*r), runs), result)


def cuda():
    """Every fixture built by nvcc and started, two of them also with ranks as threads. Fails on a machine without nvcc, because
    these programs are the main output of fsdpc."""
    if not (BUILD / "libfsdpc_runtime_cuda.a").exists():
        return Result(0, 1, output="build/ has no CUDA compiler: tests/setup.sh --with_cuda gets one; then configure again")
    runs = [("start", fixture, 1) for fixture in fixtures_wanted()]
    runs += [("start", fixture, 2, "--", "--test_build", "loopback") for fixture in fixtures_wanted() if fixture.name in ("mlp", "gpt2_tiny")]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        return sum(pool.map(lambda r: emulated_run(*r), runs), gpu_bundle())


def faults(*options):
    """Kills, full disks, signals and limits in real runs: a part of each kind. tests/run.sh --nightly faults has all."""
    status, output = run(["/usr/bin/python3", "tests/faults/run.py", "--build", BUILD, *options], timeout=7200)
    print(output, end="", flush=True)
    counts = re.search(r"faults: (\d+) passed, (\d+) failed", output)
    return Result(int(counts[1]), int(counts[2]), output=output) if counts else Result(0, 1, output=output)


def page():
    """Pages that fsdpc writes, used in a browser."""
    status, output = run(["/usr/bin/python3", "tests/page/run.py", "--build", BUILD])
    counts = re.search(r"(\d+) passed, (\d+) failed\s*$", output)
    return Result(int(counts[1]), int(counts[2]), output=output) if counts else Result(0, 1, output=output)


def gpu_bundle():
    """The bundle of tests/gpu for a GPU machine, with one small fixture and model: it builds, and reports a missing device."""
    with tempfile.TemporaryDirectory(prefix="fsdpc-bundle-") as folder:
        status, output = run(["/usr/bin/python3", "tests/gpu/bundle.py", folder, "--fixtures", "mlp", "--models", "llama_smoke"])
        for script in (["accept.sh"], ["bench.sh", "llama_smoke"]):
            if status == 0:
                ended, said = run(["tests/gpu/" + script[0], *script[1:], "--bundle", folder], CUDA_VISIBLE_DEVICES="")
                status = 0 if ended == 10 and said.count("\n") <= 2 else 1
                output += said
    print(f"  {'ok  ' if status == 0 else 'FAIL'} bundle for a GPU machine", flush=True)
    return Result(1, 0) if status == 0 else Result(0, 1, output=f"--- tests/gpu/bundle.py\n{output}")


STEPS = {
    "build": build,
    "format": lambda: check(["tests/check_format.sh"]),
    "includes": lambda: check(["/usr/bin/python3", "tests/check_includes.py"]),
    "words": lambda: check(["/usr/bin/python3", "tests/check_words.py"]),
    "unit": unit,
    "asan": asan,
    "tsan": tsan,
    "runtime": runtime,
    "lit": lit,
    "mutation": mutation,
    "sweep": sweep,
    "acceptance": acceptance,
    "random": random,
    "bf16": bf16,
    "emulated": emulated,
    "cuda": cuda,
    "faults": faults,
    "page": page,
}
WITHOUT_BUILD = {"build", "format", "includes", "words"}
ONLY_BY_NAME = {"unit", "huggingface", "samples", "wheel"}


def deletions():
    """Deletes every statement that orders streams, one at a time: in every fixture, and with copies, micro-steps, replicas."""
    by_name = {fixture.name: fixture for fixture in fixtures_wanted()}
    runs = [("events", fixture, 2, "--seeds", 200) for fixture in by_name.values()]
    for options, ranks in ((("--offload_optimizer",), 2), (("--offload_params", "--offload_activations"), 2), (TWO_MICRO_STEPS, 2),
                           ((*TWO_MICRO_STEPS, "--accumulation", "keep_both"), 2), (("--strategy", "hybrid_shard", *HYBRID), 4)):
        runs += [("events", by_name[name], ranks, "--seeds", 200, "--", *options) for name in ("mlp", "gpt2_tiny") if name in by_name]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        return sum(pool.map(lambda r: emulated_run(*r), runs), Result())


def other_processor():
    """Plans and programs as on a processor without AVX-512, where matmuls need other scratch."""
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"
    try:
        return lit() + runtime()
    finally:
        del os.environ["ONEDNN_MAX_CPU_ISA"]


def torch_run(script, *arguments):
    """A script that needs PyTorch and prints its counts. TORCH_PYTHON names a Python that has what it imports."""
    if "TORCH_PYTHON" not in os.environ:
        return Result(0, 1, output="TORCH_PYTHON must name a Python that has torch, transformers, peft, onnxscript and safetensors")
    _, output = run([os.environ["TORCH_PYTHON"], script, *arguments], timeout=3600)
    counts = re.search(r"(\d+) passed, (\d+) failed\s*$", output)
    return Result(int(counts[1]), int(counts[2]), output=output) if counts else Result(0, 1, output=output)


def huggingface():
    """Folders of transformers and adapters of peft, in and out."""
    result = Result()
    for script in ("round_trip.py", "lora.py"):
        with tempfile.TemporaryDirectory(prefix="fsdpc-huggingface-") as folder:
            result += torch_run(f"tests/huggingface/{script}", "check", BUILD / "fsdpc", folder)
    return result


def wheel():
    """The wheel on a bare Debian, by the commands of the READMEs. As root, with debootstrap and a mirror of Debian; loads 3 GB."""
    folder = BUILD / "wheel"
    # A killed run may have left /dev mounted below, which Python's removal would follow.
    remove = ["rm", "-rf", "--one-file-system", folder]
    run(remove)
    status, output = run([sys.executable, "frontend/python/build_wheel.py", BUILD, folder], timeout=600)
    if status == 0:
        status, output = run(["tests/python/bare_root.sh", *folder.glob("*.whl"), folder, "--huggingface"], timeout=3600)
    if status == 0 and output.endswith("bare_root: ok\n"):
        run(remove)
        return Result(1, 0, output=output)
    return Result(0, 1, output=output)


# Tests that take too long for every change: tests/run.sh --nightly. Their results are checked in.
NIGHTLY = {
    "random": lambda: random_run("--graphs", 20000, "--placements", 4),
    "mutation": lambda: mutation("--per_class", 500),
    "settings": lambda: asan() + lit() + acceptance() + emulated(),
    "deletions": deletions,
    "other_processor": other_processor,
    "faults": lambda: faults("--full", "--record"),
    "huggingface": huggingface,
    "samples": lambda: torch_run("tests/samples.py", "--fsdpc", BUILD / "fsdpc"),
    "wheel": wheel,
}


def commit():
    return run(["git", "rev-parse", "--short=12", "HEAD"])[1].strip()


def record_nightly(name, tree, result, seconds):
    """Writes one row of tests/NIGHTLY.md: the last result of a part, its commit and seed. Other parts keep their rows."""
    file = ROOT / "tests/NIGHTLY.md"
    rows = dict(re.findall(r"^\| (\w+) (\|.*)$", file.read_text(), re.M)) if file.exists() else {}
    rows[name] = f"| {' | '.join(tree)} | {result.passed} | {result.failed} | {seconds:.0f} |"
    lines = ["# The last nightly run", "", "`tests/run.sh --nightly [PART...]` writes this file. Seeds come from the tree.", "",
             "| part | commit | seed | passed | failed | seconds |", "|---|---|---|---|---|---|",
             *(f"| {part} {rows[part]}" for part in NIGHTLY if part in rows)]
    file.write_text("\n".join(lines) + "\n")


def main():
    nightly = sys.argv[1:2] == ["--nightly"]
    steps = NIGHTLY if nightly else STEPS
    if nightly:
        os.environ["FSDPC_SETTINGS"] = "every"
    names = sys.argv[2 if nightly else 1:] or [name for name in steps if name not in ONLY_BY_NAME]
    unknown = [n for n in names if n not in steps]
    if unknown:
        print(f"unknown step {unknown[0]}; there are: {' '.join(steps)}", file=sys.stderr)
        return 2
    total, broken = Result(), False
    for name in names:
        if broken and name not in WITHOUT_BUILD:
            print(f"{name}: not run, because the build failed", flush=True)
            continue
        started, tree = time.monotonic(), (commit(), seed()) # before any commit during the run
        try:
            result = steps[name]()
        except Exception as error:                       # a bug in a step is a failed step, not a missing last line
            result = Result(0, 1, output=f"{type(error).__name__}: {error}")
        if result.output:
            print(result.output.rstrip(), flush=True)
        note, seconds = f", {result.note}" if result.note else "", time.monotonic() - started
        print(f"{name}: {result.passed} passed, {result.failed} failed{note} ({seconds:.0f} s)", flush=True)
        total += result
        if nightly:
            record_nightly(name, tree, result, seconds)
        broken = broken or (name == "build" and result.failed > 0)
    print(f"{total.passed} passed, {total.failed} failed")
    return 1 if total.failed or not total.passed and names != ["build"] else 0


if __name__ == "__main__":
    sys.exit(main())
