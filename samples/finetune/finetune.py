#!/usr/bin/env python3
"""Fine-tunes a Llama of Hugging Face on text, all weights and then adapters (LoRA), and opens the results in transformers and peft.

    finetune.py FOLDER [--fsdpc COMMAND] [--ranks 2] [--steps 200]
    finetune.py FOLDER --model MODEL --text FILE... --val_text FILE... [--length 512 --lr 2e-5 --lora_lr 2e-4]

Needs torch, transformers, peft, onnx, onnxscript, tokenizers and numpy from PyPI. MODEL is a folder as save_pretrained writes it, with
its tokenizer.json. By default the model is small and random and the text is the licences that every Debian has, so that nothing is
downloaded.
"""
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from common import fsdpc, parse, parser, print_figures, run, train
from fsdpc.prepare_tokens import HEADER_WORDS, SHORT, WIDE
import numpy
import peft
import tokenizers
import torch
import transformers

LENGTH, WORDS, BATCH = 64, 1024, 4
LICENCES = pathlib.Path("/usr/share/common-licenses")
TEXT = ("Artistic", "GFDL-1.2", "GFDL-1.3", "GPL-1", "GPL-2", "LGPL-2", "LGPL-2.1", "LGPL-3", "MPL-1.1", "MPL-2.0")
VAL_TEXT = ("Apache-2.0", "GPL-3")


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
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def copy_licences(names, folder):
    """Under names that fsdpc.prepare takes for text."""
    folder.mkdir(exist_ok=True)
    return [pathlib.Path(shutil.copyfile(LICENCES / name, folder / f"{name}.txt")) for name in names]


def open_model(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model.config.use_cache = False
    return model


def tokens_of(file):
    """Of a file that fsdpc.prepare wrote."""
    magic = numpy.fromfile(file, "<i4", 1)[0]
    kind = next(kind for number, _, kind in (SHORT, WIDE) if number == magic)
    return torch.from_numpy(numpy.fromfile(file, kind, offset=4 * HEADER_WORDS).astype(numpy.int64))


def validation_loss(model, file, length):
    """Over the samples that the program evaluates: sample s begins at token s * length."""
    samples, total = tokens_of(file).unfold(0, length + 1, length), 0.0
    with torch.no_grad():
        for batch in samples.split(16):
            logits = model(input_ids=batch[:, :-1]).logits
            total += torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="sum").item()
    return total / (len(samples) * length)


def compare(what, model, file, length, log):
    _, losses = log.column("val_loss")
    reached = validation_loss(model.eval(), file, length)
    print(f"{what}: validation loss {reached:.5f} in Python, {losses[-1]:.5f} in the program", flush=True)
    if abs(reached - losses[-1]) > 1e-4 * losses[-1]:
        sys.exit(f"{what}: the losses differ")
    return losses[-1]


def arguments():
    p = parser(__doc__)
    p.add_argument("--model", type=pathlib.Path, help="a folder of Hugging Face; default: a small random Llama is made")
    p.add_argument("--text", nargs="+", type=pathlib.Path, help="to train on: .txt, .md, .jsonl, .parquet; default: licences")
    p.add_argument("--val_text", nargs="+", type=pathlib.Path, help="to evaluate on")
    for name, value in dict(ranks=2, steps=200, length=LENGTH, lr=3e-3, lora_lr=5e-3).items():
        p.add_argument("--" + name, type=type(value), default=value)
    p.add_argument("--targets", default=".*[.](q|k|v|o)_proj", help="the layers that get adapters, as a regular expression")
    a = parse(p)
    if bool(a.text) != bool(a.val_text):
        p.error("--text and --val_text belong together")
    if not a.text and not LICENCES.is_dir():
        p.error(f"there is no {LICENCES} here: --text and --val_text are needed")
    return a


def main():
    a = arguments()
    folder = a.folder
    texts, val_texts = a.text or copy_licences(TEXT, folder / "text"), a.val_text or copy_licences(VAL_TEXT, folder / "text")
    base = a.model or folder / "base"
    if not a.model:
        make_tokenizer([*texts, *val_texts], base)
        make_model(base)
    model = open_model(base)
    tokens, val_tokens = (fsdpc.prepare(part, folder / "tokens", base, name=name, shard_tokens=1 << 40)[0]
                          for name, part in (("train", texts), ("val", val_texts)))
    with torch.no_grad():
        report = fsdpc.export(model, {"input_ids": torch.zeros(2, a.length, dtype=torch.long)}, folder / "model.onnx",
                              outputs=["logits"], command=a.fsdpc)
    print(f"exported {len(report['parameters'])} parameters in {len(report['units'])} units", flush=True)

    compile_all = [a.fsdpc, folder / "model.onnx", "--target", "cpu", "--world_size", a.ranks, "--micro_batch_size", BATCH,
                   "--loss", "cross_entropy", "--init", "default", "--no_decay", "norms_biases", "--max_norm", "1"]
    schedule = ["--train_data", tokens, "--val_data", val_tokens, "--steps", a.steps, "--eval_every", max(1, a.steps // 3),
                "--lr_scheduler", "cosine", "--warmup_steps", max(1, a.steps // 10), "--log_freq", "5", "--progress", "plain"]
    run(*compile_all, "--lr", a.lr, "-o", folder / "full")
    full_log = train(folder / "full", a.ranks, "--load_model", base, *schedule, "--report", folder / "full.html",
                     "--save_model", f"{folder}/tuned/")
    run(*compile_all, "--lr", a.lora_lr, "--lora", f"rank=8,alpha=16,targets={a.targets}", "-o", folder / "lora")
    lora_log = train(folder / "lora", a.ranks, "--load_model", folder / "tuned", *schedule, "--report", folder / "lora.html",
                     "--save_model", f"{folder}/adapters/")
    run(a.fsdpc, "report", folder / "full.jsonl", folder / "lora.jsonl", "-o", folder / "report.html")

    before = validation_loss(model, val_tokens, a.length)
    tuned = open_model(folder / "tuned")
    full = compare("all weights", tuned, val_tokens, a.length, full_log)
    lora = compare("adapters", peft.PeftModel.from_pretrained(tuned, folder / "adapters"), val_tokens, a.length, lora_log)
    if not a.model and not lora < full < before:
        sys.exit(f"the losses do not fall: {before:.5f}, {full:.5f}, {lora:.5f}")
    print_figures(before=before, full=full, lora=lora)


if __name__ == "__main__":
    main()
