#!/usr/bin/env python3
"""Writes one stream of tokens for a model of 5 tokens and samples of 4: as a token file, and as samples with the given labels.

    token_data.py DIR        tokens.bin; same.safetensors with labels = ids; next.safetensors with labels shifted by one
"""
import pathlib, sys
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from data import save_safetensors

folder = pathlib.Path(sys.argv[1])
stream = np.random.default_rng(3).integers(0, 5, 4 * 8 + 1)
head = np.zeros(256, "<i4")
head[:3] = 20240520, 1, len(stream)
(folder / "tokens.bin").write_bytes(head.tobytes() + stream.astype("<u2").tobytes())
ids, following = (stream[i:i + 32].reshape(8, 4).astype("i8") for i in (0, 1))
save_safetensors(folder / "same.safetensors", {"ids": ids, "labels": ids})
save_safetensors(folder / "next.safetensors", {"ids": ids, "labels": following})
