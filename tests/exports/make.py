#!/usr/bin/env python3
"""Regenerates the exports of this folder: for each model of models.py a folder with model.onnx, batch.safetensors,
reference.safetensors and meta.json, as ../fixtures/README.md describes them.

    make.py [NAME...]

Run by hand; needs torch, lion_pytorch, onnx, onnxscript and safetensors. Every value of a reference is PyTorch's, computed in
float64 from the exported float32 weights: losses of four steps (lion: a hundred) and after them, gradients of the first,
parameters after the last. Seeds are fixed.
"""
import copy, json, pathlib, re, sys, tempfile, warnings

import lion_pytorch
import numpy as np
import onnx
import onnx.numpy_helper
import torch
from safetensors.numpy import save_file
from torch import nn
from torch.nn import functional as F

import models

HERE = pathlib.Path(__file__).resolve().parent
EXPORTED_ROWS = 2               # the file's fixed batch: that of one of two ranks
EXACT_ZERO = 1e-10              # of the largest gradient, in float64
PATH = re.compile(r'File "[^"]*?/((?:site-packages/|tests/exports/)?)([^"/]+(?:/[^"/]+)*)"')


def exported(case, module, inputs, path):
    rows = {name: value[:EXPORTED_ROWS].contiguous() for name, value in inputs.items()}
    module.train(case.training)
    arguments = dict(case.arguments)
    if case.exporter == "torchscript":
        arguments.update(dynamo=False, input_names=list(rows))
        if case.training:
            arguments.update(training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)
    else:
        arguments.update(dynamo=True, verbose=False)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = f"{folder}/model.onnx"
        torch.onnx.export(module, tuple(rows.values()), file, output_names=["output"], **arguments)
        model = onnx.load(file)                     # weights inside
    for node in all_nodes(model):
        for entry in list(node.metadata_props):
            if "stack_trace" in entry.key:          # paths of the machine that exported
                node.metadata_props.remove(entry)
    onnx.save(model, path)
    return model


def check_buffers(module, model):
    """Tracing in training mode runs the module. The file and the reference start from the resulting statistics."""
    stored = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    for name, value in module.named_buffers():
        assert name not in stored or np.array_equal(stored[name], value.numpy()), name


def all_nodes(model):
    yield from model.graph.node
    for function in model.functions:
        yield from function.node


def loss_of(case, output, labels):
    if case.loss == "in_graph":
        return output
    if case.loss == "mse":
        return F.mse_loss(output, labels)
    return F.cross_entropy(output.flatten(0, -2), labels.flatten())


def optimizer_of(case, parameters):
    settings = {k: v for k, v in case.optimizer.items() if k != "kind"}
    kinds = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW, "lion": lion_pytorch.Lion}
    groups = [{"params": [p], **(case.group(name) if case.group else {})} for name, p in parameters.items()]
    return kinds[case.optimizer["kind"]](groups, **settings)


def trained(case, module, inputs, labels, dtype, batch_statistics):
    """Losses before each step and after the last, gradients of the first, parameters and buffers at the end."""
    module = copy.deepcopy(module).to(dtype)
    module.train(batch_statistics)
    wide = lambda value: value.to(dtype) if value is not None and value.is_floating_point() else value
    values, labels = [wide(v) for v in inputs.values()], wide(labels)
    parameters = {name: p for name, p in module.named_parameters() if not (case.absent and re.fullmatch(case.absent, name))}
    optimizer = optimizer_of(case, parameters)
    losses, gradients, buffers = [], {}, {}
    for step in range(case.steps + 1):
        if step == case.steps:
            buffers = {n: b.clone() for n, b in module.named_buffers() if "running" in n}
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(case, module(*values), labels)
        losses.append(loss.item())
        if step == case.steps:
            break
        loss.backward()
        if step == 0:
            gradients = {n: p.grad.clone() for n, p in parameters.items() if p.grad is not None}
        optimizer.step()
    final = {n: parameters[n].detach().clone() for n in gradients}
    return losses, gradients, final, buffers


def rows_in_file(case, name, value):
    return value[list(case.rows[name])] if name in case.rows else value


def deviation(ours, reference):
    largest = max(float(r.abs().max()) for r in reference.values())
    return max((float((ours[n].double() - r).abs().max()) / max(float(r.abs().max()), 1e-4 * largest) for n, r in reference.items()), default=0.0)


def reference(case, module, inputs, labels, batch_statistics, mark, tensors, meta):
    losses, gradients, final, buffers = trained(case, module, inputs, labels, torch.float64, batch_statistics)
    single = trained(case, module, inputs, labels, torch.float32, batch_statistics)
    largest = max(float(g.abs().max()) for g in gradients.values())
    zero = [n for n, g in gradients.items() if float(g.abs().max()) < EXACT_ZERO * largest]
    for prefix, values in ((f"grad{mark}.", gradients), (f"final{mark}.", final), ("final_buffer.", {} if mark else buffers)):
        for name, value in values.items():
            tensors[prefix + name] = rows_in_file(case, name, value).float().contiguous().numpy()
    rest = [n for n in gradients if n not in zero]
    error = {"losses": max(abs(a - b) for a, b in zip(single[0], losses)) / max(map(abs, losses)),
             "grad": deviation(single[1], {n: gradients[n] for n in rest}), "final": deviation(single[2], {n: final[n] for n in rest})}
    before = meta.setdefault("torch_f32_error", error)
    meta["torch_f32_error"] = {key: max(before[key], error[key]) for key in error}
    meta["losses" + mark] = losses
    meta["zero_gradients"] = sorted({*meta.get("zero_gradients", []), *zero})
    return gradients


def parameter_rows(case, module, gradients):
    names = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    rows = []
    for first, *others in names.values():
        if first not in gradients:
            continue
        if case.reference and first.endswith(".bias"):
            others = [first.removesuffix("bias") + "weight_bias"]       # the exporter's name of a bias that folding made
        shape = list(rows_in_file(case, first, dict(module.named_parameters())[first]).shape)
        rows.append({"fqn": first, "shape": shape, "onnx_initializer": first, "found_as": others})
    return rows, [group for group in names.values() if len(group) > 1]


def labels_for(case, module, inputs):
    if case.loss == "in_graph":
        return None
    module.eval()
    with torch.no_grad():
        shape = module(*inputs.values()).shape
    if case.loss == "mse":
        return torch.randn(shape, generator=models.generator(11))
    return torch.randint(0, shape[-1], shape[:-1], generator=models.generator(11))


def write(name, case, folder):
    torch.manual_seed(sum(name.encode()))
    with torch.no_grad():
        module, inputs = case.make()
    labels = labels_for(case, module, inputs)
    folder.mkdir(exist_ok=True)
    model = exported(case, module, inputs, folder / "model.onnx")
    check_buffers(module, model)
    output = model.graph.output[0].name
    batch = dict(zip([i.name for i in model.graph.input], inputs.values()))
    if labels is not None:
        batch["labels"] = labels
    save_file({n: v.contiguous().numpy() for n, v in batch.items()}, folder / "batch.safetensors")

    means = case.reference(copy.deepcopy(module).eval()) if case.reference else module
    loss = {"kind": case.loss, "reduction": "mean", "output": output, "labels": "labels", "ignore_index": None if case.loss == "mse" else -100}
    meta = {"name": name, "source": f"models.py: {case.cause}", "exporter": case.exporter, "export_args": {k: v for k, v in case.arguments.items()},
            "training_mode": "train" if case.training else "eval", "torch": torch.__version__, "opset": model.opset_import[0].version,
            "batch": "fixed", "dim_params": {}, "dims": {"batch": models.ROWS}, "loss": loss | {"class_axis": case.class_axis}, "optimizer": case.optimizer}
    tensors = {}
    has_batch_norm = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in means.modules())
    gradients = reference(case, means, inputs, labels, has_batch_norm, "", tensors, meta)
    if has_batch_norm and not case.training:
        reference(case, means, inputs, labels, False, "_eval", tensors, meta)
    rows, ties = parameter_rows(case, means, gradients)
    ops = [node.op_type for node in all_nodes(model)]
    meta |= {"parameters": rows, "ties": ties, "ops": {op: ops.count(op) for op in sorted(set(ops))}, "rows": {n: list(r) for n, r in case.rows.items()},
             "options": case.options}
    save_file(tensors, folder / "reference.safetensors")
    (folder / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name:28} {sum(meta['ops'].values()):4} nodes {size / 1000:6.0f} kB  loss {meta['losses'][0]:.4f} -> {meta['losses'][-1]:.4f}", flush=True)


def main():
    names = sys.argv[1:] or list(models.CASES)
    for name in names:
        write(name, models.CASES[name], HERE / name)


if __name__ == "__main__":
    main()
