#!/usr/bin/env python3
"""Trains a ViT of Hugging Face on real handwritten digits, with a test after each epoch, and opens the result in transformers.

    vit.py FOLDER [--fsdpc build/fsdpc] [--ranks 2] [--epochs 20]

Needs torch, transformers, onnx, onnxscript and numpy from PyPI. The weights are random at first; nothing is downloaded.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from common import ROOT, fsdpc, parse, parser, print_figures, run, train
import numpy
import torch
import transformers

DIGITS, MEAN, DEVIATION, BATCH = ROOT / "samples/digits", 0.305, 0.325, 64


def make_model(folder):
    torch.manual_seed(0)
    config = transformers.ViTConfig(image_size=28, patch_size=4, num_channels=1, hidden_size=64, intermediate_size=128,
                                    num_hidden_layers=3, num_attention_heads=4, num_labels=10)
    model = transformers.ViTForImageClassification(config).eval()
    model.save_pretrained(folder)
    return model


def test_images():
    """As the program reads them: divided by 255, then normalized."""
    images = numpy.fromfile(DIGITS / "t10k-images-idx3-ubyte", "u1", offset=16).reshape(-1, 1, 28, 28)
    labels = numpy.fromfile(DIGITS / "t10k-labels-idx1-ubyte", "u1", offset=8)
    return (torch.from_numpy(images).float() / 255 - MEAN) / DEVIATION, torch.from_numpy(labels).long()


def test(model):
    """(mean loss, images that are recognized)"""
    images, labels = test_images()
    with torch.no_grad():
        logits = model.eval()(pixel_values=images).logits
    return torch.nn.functional.cross_entropy(logits, labels).item(), (logits.argmax(-1) == labels).sum().item()


def main():
    p = parser(__doc__)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--epochs", type=int, default=20)
    a = parse(p)
    if BATCH % a.ranks:
        p.error(f"--ranks {a.ranks} does not divide the global batch of {BATCH}")
    folder = a.folder
    model = make_model(folder / "base")
    fsdpc.export(model, {"pixel_values": torch.zeros(2, 1, 28, 28)}, folder / "model.onnx", outputs=["logits"], command=a.fsdpc)
    run(a.fsdpc, folder / "model.onnx", "--target", "cpu", "--world_size", a.ranks, "--micro_batch_size", BATCH // a.ranks,
        "--loss", "cross_entropy", "--init", "default", "--lr", "1e-3", "--no_decay", "norms_biases", "-o", folder / "vit")
    log = train(folder / "vit", a.ranks, "--load_model", folder / "base", "--train_data", f"{DIGITS}/train-*",
                "--val_data", f"{DIGITS}/t10k-*", "--normalize", f"{MEAN},{DEVIATION}", "--epochs", a.epochs, "--shuffle", "--seed", "1",
                "--lr_scheduler", "cosine", "--warmup_steps", "20", "--progress", "plain", "--save_model", f"{folder}/trained/")
    run(a.fsdpc, "report", folder / "vit.jsonl", "-o", folder / "report.html")

    loss, correct = test(transformers.ViTForImageClassification.from_pretrained(folder / "trained"))
    own = log.evaluations[-1]
    print(f"test loss {loss:.5f}, {correct} of {own['val_total']} in transformers; {own['val_loss']:.5f}, {own['val_correct']} in the program")
    if correct != own["val_correct"] or abs(loss - own["val_loss"]) > 1e-4 * loss:
        sys.exit("the tests differ")
    print_figures(test_loss=own["val_loss"], correct=own["val_correct"])


if __name__ == "__main__":
    main()
