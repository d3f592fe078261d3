"""One rank of PyTorch FSDP2 on a GPT-2-shaped model, started by memory.py and bf16.sh: eager, gloo, one thread; W2 unless options say
otherwise. With --checkpoint every block is wrapped in activation checkpointing. With --param_dtype bf16 parameters are gathered and
multiplied in bf16 and gradients reduced in f32. --log writes a line with the duration of each step, as a program's --log. Writes its
proportional set size before it builds anything to the file START.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=... MASTER_PORT=... fsdp2_peer.py START [--layers 6 --width 384 ...] [--checkpoint] [--log FILE]
"""
import argparse
import json
import os
import pathlib
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.ln_1(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.proj(mixed)
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(a.vocab, a.width), nn.Embedding(a.seq, a.width)
        blocks = (Block(a.width, a.heads) for _ in range(a.layers))
        self.blocks = nn.ModuleList(checkpoint_wrapper(block) if a.checkpoint else block for block in blocks)
        self.norm = nn.LayerNorm(a.width)

    def forward(self, ids, labels):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.reshape(-1))


def proportional_bytes():
    """Without pages of files, as memory.py."""
    sizes = dict(line.split()[:2] for line in pathlib.Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return 1024 * (int(sizes["Pss:"]) - int(sizes.get("Pss_File:", 0)))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("start")
    for name, default in dict(layers=6, width=384, heads=6, seq=256, vocab=512, batch=8, steps=5).items():
        p.add_argument(f"--{name}", type=int, default=default)
    p.add_argument("--checkpoint", action="store_true")
    p.add_argument("--param_dtype", choices=("fp32", "bf16"), default="fp32")
    p.add_argument("--log", type=pathlib.Path)
    a = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    pathlib.Path(a.start).write_text(str(proportional_bytes()))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = Gpt(a)
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if a.param_dtype == "bf16" else MixedPrecisionPolicy()
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh, reshard_after_forward=True, mp_policy=precision)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    torch.manual_seed(dist.get_rank())
    ids = torch.randint(a.vocab, (a.batch, a.seq + 1))
    lines = []
    for _ in range(a.steps):
        dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        model(ids[:, :-1], ids[:, 1:]).backward()
        optimizer.step()
        lines.append(json.dumps({"step_ms": 1000 * (time.perf_counter() - start)}))
    if a.log and dist.get_rank() == 0:
        a.log.write_text("\n".join(lines) + "\n")
    dist.barrier()
    dist.destroy_process_group()


main()
