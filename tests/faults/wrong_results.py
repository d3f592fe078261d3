"""Ranks that are wrong or slow, and do not say so: a bit flips in memory, or one rank is slower than the others."""
import json, random

from bench import RANKS, STEPS, Bench, Tally

TENSORS = ("fc1.weight", "fc1.bias", "fc3.weight", "optimizer.exp_avg.fc2.weight", "optimizer.exp_avg_sq.fc3.bias")


def log_lines(bench, name, key):
    lines = (json.loads(line) for line in (bench.folder / f"{name}.jsonl").read_text().splitlines())
    return [line[key] for line in lines if key in line]


def same_bits(bench, name):
    return (bench.folder / f"{name}.safetensors").read_bytes() == bench.whole


def flips(full, ranks):
    """(name, environment) of bits that flip before a step."""
    numbers = random.Random(11)
    for trial in range(100 if full else 10):
        rank, step, bit = numbers.randrange(ranks), numbers.randrange(1, STEPS), numbers.getrandbits(32)
        tensor = TENSORS[trial % len(TENSORS)]
        yield rank, tensor, f"bit {bit} of {tensor} on rank {rank} before step {step}", {"FSDPC_MEMORY_FAULT": f"{rank}:{step}:{bit}:{tensor}"}


def flipped_in_a_step(bench, full):
    """--rerun_check: reported, and the run ends with the bits of the one that nothing happened to. A flip that rounding absorbs, or in
    a tensor of which the rank holds nothing, is none."""
    tally = Tally()
    reported = 0
    for rank, tensor, name, environment in flips(full, RANKS):
        bench.clear("flip")
        ended = bench.run(bench.arguments("flip", "--rerun_check"), environment)
        found = log_lines(bench, "flip", "rerun_difference")
        reported += bool(found)
        fault = None if ended.status == 0 else f"ended with {ended.status}: {ended.output[-400:]}"
        if fault is None and not same_bits(bench, "flip"):
            fault = "other bits than the run that nothing happened to"
        if fault is None and found and (found[0]["kind"] != "transient" or "gave another result" not in ended.output):
            fault = f"said: {found}"
        tally.add(name, fault)
    if reported < tally.injected / 2:
        tally.wrong.append(f"only {reported} of {tally.injected} flips were reported")
    return tally


def drifted_replica(bench, full):
    """--replica_check on four ranks that hold everything: the tensor and the rank are named, before a checkpoint is saved."""
    tally = Tally()
    replicated = Bench(bench.folder / "replicated", bench.build, count=4, strategy="no_shard")
    named = 0
    for rank, tensor, name, environment in flips(full, replicated.count):
        replicated.clear("drift")
        ended = replicated.run(replicated.arguments("drift", "--replica_check", "1"), environment)
        fault = None
        if ended.status == 5:
            named += 1
            if f"rank {rank} holds other bits of" not in ended.output or f"differs=replica other={rank}" not in ended.output:
                fault = f"the wrong one was named: {ended.output[-400:]}"
        elif ended.status != 0 or not same_bits(replicated, "drift"):
            fault = f"ended with {ended.status}: {ended.output[-400:]}"
        tally.add(name, fault)
    if named < tally.injected / 2:
        tally.wrong.append(f"only {named} of {tally.injected} flips were found")
    replicated.clear("drift")
    ended = replicated.run(replicated.arguments("drift", "--replica_check", "1"))
    tally.add("without a fault", None if ended.status == 0 and same_bits(replicated, "drift") else f"ended with {ended.status}: {ended.output[-400:]}")
    return tally


def straggler_named(bench, full):
    """A rank that is 50 ms slower in every step is named in one of the first ten steps, and changes no bit."""
    tally = Tally()
    for rank in range(RANKS):
        bench.clear("slow")
        ended = bench.run(bench.arguments("slow"), {"FSDPC_SLOW_RANK": f"{rank}:50"})
        named = log_lines(bench, "slow", "straggler")
        fault = None
        if ended.status != 0 or f"wait for rank {rank}" not in ended.output:
            fault = f"ended with {ended.status}: {ended.output[-400:]}"
        elif {s["rank"] for s in named if s["busy_ms"] > 50} != {rank} or named[0]["step"] > 10:
            fault = f"named: {named}"
        elif not same_bits(bench, "slow"):
            fault = "other bits than the run that nothing happened to"
        tally.add(f"rank {rank}", fault)
    return tally


PARTS = {"flipped_in_a_step": flipped_in_a_step, "drifted_replica": drifted_replica, "straggler_named": straggler_named}
