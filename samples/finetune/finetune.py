#!/usr/bin/env python3
"""Fine-tunes a Llama of Hugging Face on text, all weights and then adapters (LoRA), and opens the results in transformers and peft.

    finetune.py FOLDER [--fsdpc build/fsdpc] [--ranks 2] [--steps 200] [--text FILE...]

Needs torch, transformers, peft, onnx, onnxscript, tokenizers and numpy from PyPI. The model is small and random, the text by default
fsdpc's own pages, so that nothing is downloaded: with a model of your own the commands that it prints are the same.
"""
import argparse
import json
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "frontend/python"))
import fsdpc
import numpy
import peft
import tokenizers
import torch
import transformers

LENGTH, WORDS, BATCH = 64, 1024, 4


def run(*command):
    words = [str(word) for word in command]
    print("$ " + shlex.join(words), flush=True)
    subprocess.run(words, check=True)


def make_tokenizer(texts, folder):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.train([str(text) for text in texts], tokenizers.trainers.BpeTrainer(vocab_size=WORDS, special_tokens=["<|endoftext|>"]))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>").save_pretrained(folder)


def make_model(folder):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=WORDS, hidden_size=64, intermediate_size=176, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=LENGTH,
                                      tie_word_embeddings=True, use_cache=False)
    model = transformers.LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    return model


def validation_loss(model, file):
    """Over the samples that the program evaluates: sample s begins at token s * LENGTH."""
    tokens = torch.from_numpy(numpy.fromfile(file, "<u2", offset=1024).astype(numpy.int64))
    total, count = 0.0, 0
    with torch.no_grad():
        for begin in range(0, len(tokens) - LENGTH, LENGTH):
            sample = tokens[begin:begin + LENGTH + 1]
            logits = model(input_ids=sample[None, :-1]).logits[0]
            total += torch.nn.functional.cross_entropy(logits, sample[1:], reduction="sum").item()
            count += LENGTH
    return total / count


def compare(what, model, file, log):
    _, losses = fsdpc.read_log(log).column("val_loss")
    reached = validation_loss(model.eval(), file)
    print(f"{what}: validation loss {reached:.5f} in transformers, {losses[-1]:.5f} in the program", flush=True)
    if abs(reached - losses[-1]) > 1e-4 * losses[-1]:
        sys.exit(f"{what}: the losses differ")
    return losses[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--fsdpc", default=str(ROOT / "build/fsdpc"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--text", nargs="*", type=pathlib.Path, help="default: the pages of this repository")
    a = parser.parse_args()
    folder = a.folder
    folder.mkdir(parents=True, exist_ok=True)
    texts = a.text or sorted(ROOT.glob("*/*/*.md")) + sorted(ROOT.glob("*/*.md"))

    base = folder / "base"
    make_tokenizer(texts, base)
    model = make_model(base)
    tokens = [fsdpc.prepare(part, folder / "tokens", base, name=name)[0]
              for name, part in (("train", [text for i, text in enumerate(texts) if i % 8]), ("val", texts[::8]))]
    with torch.no_grad():
        report = fsdpc.export(model, {"input_ids": torch.zeros(2, LENGTH, dtype=torch.long)}, folder / "model.onnx",
                              outputs=["logits"], command=a.fsdpc)
    print(f"exported {len(report['parameters'])} parameters in {len(report['units'])} units", flush=True)

    compile_all = [a.fsdpc, folder / "model.onnx", "--target", "cpu", "--world_size", a.ranks, "--micro_batch_size", BATCH,
                   "--loss", "cross_entropy", "--init", "default", "--no_decay", "norms_biases", "--max_norm", "1"]
    launch = ["mpirun", "-n", a.ranks] if a.ranks > 1 else []
    schedule = ["--train_data", tokens[0], "--val_data", tokens[1], "--steps", a.steps, "--eval_every", max(1, a.steps // 3),
                "--lr_scheduler", "cosine", "--warmup_steps", max(1, a.steps // 10), "--log_freq", "5", "--progress", "plain"]
    run(*compile_all, "--lr", "3e-3", "-o", folder / "full")
    run(*launch, folder / "full/train", "--load_model", base, *schedule, "--log", folder / "full.jsonl", "--save_model", f"{folder}/tuned/")
    run(*compile_all, "--lr", "5e-3", "--lora", "rank=8,alpha=16,targets=.*[.](q|k|v|o)_proj", "-o", folder / "lora")
    run(*launch, folder / "lora/train", "--load_model", folder / "tuned", *schedule, "--log", folder / "lora.jsonl",
        "--save_model", f"{folder}/adapters/")
    run(a.fsdpc, "report", folder / "full.jsonl", folder / "lora.jsonl", "-o", folder / "report.html")

    tuned = transformers.AutoModelForCausalLM.from_pretrained(folder / "tuned", dtype=torch.float32)
    before = validation_loss(model, tokens[1])
    full = compare("all weights", tuned, tokens[1], folder / "full.jsonl")
    lora = compare("adapters", peft.PeftModel.from_pretrained(tuned, folder / "adapters"), tokens[1], folder / "lora.jsonl")
    (folder / "figures.json").write_text(json.dumps({"before": before, "full": full, "lora": lora}) + "\n")
    print(f"validation loss {before:.4f} at the start, {full:.4f} with all weights, {lora:.4f} with adapters on top")
    if not lora < full < before:
        sys.exit("the losses do not fall")


if __name__ == "__main__":
    main()
