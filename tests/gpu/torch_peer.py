#!/usr/bin/env python3
"""The model of bench.sh in PyTorch with torch.compile: the same sizes, precision, optimizer and batch.

    torch_peer.py MODEL --options OUT/options.json --out F.json [--steps 30]

bf16 is autocast over float32 masters, as fsdpc's; attention is scaled_dot_product_attention; AdamW is the fused one.
"""
import argparse, json, pathlib, statistics, sys, time

import torch
from torch import nn
from torch.nn import functional as F

import models

WARM_UP = 5


class Attention(nn.Module):
    def __init__(self, a, rotary):
        super().__init__()
        self.heads, self.width = a.heads, a.width // a.heads
        self.key_heads = getattr(a, "key_heads", a.heads)
        self.qkv = nn.Linear(a.width, (a.heads + 2 * self.key_heads) * self.width, bias=rotary is None)
        self.proj = nn.Linear(a.width, a.width, bias=rotary is None)
        self.rotary = rotary

    def turned(self, x):
        cosines, sines = self.rotary
        first, second = x.chunk(2, -1)
        return torch.cat((first * cosines - second * sines, second * cosines + first * sines), -1).to(x.dtype)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.qkv(x).view(b, s, -1, self.width).transpose(1, 2).split((self.heads, self.key_heads, self.key_heads), 1)
        if self.rotary is not None:
            q, k = self.turned(q), self.turned(k)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.key_heads != self.heads)
        return self.proj(o.transpose(1, 2).reshape(b, s, -1))


class GptMlp(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.up, self.down = nn.Linear(a.width, 4 * a.width), nn.Linear(4 * a.width, a.width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class LlamaMlp(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.gate, self.up = nn.Linear(a.width, a.hidden, bias=False), nn.Linear(a.width, a.hidden, bias=False)
        self.down = nn.Linear(a.hidden, a.width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, a, rotary):
        super().__init__()
        norm = nn.LayerNorm if rotary is None else nn.RMSNorm
        self.ln1, self.ln2 = norm(a.width, eps=1e-5), norm(a.width, eps=1e-5)
        self.attention, self.mlp = Attention(a, rotary), (GptMlp(a) if rotary is None else LlamaMlp(a))

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Model(nn.Module):
    def __init__(self, a):
        super().__init__()
        rotary = None
        if a.kind == "llama":
            half = a.width // a.heads // 2
            angles = torch.outer(torch.arange(a.seq), 10000.0 ** (-torch.arange(half) / half)).cuda()
            rotary = (angles.cos(), angles.sin())
        self.wte = nn.Embedding(a.vocab, a.width)
        self.wpe = nn.Parameter(torch.zeros(a.seq, a.width)) if rotary is None else None
        self.layers = nn.ModuleList(Block(a, rotary) for _ in range(a.layers))
        self.norm = (nn.LayerNorm if rotary is None else nn.RMSNorm)(a.width, eps=1e-5)
        self.head = nn.Linear(a.width, a.vocab, bias=False)
        if rotary is None:
            self.head.weight = self.wte.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x, labels):
        x = self.wte(x) if self.wpe is None else self.wte(x) + self.wpe
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--options", type=pathlib.Path, required=True)
    p.add_argument("--out", type=pathlib.Path, required=True)
    p.add_argument("--steps", type=int, default=30)
    a = p.parse_args()
    is_low = json.loads(a.options.read_text()).get("mixed_precision", "no") != "no"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    sizes = models.sizes(a.model)
    ids = torch.randint(0, sizes.vocab, (sizes.batch, sizes.seq + 1), device="cuda")
    x, labels = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    model = Model(sizes).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    compiled = torch.compile(model)
    times = []
    for _ in range(a.steps + WARM_UP):
        torch.cuda.synchronize()
        started = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16, enabled=is_low):
            loss = compiled(x, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    a.out.write_text(json.dumps({
        "tokens_per_s": x.numel() / statistics.median(times[WARM_UP:]), "memory_bytes": torch.cuda.max_memory_reserved(),
        "torch": torch.__version__, "compiled": "torch.compile", "loss": loss.item()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
