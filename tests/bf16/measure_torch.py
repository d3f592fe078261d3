#!/usr/bin/env python3
"""Writes torch_bf16.json: how far PyTorch's own bf16 training deviates from its f32 training, on the fixtures' models, batches
and optimizers.

    measure_torch.py [FIXTURE...] [--fixtures ../fixtures] [--out torch_bf16.json]      no name: all; the others' rows are kept

The distance of a single run depends on chance, so there are eight runs: the batch with its rows rotated by 0 to 7, which is the
same training up to the order of sums. The maximum of them counts. bf16 is FSDP2 as users configure it for training:
fully_shard with MixedPrecisionPolicy(param_dtype=bfloat16, reduce_dtype=float32, output_dtype=float32). So parameters are
rounded where they are used, activations are bf16, gradients are reduced and masters and optimizer state kept in f32, and the
loss is computed in f32. BatchNorm computes in f32, as FSDP1 does by default: torch's does not accept statistics in f32 with
weights in bf16. One process on the CPU (gloo). The f32 run is the same without a policy, and must agree with the fixture's own
reference before anything is written. Needs torch, transformers, onnx and safetensors; no test of the tree runs it.
"""
import argparse, json, math, os, pathlib, sys

import onnx, onnx.numpy_helper
import safetensors.torch
import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "compare"))
from compare import worst
from torch_models import MODELS

UPDATES = 20
ROTATIONS = 8
SAME_AS_FIXTURE = 1e-5      # relative to its largest loss


def value_of(row, stored, meta):
    """A parameter's value in the file; zero for parameters that are not in it, and for those that no sample reads."""
    value = torch.zeros(row["shape"])
    if row.get("damage") == "repacked":
        for initializer in row["found_as"]:
            at = 0
            for fqn, start, length in meta["repacked"][initializer]:
                if fqn == row["fqn"]:
                    value.view(-1)[start:start + length] = stored[initializer].flatten()[at:at + length]
                at += length
    elif row.get("damage") != "not in the file":
        found = stored[row["onnx_initializer"] or row["found_as"][0]]
        value = found.T if row.get("damage") == "transposed" else found.reshape(row["shape"])
    return value


def load_weights(model, folder, meta):
    stored = {i.name: torch.from_numpy(onnx.numpy_helper.to_array(i).copy()) for i in onnx.load(folder / "model.onnx").graph.initializer}
    own = dict(model.named_parameters())
    with torch.no_grad():
        for row in meta["parameters"]:
            parameter = own.pop(row["fqn"])
            parameter.copy_(value_of(row, stored, meta))
            parameter.requires_grad_(row.get("damage") != "not in the file")
        for name, buffer in model.named_buffers():
            if name in stored:
                buffer.copy_(stored[name])
    assert not own, f"no values for {list(own)}"


def optimizer_for(model, options):
    options = dict(options)
    kind = {"adagrad": torch.optim.Adagrad, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[options.pop("kind")]
    return kind([p for p in model.parameters() if p.requires_grad], **options)


def loss_of(output, labels, loss):
    if loss["kind"] == "in_graph":
        return output
    elementwise = {"mse": F.mse_loss, "bce_with_logits": F.binary_cross_entropy_with_logits}.get(loss["kind"])
    if elementwise:
        return elementwise(output.float(), labels, reduction=loss["reduction"])
    function = {"cross_entropy": F.cross_entropy, "nll": F.nll_loss}[loss["kind"]]
    return function(output.float().flatten(0, -2), labels.flatten(), reduction=loss["reduction"], ignore_index=loss["ignore_index"])


def losses(name, folder, meta, is_low, rotation=0):
    """Losses before the first update, ..., after the last."""
    model = MODELS[name](meta)
    load_weights(model, folder, meta)
    if is_low:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        for norm in [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]:
            fully_shard(norm, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.float32, torch.float32, torch.bfloat16))
        for unit in model.units():
            fully_shard(unit, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
        fully_shard(model, mesh=mesh, mp_policy=policy)
    batch = {key: torch.roll(value, rotation, 0) for key, value in safetensors.torch.load_file(folder / "batch.safetensors").items()}
    labels, inputs = batch[meta["loss"]["labels"]], [batch[i.name] for i in onnx.load(folder / "model.onnx").graph.input]
    optimizer, trajectory = optimizer_for(model, meta["optimizer"]), []
    for _ in range(UPDATES + 1):
        loss = loss_of(model(*inputs), labels, meta["loss"])
        trajectory.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return trajectory


def text_of(report):
    """A line for each run."""
    inner = [f'  {json.dumps(name)}: {{\n   "f32_losses": {json.dumps(rows["f32_losses"])},\n   "bf16_minus_f32": [\n    '
             + ",\n    ".join(map(json.dumps, rows["bf16_minus_f32"])) + "\n   ]\n  }" for name, rows in sorted(report["fixtures"].items())]
    head = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in report.items() if key != "fixtures"]
    return "{\n" + ",\n".join([*head, ' "fixtures": {\n' + ",\n".join(inner) + "\n }"]) + "\n}\n"


def measured(name, folder):
    meta = json.loads((folder / "meta.json").read_text())
    wanted = meta.get("losses_eval", meta["losses"])
    single = losses(name, folder, meta, False)
    stray = worst(abs(x - y) for x, y in zip(single, wanted)) / max(map(abs, wanted))
    if stray > SAME_AS_FIXTURE:
        sys.exit(f"{name}: the f32 run is not the fixture's: {stray:.1e}")
    runs = [[float(f"{y - x:.4g}") for x, y in zip(single, losses(name, folder, meta, True, rotation))] for rotation in range(ROTATIONS)]
    furthest, rms = worst(worst(map(abs, run)) for run in runs), max(math.sqrt(sum(d * d for d in run) / len(run)) for run in runs)
    print(f"{name}: max {furthest:.2e}, rms {rms:.2e} of losses from {single[0]:.3f} to {single[-1]:.3f}", flush=True)
    return {"f32_losses": single, "bf16_minus_f32": runs}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", choices=[[], *MODELS], metavar="FIXTURE")
    p.add_argument("--fixtures", type=pathlib.Path, default=HERE.parent / "fixtures")
    p.add_argument("--out", type=pathlib.Path, default=HERE / "torch_bf16.json")
    a = p.parse_args()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29531", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("gloo")
    report = json.loads(a.out.read_text()) if a.out.exists() else {}
    assert report.get("torch", torch.__version__) == torch.__version__, "all fixtures are measured with one version"
    report |= {"source": "measure_torch.py: FSDP2, param_dtype bfloat16, reduce_dtype and output_dtype float32; a row for each rotation of the batch",
               "torch": torch.__version__, "updates": UPDATES}
    for name in a.names or MODELS:
        report.setdefault("fixtures", {})[name] = measured(name, a.fixtures / name)
    a.out.write_text(text_of(report))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
