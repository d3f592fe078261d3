#!/usr/bin/env python3
"""Writes torch_bf16.json: how far PyTorch's own bf16 training strays from its f32 training, on the fixtures' models, batches and
optimizers.

    measure_torch.py [--fixtures ../fixtures] [--out torch_bf16.json]

A single run's distance is luck, so there are eight: the batch with its rows rotated by 0 to 7, which is the same training up to the order of
sums. What counts is the largest of them. bf16 is FSDP2 as users set it for training: fully_shard with
MixedPrecisionPolicy(param_dtype=bfloat16, reduce_dtype=float32, output_dtype=float32), so parameters are rounded where they are used,
activations are bf16, gradients are reduced and masters and optimizer state kept in f32; and the loss is computed in f32. One process on the
CPU (gloo). The f32 run is the same without a policy, and has to agree with the fixture's own reference before anything is written. Needs
torch, transformers, onnx and safetensors; no test of the tree runs it.
"""
import argparse, json, math, os, pathlib, sys

import onnx, onnx.numpy_helper
import safetensors.torch
import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "compare"))
from compare import worst

UPDATES = 20
ROTATIONS = 8
SAME_AS_FIXTURE = 1e-5      # of its largest loss


class Mlp(nn.Module):
    def __init__(self, meta):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(32, 64), nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x):
        return self.fc3(F.gelu(self.fc2(F.gelu(self.fc1(x)))))

    def units(self):
        return [self.fc1, self.fc2, self.fc3]


class MnistCnn(nn.Module):
    def __init__(self, meta):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 16, 3)
        self.fc1, self.fc2 = nn.Linear(2304, 64), nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return F.log_softmax(self.fc2(F.relu(self.fc1(torch.flatten(x, 1)))), dim=1)

    def units(self):
        return [self.conv1, self.conv2, self.fc1, self.fc2]


class BigBlock(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.linear1, self.linear2 = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        x = self.norm1(x + self.attn(x, x, x, need_weights=False)[0])
        return self.norm2(x + self.linear2(F.relu(self.linear1(x))))


class BigModel(nn.Module):
    def __init__(self, meta):
        super().__init__()
        dims = meta["dims"]
        self.embedding = nn.Embedding(dims["vocab"], dims["width"])
        self.layers = nn.ModuleList(BigBlock(dims["width"], dims["heads"], 4 * dims["width"]) for _ in range(dims["layers"]))
        self.output = nn.Linear(dims["width"], dims["vocab"])

    def forward(self, tokens):
        x = self.embedding(tokens).transpose(0, 1)
        for layer in self.layers:
            x = layer(x)
        return self.output(x.transpose(0, 1))

    def units(self):
        return list(self.layers)


class Gpt2(nn.Module):
    def __init__(self, meta):
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel
        dims = meta["dims"]
        self.model = GPT2LMHeadModel(GPT2Config(vocab_size=dims["vocab"], n_positions=dims["seq"], n_embd=dims["width"], n_layer=dims["layers"],
                                                n_head=dims["heads"], resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))

    def forward(self, input_ids):
        return self.model(input_ids).logits

    def units(self):
        return list(self.model.transformer.h)


MODELS = {"mlp": Mlp, "mnist_cnn_nodropout": MnistCnn, "bigmodel_tiny": BigModel, "gpt2_tiny": Gpt2}


def load_weights(model, folder, meta):
    stored = {i.name: torch.from_numpy(onnx.numpy_helper.to_array(i).copy()) for i in onnx.load(folder / "model.onnx").graph.initializer}
    own = dict(model.named_parameters())
    with torch.no_grad():
        for row in meta["parameters"]:
            value = stored[row["onnx_initializer"] or row["found_as"][0]]
            own.pop(row["fqn"]).copy_(value.T if row.get("damage") == "transposed" else value.reshape(row["shape"]))
    assert not own, f"no values for {list(own)}"


def optimizer_for(model, options):
    options = dict(options)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[options.pop("kind")]
    return kind(model.parameters(), **options)


def loss_of(output, labels, loss):
    function = {"cross_entropy": F.cross_entropy, "nll": F.nll_loss}[loss["kind"]]
    return function(output.float().flatten(0, -2), labels.flatten(), reduction=loss["reduction"], ignore_index=loss["ignore_index"])


def losses(name, folder, meta, is_low, rotation=0):
    """Before the first update, ..., after the last."""
    model = MODELS[name](meta)
    load_weights(model, folder, meta)
    if is_low:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        for unit in model.units():
            fully_shard(unit, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
        fully_shard(model, mesh=mesh, mp_policy=policy)
    batch = {key: torch.roll(value, rotation, 0) for key, value in safetensors.torch.load_file(folder / "batch.safetensors").items()}
    labels = batch.pop(meta["loss"]["labels"])
    [data] = batch.values()
    optimizer, trajectory = optimizer_for(model, meta["optimizer"]), []
    for _ in range(UPDATES + 1):
        loss = loss_of(model(data), labels, meta["loss"])
        trajectory.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return trajectory


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--fixtures", type=pathlib.Path, default=HERE.parent / "fixtures")
    p.add_argument("--out", type=pathlib.Path, default=HERE / "torch_bf16.json")
    a = p.parse_args()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29531", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("gloo")
    report = {"source": "measure_torch.py: FSDP2, param_dtype bfloat16, reduce_dtype and output_dtype float32; a row for each rotation of the batch", "torch": torch.__version__,
              "updates": UPDATES, "fixtures": {}}
    for name in MODELS:
        folder = a.fixtures / name
        meta = json.loads((folder / "meta.json").read_text())
        single = losses(name, folder, meta, False)
        stray = worst(abs(x - y) for x, y in zip(single, meta["losses"])) / max(map(abs, meta["losses"]))
        if stray > SAME_AS_FIXTURE:
            print(f"{name}: the f32 run is not the fixture's: {stray:.1e}", file=sys.stderr)
            return 1
        runs = [[float(f"{y - x:.4g}") for x, y in zip(single, losses(name, folder, meta, True, rotation))] for rotation in range(ROTATIONS)]
        report["fixtures"][name] = {"f32_losses": single, "bf16_minus_f32": runs}
        furthest, rms = worst(worst(map(abs, run)) for run in runs), max(math.sqrt(sum(d * d for d in run) / len(run)) for run in runs)
        print(f"{name}: max {furthest:.2e}, rms {rms:.2e} of losses from {single[0]:.3f} to {single[-1]:.3f}", flush=True)
    a.out.write_text(json.dumps(report, indent=1) + "\n")
    torch.distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
