#!/usr/bin/env python3
"""Holds --load_model and --save_model to the transformers package: each model below is exported from one set of random
weights and started from another one, which save_pretrained wrote.

    round_trip.py check FSDPC FOLDER [NAME...]     evaluates, trains and saves on 2 ranks; from_pretrained opens what was
                                                   saved; losses and weights are those of PyTorch. Each is exported by hand
                                                   and by the Python package
    round_trip.py record FOLDER NAME...            writes what tests/huggingface/*.test need, without the package

Needs torch, transformers, onnxscript and safetensors from PyPI. The last line is `N passed, N failed`.
"""
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import traceback

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
import onnx
import torch
import transformers
from safetensors.torch import load_file, save_file

RANKS, ROWS, LENGTH, WORDS, WIDTH, HEADS, LAYERS, CLASSES = 2, 4, 8, 48, 16, 2, 2, 5
STEPS, RATE = 3, 0.1
SIZES = dict(vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
             intermediate_size=32, max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2)
T5 = dict(vocab_size=WORDS, d_model=WIDTH, d_kv=8, d_ff=32, num_layers=2, num_decoder_layers=2, num_heads=HEADS,
          dropout_rate=0.0, pad_token_id=0, eos_token_id=2, decoder_start_token_id=0, use_cache=False)
WHISPER = dict(vocab_size=WORDS, d_model=WIDTH, encoder_layers=2, decoder_layers=2, encoder_attention_heads=HEADS,
               decoder_attention_heads=HEADS, encoder_ffn_dim=32, decoder_ffn_dim=32, num_mel_bins=8,
               max_source_positions=8, max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2,
               decoder_start_token_id=1, use_cache=False)


def tokens(seed, length=LENGTH):
    return torch.randint(3, WORDS, (ROWS, length), generator=torch.Generator().manual_seed(seed))


def floats(*shape):
    return torch.randn(ROWS, *shape, generator=torch.Generator().manual_seed(5))


# name: class, configuration, inputs, type of the stored weights, largest file of the folder
MODELS = {
    "gpt2": ("GPT2LMHeadModel", dict(vocab_size=WORDS, n_positions=32, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
                                     resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False),
             {"input_ids": tokens(1)}, torch.float32, "10KB"),
    "llama": ("LlamaForCausalLM", dict(SIZES, num_key_value_heads=1, tie_word_embeddings=True, use_cache=False),
              {"input_ids": tokens(1)}, torch.bfloat16, "5GB"),
    "qwen2": ("Qwen2ForCausalLM", dict(SIZES, num_key_value_heads=1, tie_word_embeddings=False, use_cache=False),
              {"input_ids": tokens(1)}, torch.float16, "8KB"),
    # so many positions that the exporter writes their numbers, a buffer, beside the model
    "bert": ("BertForSequenceClassification", dict(SIZES, num_labels=CLASSES, hidden_dropout_prob=0.0,
                                                   attention_probs_dropout_prob=0.0, max_position_embeddings=2048),
             {"input_ids": tokens(1), "attention_mask": torch.ones(ROWS, LENGTH, dtype=torch.long)}, torch.float32,
             "5GB"),
    "vit": ("ViTForImageClassification", dict(hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                                              intermediate_size=32, image_size=16, patch_size=8, num_labels=CLASSES,
                                              hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
            {"pixel_values": floats(3, 16, 16)}, torch.float32, "5GB"),
    "t5": ("T5ForConditionalGeneration", T5, {"input_ids": tokens(1), "decoder_input_ids": tokens(2, 6)},
           torch.float32, "5GB"),
    "whisper": ("WhisperForConditionalGeneration", WHISPER,
                {"input_features": floats(8, 16), "decoder_input_ids": tokens(2, 6)}, torch.float32, "5GB"),
}


class Logits(torch.nn.Module):
    """What is exported: the model takes its inputs by position and returns logits."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs):
        return self.model(**dict(zip(self.names, inputs))).logits


def make(name, seed):
    kind, settings, inputs, _, _ = MODELS[name]
    torch.manual_seed(seed)
    cls = getattr(transformers, kind)
    model = cls(cls.config_class(**settings)).float().eval()
    with torch.no_grad():  # norms and biases differ from module to module, as in a trained model
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.05)
    return model


def loss_of(model, inputs, labels):
    logits = model(**inputs).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


def export_by_hand(source, inputs, folder):
    rows = {name: value[:ROWS // RANKS] for name, value in inputs.items()}
    torch.onnx.export(Logits(source, list(rows)), tuple(rows.values()), str(folder / "model.onnx"), input_names=list(rows),
                      output_names=["logits"], dynamo=True, optimize=False, verbose=False)


def write(name, folder, package=None):
    """The export, weights saved by transformers, a batch with labels, and what PyTorch makes of them. `package`: fsdpc's,
    which exports with the names that save_pretrained writes, and the compiler that it asks."""
    kind, _, inputs, dtype, largest = MODELS[name]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    source = make(name, 0)
    if name == "t5":  # its fused attention does not export
        source.set_attn_implementation("eager")
    if package:
        module, command = package
        module.export(source, inputs, folder / "model.onnx", outputs=["logits"], command=command)
    else:
        export_by_hand(source, inputs, folder)
    # By hand in the names of the modules: some classes write others (vit.encoder.layer for vit.layers).
    make(name, 1).to(dtype).save_pretrained(folder / "weights", max_shard_size=largest, save_original_format=bool(package))
    model = getattr(transformers, kind).from_pretrained(folder / "weights", dtype=torch.float32).eval()
    shape = model(**inputs).logits.shape
    labels = torch.randint(0, shape[-1], shape[:-1], generator=torch.Generator().manual_seed(9))
    save_file({**inputs, "labels": labels}, str(folder / "batch.safetensors"))
    losses = []
    for _ in range(STEPS):
        loss = loss_of(model, inputs, labels)
        losses.append(loss.item())
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter -= RATE * parameter.grad
    losses.append(loss_of(model, inputs, labels).item())
    return model, inputs, labels, losses


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")


def compile_and_train(fsdpc, folder):
    """The losses of the steps and of the evaluation at the end; the weights are in folder/saved."""
    run(fsdpc, folder / "model.onnx", "--target", "cpu", "--world_size", RANKS, "--micro_batch_size", ROWS // RANKS,
        "--loss", "cross_entropy", "--optimizer", "sgd", "--lr", RATE, "-o", folder / "out")
    batch = folder / "batch.safetensors"
    run("mpirun", "-n", RANKS, folder / "out/train", "--load_model", folder / "weights", "--train_data", batch,
        "--val_data", batch, "--epochs", STEPS, "--eval_every", STEPS, "--log_freq", "1", "--log", folder / "log.jsonl",
        "--progress", "none", "--save_model", str(folder / "saved") + "/")
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line] + [line["val_loss"] for line in lines if "val_loss" in line]


def require_close(what, own, expected, tolerance):
    difference = max(abs(a - b) / max(abs(b), 1e-6) for a, b in zip(own, expected, strict=True))
    if difference > tolerance:
        raise RuntimeError(f"{what}: {own} where PyTorch has {expected}")


def check(fsdpc, folder, name, package=None):
    model, inputs, labels, losses = write(name, folder, package)
    require_close("losses", compile_and_train(fsdpc, folder), losses, 1e-4)
    saved, info = getattr(transformers, MODELS[name][0]).from_pretrained(folder / "saved", dtype=torch.float32,
                                                                       output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[key]:
            raise RuntimeError(f"from_pretrained: {key}: {sorted(info[key])}")
    require_close("loss of the saved weights", [loss_of(saved.eval(), inputs, labels).item()], [losses[-1]], 1e-4)
    trained = dict(model.named_parameters())
    for key, value in saved.named_parameters():
        if not torch.allclose(value, trained[key], rtol=1e-3, atol=1e-5):
            raise RuntimeError(f"{key} differs by {(value - trained[key]).abs().max().item()}")


def record(name, folder):
    """The folder for a test without the package: the graph without its weights and without places in the source on this
    machine, the loss of each step, and what is trained after them, as transformers calls it."""
    trained, _, _, losses = write(name, folder)
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    for node in model.graph.node:
        for entry in [entry for entry in node.metadata_props if "stack_trace" in entry.key]:
            node.metadata_props.remove(entry)
    onnx.save(model, folder / "model.onnx")
    (folder / "model.onnx.data").unlink()
    lines = [json.dumps({"step": step + 1, "loss": loss}) for step, loss in enumerate(losses[:-1])]
    (folder / "expected.jsonl").write_text("\n".join(lines) + "\n")
    stored = [file for file in (folder / "weights").glob("*.safetensors")]
    names = {name for file in stored for name in load_file(file)}
    save_file({name: value for name, value in trained.state_dict().items() if name in names},
              str(folder / "trained.safetensors"))


def count_passes(checks):
    """Runs each check, a function under its label, and prints what became of it. The exit status."""
    passed = failed = 0
    for label, check_one in checks:
        try:
            check_one()
            passed += 1
            print(f"  ok   {label}", flush=True)
        except Exception as error:  # one model is one test
            failed += 1
            print(f"  FAIL {label}: {error}", flush=True)
            if not isinstance(error, RuntimeError):
                traceback.print_exc()
    print(f"{passed} passed, {failed} failed")
    return failed != 0


def main():
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "record":
        for name in arguments[1:]:
            record(name, pathlib.Path(arguments[0]) / name)
        return 0
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "frontend/python"))
    import fsdpc
    package = fsdpc, str(pathlib.Path(arguments[0]).resolve())
    folder = pathlib.Path(arguments[1])
    return count_passes((name + label, functools.partial(check, arguments[0], folder / name, name, how))
                        for name in arguments[2:] or MODELS for how, label in ((None, ""), (package, ", exported by the package")))


if __name__ == "__main__":
    sys.exit(main())
