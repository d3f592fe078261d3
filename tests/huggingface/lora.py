#!/usr/bin/env python3
"""Holds --lora to the peft package: adapters that it saved are trained by a program and by PyTorch.

    lora.py check FSDPC FOLDER [NAME...]     losses and adapters are PyTorch's; peft opens what was saved, transformers
                                             what was merged, and both have the loss of the evaluation
    lora.py record FOLDER NAME...            writes what tests/huggingface/lora.test needs, without the packages

Needs torch, transformers, peft, onnxscript and safetensors from PyPI. The last line is `N passed, N failed`.
"""
import functools
import json
import pathlib
import shutil
import sys
import tempfile

import peft
import torch
import transformers
from safetensors.torch import load_file

import round_trip
from round_trip import MODELS, RANKS, ROWS, count_passes, loss_of, require_close, run

STEPS, RATE, RANK, ALPHA = 3, 0.3, 4, 8
TARGETS = {"gpt2": r".*[.](c_attn|c_fc)", "llama": r".*[.](q_proj|v_proj|down_proj)", "bert": r".*[.](query|value)"}
ALSO_TRAINED = {"bert": "classifier"}


def base_of(name, folder):
    kind = getattr(transformers, MODELS[name][0])
    return kind.from_pretrained(folder / "weights", dtype=torch.float32).eval()


def settings_of(name, stable):
    return peft.LoraConfig(r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, target_modules=TARGETS[name], use_rslora=stable,
                           modules_to_save=[ALSO_TRAINED[name]] if name in ALSO_TRAINED else None)


def write(name, folder):
    """The adapters at the start in folder/adapters, and what PyTorch makes of them."""
    _, inputs, labels, _ = round_trip.write(name, folder)
    torch.manual_seed(3)
    model = peft.get_peft_model(base_of(name, folder), settings_of(name, stable=name == "gpt2"))
    with torch.no_grad():  # an adapter that changes something from the start
        for key, parameter in model.named_parameters():
            if "lora_B" in key:
                parameter.normal_(std=0.1)
    model.save_pretrained(folder / "adapters")
    model.eval()
    losses = []
    for _ in range(STEPS):
        loss = loss_of(model, inputs, labels)
        losses.append(loss.item())
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter -= RATE * parameter.grad
    losses.append(loss_of(model, inputs, labels).item())
    model.save_pretrained(folder / "trained")
    return inputs, labels, losses


def lora_option(name):
    return f"rank={RANK},alpha={ALPHA},rslora={'on' if name == 'gpt2' else 'off'},targets={TARGETS[name]}"


def compile_and_train(fsdpc, folder, name):
    trained = ["--trainable", f"(.*[.])?{ALSO_TRAINED[name]}[.].*"] if name in ALSO_TRAINED else []
    run(fsdpc, folder / "model.onnx", "--target", "cpu", "--world_size", RANKS, "--micro_batch_size", ROWS // RANKS,
        "--loss", "cross_entropy", "--optimizer", "sgd", "--lr", RATE, "--lora", lora_option(name), *trained,
        "-o", folder / "out")
    batch = folder / "batch.safetensors"
    start = ["mpirun", "-n", RANKS, folder / "out/train", "--load_model", folder / "weights", "--progress", "none"]
    run(*start, "--load_adapters", folder / "adapters", "--train_data", batch, "--val_data", batch, "--epochs", STEPS,
        "--eval_every", STEPS, "--log_freq", "1", "--log", folder / "log.jsonl", "--save_model", f"{folder}/saved/")
    run(*start, "--load_adapters", folder / "saved", "--steps", "0", "--merge_adapters", "--save_model",
        f"{folder}/merged/")
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line] + [line["val_loss"] for line in lines if "val_loss" in line]


def require_equal(own, expected):
    if own.keys() != expected.keys():
        raise RuntimeError(f"the saved adapters have {sorted(own)} where peft has {sorted(expected)}")
    for key, value in own.items():
        if not torch.allclose(value, expected[key], rtol=1e-3, atol=1e-5):
            raise RuntimeError(f"{key} differs by {(value - expected[key]).abs().max().item()}")


def check(fsdpc, folder, name):
    inputs, labels, losses = write(name, folder)
    require_close("losses", compile_and_train(fsdpc, folder, name), losses, 1e-4)
    file = "adapter_model.safetensors"
    require_equal(load_file(folder / "saved" / file), load_file(folder / "trained" / file))
    opened = peft.PeftModel.from_pretrained(base_of(name, folder), folder / "saved").eval()
    require_close("loss of the saved adapters", [loss_of(opened, inputs, labels).item()], [losses[-1]], 1e-4)
    kind = getattr(transformers, MODELS[name][0])
    merged, info = kind.from_pretrained(folder / "merged", dtype=torch.float32, output_loading_info=True)
    if info["missing_keys"] or info["unexpected_keys"]:
        raise RuntimeError(f"from_pretrained: {info}")
    require_close("loss of the merged weights", [loss_of(merged.eval(), inputs, labels).item()], [losses[-1]], 1e-4)


def record(name, folder):
    """Beside the export and the weights in folder/NAME, which round_trip.py recorded."""
    with tempfile.TemporaryDirectory() as temporary:
        source = pathlib.Path(temporary)
        _, _, losses = write(name, source)
        target = folder / f"{name}_lora"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for part in ("adapters", "trained"):
            (target / part).mkdir()
            shutil.copyfile(source / part / "adapter_model.safetensors", target / part / "adapter_model.safetensors")
        lines = [json.dumps({"step": step + 1, "loss": loss}) for step, loss in enumerate(losses[:-1])]
        (target / "expected.jsonl").write_text("\n".join(lines) + "\n")


def main():
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "record":
        for name in arguments[1:]:
            record(name, pathlib.Path(arguments[0]))
        return 0
    folder = pathlib.Path(arguments[1])
    return count_passes((name, functools.partial(check, arguments[0], folder / name, name)) for name in arguments[2:] or TARGETS)


if __name__ == "__main__":
    sys.exit(main())
