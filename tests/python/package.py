#!/usr/bin/env python3
"""Tests of frontend/python that need no package but numpy: logs, and token files by a tokenizer of this file's own."""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "frontend/python"))
import fsdpc


class Tokenizer:
    """A token for each letter; 26 ends a document."""

    def token_to_id(self, token):
        return 26 if token == "<eos>" else None

    def get_vocab_size(self, with_added_tokens):
        return self.words if with_added_tokens else 26

    def encode(self, text, add_special_tokens):
        assert not add_special_tokens
        return types.SimpleNamespace(ids=[ord(letter) - ord("a") for letter in text], offsets=[(i, i + 1) for i in range(len(text))])

    words = 27


class Prepare(unittest.TestCase):
    def setUp(self):
        sys.modules["tokenizers"] = types.SimpleNamespace(Tokenizer=Tokenizer)
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def tokens(self, path, size):
        data = path.read_bytes()
        magic, version, count = struct.unpack("<3i", data[:12])
        self.assertEqual(len(data), 1024 + count * size)
        self.assertEqual((magic, version), (20240520, 1) if size == 2 else (20240801, 7))
        return list(struct.unpack(f"<{count}{'H' if size == 2 else 'I'}", data[1024:]))

    def test_documents_end_with_the_end_token_and_shards_are_full(self):
        (self.folder / "a.jsonl").write_text('{"text": "abc"}\n\n{"text": "de"}\n')
        (self.folder / "b.txt").write_text("xyz")
        files = fsdpc.prepare([self.folder / "a.jsonl", self.folder / "b.txt"], self.folder / "out", Tokenizer(), shard_tokens=4)
        self.assertEqual([file.name for file in files], ["train_000000.bin", "train_000001.bin", "train_000002.bin"])
        self.assertEqual([self.tokens(file, 2) for file in files], [[0, 1, 2, 26], [3, 4, 26, 23], [24, 25, 26]])
        self.assertEqual(sorted(file.name for file in (self.folder / "out").iterdir()), [file.name for file in files])

    def test_lines_may_begin_with_a_mark_and_end_as_windows_writes_them(self):
        (self.folder / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "abc"}\r\n{"text": "de"}\r\n')
        [file] = fsdpc.prepare(self.folder / "a.jsonl", self.folder, Tokenizer())
        self.assertEqual(self.tokens(file, 2), [0, 1, 2, 26, 3, 4, 26])

    def test_large_vocabularies_have_wide_tokens(self):
        (self.folder / "b.txt").write_text("ab")
        wide = Tokenizer()
        wide.words = 70000
        [file] = fsdpc.prepare(self.folder / "b.txt", self.folder, wide, name="wide")
        self.assertEqual(self.tokens(file, 4), [0, 1, 26])

    def test_bad_lines_and_unknown_files_are_named(self):
        (self.folder / "a.jsonl").write_text('{"text": "abc"}\n{"body": "de"}\n')
        with self.assertRaisesRegex(ValueError, "a.jsonl:2: has no 'text'; there are body"):
            fsdpc.prepare(self.folder / "a.jsonl", self.folder, Tokenizer())
        for line in ("noise", "[1]", '{"text": 1}'):
            (self.folder / "b.jsonl").write_text(f'{{"text": "abc"}}\n\n{line}\n')
            with self.assertRaisesRegex(ValueError, "b.jsonl:3: "):
                fsdpc.prepare(self.folder / "b.jsonl", self.folder, Tokenizer())
        for name, text in (("c.jsonl", b'{"text": "\xff"}'), ("c.txt", b"\xff")):
            (self.folder / name).write_bytes(text)
            with self.assertRaisesRegex(ValueError, f"{name}.*'utf-8' codec can't decode"):
                fsdpc.prepare(self.folder / name, self.folder, Tokenizer())
        with self.assertRaisesRegex(ValueError, "a.pdf: .txt, .md, .jsonl, .parquet or .arrow is expected"):
            fsdpc.prepare(self.folder / "a.pdf", self.folder, Tokenizer())
        with self.assertRaisesRegex(ValueError, "has no token '<stop>'"):
            fsdpc.prepare(self.folder / "a.jsonl", self.folder, Tokenizer(), end="<stop>")


class Export(unittest.TestCase):
    def test_a_missing_compiler_is_named_before_the_model_is_exported(self):
        with self.assertRaisesRegex(fsdpc.ExportError, "no command 'fsdpc-of-nobody' on PATH"):
            fsdpc.export(None, {}, "model.onnx", command="fsdpc-of-nobody")


class ReadLog(unittest.TestCase):
    def test_what_was_trained_again_counts_once(self):
        lines = [{"settings": {"world_size": 2}}, {"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.5},
                 {"step": 2, "epoch": 1, "val_loss": 2.4}, {"step": 3, "loss": 9.0}, {"resumed": {"step": 2}}, {"note": "so"},
                 {"step": 3, "loss": 2.0}]
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write("\n".join(json.dumps(line) for line in lines) + '\n{"step": 4, "lo')
            file.flush()
            log = fsdpc.read_log(file.name)
        self.assertEqual(log.column("loss"), ([1, 2, 3], [3.0, 2.5, 2.0]))
        self.assertEqual(log.column("val_loss"), ([2], [2.4]))
        self.assertEqual((log.settings["world_size"], log.notes), (2, ["so"]))

    def test_a_damaged_line_is_named(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write('{"step": 1, "loss": 3.0}\nnoise\n{"step": 2, "loss": 3.0}\n')
            file.flush()
            with self.assertRaisesRegex(ValueError, ":2: "):
                fsdpc.read_log(file.name)


if __name__ == "__main__":
    unittest.main()
