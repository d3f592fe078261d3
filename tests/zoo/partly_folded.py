#!/usr/bin/env python3
"""Checks models of which the exporter folded some BatchNorms into convolutions: partly_folded.py HARNESS ZOO NAME...

HARNESS is the folder of the harness's run.py. ZOO is the folder that it wrote, with NAME as a default dynamo export.
Gradients of parameters that were not folded must be PyTorch's, and those of folded weights must be PyTorch's by the chain
rule: with W' = s W, where s = gamma / sqrt(var + eps), dL/dW = s dL/dW'. A missing parameter must be one of a folded
BatchNorm or a bias of zeros. Exits 0 or 1.
"""
import json, pathlib, subprocess, sys
import numpy as np, torch
import torch.nn.functional as F
from safetensors.numpy import load_file

LIMIT = 1e-5
NORM = torch.nn.modules.batchnorm._BatchNorm
ROWS = 2    # of a rank's batch, as in the harness


def tensors(output):
    return [leaf for leaf in torch.utils._pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]


def gradients(run, folder):
    """Names of trained parameters, and the program's first gradients."""
    out, file = folder / "out", folder / "gradients.safetensors"
    quiet = dict(check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run([*run["cmd"].split(), "-o", out], **quiet)
    subprocess.run(["mpirun", "-n", "2", out / "train", "--batch", folder / "batch.safetensors", "--steps", "1",
                    "--save_gradients", file, "--progress", "none"], **quiet)
    plan = json.loads((out / "plan.json").read_text())
    return {p["name"] for p in plan["parameters"] if p["trainable"]}, load_file(file)


def norms_by_producer(model, inputs):
    """The BatchNorm that reads the output of a convolution or linear layer, by the layer's name."""
    writers, norms, kept = {}, {}, []

    def saw(name, module, arguments, output):
        if isinstance(module, NORM):
            norms.setdefault(writers.get(id(arguments[0])), name)
        elif isinstance(module, (torch.nn.Conv2d, torch.nn.Linear)):
            writers[id(output)] = name
            kept.append(output)     # keeps its id from being reused

    hooks = [module.register_forward_hook(lambda m, a, o, name=name: saw(name, m, a, o)) for name, module in model.named_modules()]
    model(*inputs)
    for hook in hooks:
        hook.remove()
    return norms


def reference(model, batch, run, generator):
    """PyTorch's gradients of the loss that the harness trains, over both ranks' rows."""
    output = lambda rank: tensors(model(*(x[rank * ROWS:(rank + 1) * ROWS] for x in batch)))[run["main_index"]]
    shape, is_classes = list(output(0).shape), run["loss"] in ("lm", "cls")
    rows = len(batch[0]) * shape[0] // ROWS
    labels = (torch.randint(0, shape[-1], [rows, *shape[1:-1]], generator=generator) if is_classes
              else torch.randn([rows, *shape[1:]], generator=generator))
    loss = lambda y, l: F.cross_entropy(y.reshape(-1, y.shape[-1]), l.reshape(-1)) if is_classes else F.mse_loss(y, l)
    (sum(loss(output(rank), labels.chunk(2)[rank]) for rank in (0, 1)) / 2).backward()
    return {name: p.grad.numpy().astype("f8") for name, p in model.named_parameters() if p.grad is not None}


def check(zoo, name, spec, generator):
    folder = zoo / f"models/{name}.dynamo"
    run = json.loads((zoo / f"res/{name}.dynamo.json").read_text())
    trained, ours = gradients(run, folder)
    torch.manual_seed(0)
    model, inputs = spec.fn()
    model.eval()
    batch = list(inputs.values())
    norms = norms_by_producer(model, [x[:ROWS] for x in batch])
    folded = {norm: layer for layer, norm in norms.items() if layer and norm + ".weight" not in trained}
    theirs, modules, worst, faults = reference(model, batch, run, generator), dict(model.named_modules()), {True: 0, False: 0}, []
    floor = 1e-4 * max(np.abs(g).max() for g in theirs.values())
    for parameter, gradient in theirs.items():
        owner = parameter.rpartition(".")[0]
        if parameter not in trained:
            is_zero_bias = parameter.endswith(".bias") and not model.get_parameter(parameter).detach().any()
            faults += [] if owner in folded or is_zero_bias else [f"{parameter} is missing"]
            continue
        got, norm = ours["grad." + parameter].astype("f8").reshape(gradient.shape), norms.get(owner)
        if norm in folded:
            b = modules[norm]
            scale = (b.weight / torch.sqrt(b.running_var + b.eps)).detach().numpy().astype("f8")
            got = got * scale.reshape([-1] + [1] * (got.ndim - 1))
        error = np.abs(got - gradient).max() / max(np.abs(gradient).max(), floor)
        worst[norm in folded] = max(worst[norm in folded], error)
        faults += [] if error <= LIMIT else [f"{parameter} is off by {error:.1e}"]
    kept = sum(isinstance(m, NORM) and n + ".weight" in trained for n, m in modules.items())
    print(f"{name}: {len(folded)} norms folded, {kept} kept; "
          f"error of folded weights {worst[True]:.1e}, of the others {worst[False]:.1e}", *faults, sep="\n  ", flush=True)
    return not faults


def main():
    harness, zoo, names = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), sys.argv[3:]
    sys.path.insert(0, harness)
    import zoo_hf
    import zoo_vis  # noqa: F401  registers more models
    return 0 if all([check(zoo, name, zoo_hf.REG[name], zoo_hf.g(11)) for name in names]) else 1


if __name__ == "__main__":
    sys.exit(main())
