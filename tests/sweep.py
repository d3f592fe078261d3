#!/usr/bin/env python3
"""Compiles every fixture under every strategy and option set; the checker runs on each compile and must be silent.

    sweep.py [--fsdpc build/fsdpc] [--full] [--jobs 2] [--target cpu|cuda] [--needed PROGRAM] [FIXTURE...]

By default each fixture is compiled with every strategy on 2, 3 and 4 ranks and with every option once, in turn (each option
with each strategy over all fixtures), alternating between cpu and cuda. --full takes all combinations, --target one of the
two. A combination that fsdpc refuses as usage (exit 2: an option without effect there) counts as neither.
--needed fsdpc_mutation_tests also drops every event of every plan for cuda, and every executed wait. If the checker accepts
a plan without one, it is superfluous.
Prints each failure and `sweep: N compiled, R refused, F failed[; E events and waits, S superfluous]`; exits 0 or 1.
"""
import argparse, concurrent.futures, fixture_sets, itertools, json, pathlib, re, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

STRATEGIES = ["full_shard", "shard_grad_op", "shard_optimizer", "no_shard", "hybrid_shard", "hybrid_shard_zero2"]

OPTIONS = [
    "",
    "--backward_prefetch backward_post",
    "--backward_prefetch no_prefetch --no_forward_prefetch",
    "--max_inflight_all_gathers 1",
    "--max_inflight_all_gathers 4",
    "--reduce_communicator own",
    "--reduce_communicator own --max_inflight_all_gathers 3 --backward_prefetch backward_post",
    "--reshard_after_forward never",
    "--reshard_after_forward always",
    "--reshard_after_forward 2",
    "--auto_wrap_policy no_wrap",
    "--auto_wrap_policy size_based_wrap --min_num_params 1000",
    "--allgather_bucket_size 4096",
    "--allgather_bucket_size 1MiB --reduce_bucket_size 1MiB",
    "--reduce_bucket_size 4096 --reduce_communicator own",
    "--ignored_params .*bias",
    "--transport mpi",
    "--transport mpi --reduce_communicator own",
    "--reshard_after_forward 2 --reduce_communicator own --max_inflight_all_gathers 1",
    "--unit .*1.*:strategy=no_shard",
    "--unit .*1.*:strategy=shard_grad_op",
    "--optimizer sgd --momentum 0.9",
    "--activation_checkpointing full",
    "--activation_checkpointing selective --reshard_after_forward always --max_inflight_all_gathers 1",
    "--activation_checkpointing full --mixed_precision bf16 --target cuda",
    "--optimizer rmsprop --reduce_communicator own",
    "--mixed_precision bf16",
    "--mixed_precision bf16 --optimizer rmsprop --momentum 0.5 --backward_prefetch no_prefetch --no_forward_prefetch",
    "--mixed_precision bf16 --target cuda --max_inflight_all_gathers 4",
    "--mixed_precision bf16 --target cuda --attention cudnn",
    "--offload_params",
    "--offload_params --mixed_precision bf16 --target cuda --max_norm 1",
    "--offload_optimizer --reduce_communicator own",
    "--offload_activations --activation_checkpointing selective",
    "--offload_activations --activation_checkpointing budget --activation_memory_budget 0.2",
    "--unit .*1.*:offload_activations=true",
    "--offload_params --offload_activations --gradient_accumulation_steps 2 --no_overlap_comm",
    "--unit .*1.*:offload_params=true --offload_optimizer --target cuda",
    "--mixed_precision bf16 --reduce_dtype bf16",
    "--mixed_precision bf16 --reduce_dtype bf16 --keep_low_precision_grads --max_norm 1 --target cuda",
    "--reduce_dtype fp16 --reduce_communicator own --unit .*1.*:reduce_dtype=fp32",
    "--mixed_precision bf16 --unit .*1.*:param_dtype=fp32,reduce_dtype=bf16 --output_dtype bf16",
    "--mixed_precision bf16 --no_cast_forward_inputs --buffer_dtype fp32",
    "--mixed_precision bf16 --reduce_dtype bf16 --gradient_accumulation_steps 2",
    "--reduce_dtype bf16 --gradient_accumulation_steps 2 --accumulation keep_gradients",
    "--gradient_accumulation_steps 3",
    "--gradient_accumulation_steps 2 --accumulation keep_gradients --reduce_communicator own",
    "--gradient_accumulation_steps 2 --accumulation keep_parameters --target cuda",
    "--gradient_accumulation_steps 2 --accumulation keep_both --mixed_precision bf16 --transport mpi",
]


def model_options(fixture):
    meta = json.loads((fixture / "meta.json").read_text())
    loss, optimizer = meta["loss"], meta["optimizer"]
    options = ["--loss", "model" if loss["kind"] == "in_graph" else loss["kind"], "--optimizer", optimizer["kind"]]
    if loss["kind"] in ("cross_entropy", "nll"):
        options += ["--class_axis", str(loss.get("class_axis", -1))]
    for name, value in meta.get("dim_params", {}).items():
        if name != "batch":
            options += ["--dim", f"{name}={value}"]
    return options


def combinations(fixtures, full):
    """(fixture, strategy, ranks, options)"""
    if full:
        yield from itertools.product(fixtures, STRATEGIES, (2, 3, 4, 8), OPTIONS)
        return
    # Covers every pair of strategy and option set, and every pair of fixture and either of them. Rank counts alternate.
    for i, (strategy, options) in enumerate(itertools.product(STRATEGIES, OPTIONS)):
        yield fixtures[i % len(fixtures)], strategy, (4, 2, 4, 3)[i % 4], options
    for i, (fixture, strategy) in enumerate(itertools.product(fixtures, STRATEGIES)):
        yield fixture, strategy, (2, 4)[i % 2], ""
    for i, (fixture, options) in enumerate(itertools.product(fixtures, OPTIONS)):
        yield fixture, STRATEGIES[i % len(STRATEGIES)], 4, options


def with_target(options, position, only):
    """Options that name a target, or a transport of one, keep it."""
    if "--target" in options or "--transport" in options:
        return options
    return f"{options} --target {only or ('cpu', 'cuda')[position % 2]}"


def needed_events(program, planned):
    """(events and waits of a plan, superfluous ones)"""
    if not program or "setting ordered_by_events" not in planned.read_text():
        return 0, 0
    output = subprocess.run([program, "--needed", planned], capture_output=True, text=True, errors="replace").stdout
    counts = re.search(r"^(\d+) events and waits, (\d+) superfluous$", output, re.M)
    return (int(counts[1]), int(counts[2])) if counts else (1, 1)


def compile_one(fsdpc, needed, combination):
    fixture, strategy, ranks, options = combination
    command = [fsdpc, fixture / "model.onnx", *model_options(fixture), "--micro_batch_size", "1", "--world_size", str(ranks),
               "--strategy", strategy]
    if strategy.startswith("hybrid"):
        command += ["--data_parallel_shard_degree", str(ranks // 2 if ranks % 2 == 0 else 1)]
    with tempfile.TemporaryDirectory(prefix="fsdpc-sweep-") as folder:
        result = subprocess.run([str(c) for c in [*command, *options.split(), "--emit", "src", "-o", folder + "/out"]], cwd=folder,
                                capture_output=True, text=True, errors="replace")
        events = needed_events(needed, pathlib.Path(folder, "out/stages/planned.fsir")) if result.returncode == 0 else (0, 0)
    return result.returncode, events, f"{fixture.name} {strategy} N={ranks} {options}: exit {result.returncode}: {result.stderr.strip()[:600]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fsdpc", default=ROOT / "build/fsdpc")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--target", choices=("cpu", "cuda"))
    parser.add_argument("--needed", type=pathlib.Path)
    parser.add_argument("fixtures", nargs="*")
    a = parser.parse_args()
    fixtures = fixture_sets.everywhere(a.fixtures)
    fsdpc = pathlib.Path(a.fsdpc).resolve()
    runs = [(fixture, strategy, ranks, with_target(options, i, a.target))
            for i, (fixture, strategy, ranks, options) in enumerate(dict.fromkeys(combinations(fixtures, a.full)))]
    compiled = refused = failed = events = superfluous = 0
    needed = a.needed and a.needed.resolve()
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for status, (all_events, not_needed), text in pool.map(lambda run: compile_one(fsdpc, needed, run), runs):
            events += all_events
            superfluous += not_needed
            if not_needed:
                print(f"{not_needed} of {all_events} superfluous: {text}", flush=True)
            is_refused = status == 2 or status == 1 and "does not divide" in text
            compiled += status == 0
            refused += is_refused
            if status != 0 and not is_refused:
                failed += 1
                print(text, flush=True)
    counted = f"; {events} events and waits, {superfluous} superfluous" if needed else ""
    print(f"sweep: {compiled} compiled, {refused} refused, {failed} failed{counted}")
    return 1 if failed or superfluous or not compiled or needed and not events else 0


if __name__ == "__main__":
    sys.exit(main())
