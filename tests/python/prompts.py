#!/usr/bin/env python3
"""Tests of fsdpc.prepare_prompts without packages but numpy: which tokens of prompts, completions and conversations are labels."""
import json
import pathlib
import sys
import tempfile
import types
import unittest

from package import ROOT, Tokenizer
import fsdpc

sys.path.insert(0, str(ROOT / "tests"))
import accept

END, IGNORED = 26, -100


class Chat:
    """A chat tokenizer of transformers, for `Tokenizer`: u and x begin what a user and the assistant say, z ends it."""
    chat_template = "given"
    backend_tokenizer = Tokenizer()

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        assert not tokenize
        text = "".join({"user": "u", "assistant": "x"}[message["role"]] + message["content"] + "z" for message in messages)
        return text + "x" if add_generation_prompt else text


class Forgetful(Chat):
    """Its template leaves out what the assistant said before."""

    def apply_chat_template(self, messages, **settings):
        last = len(messages) - 1
        return super().apply_chat_template([m for i, m in enumerate(messages) if m["role"] == "user" or i == last], **settings)


class Pairs(Tokenizer):
    """A token for two letters."""

    def encode(self, text, add_special_tokens):
        bounds = list(range(0, len(text), 2))
        return types.SimpleNamespace(ids=[ord(text[i]) - ord("a") for i in bounds], offsets=[(i, min(i + 2, len(text))) for i in bounds])


def numbers(text):
    """Letters as `Tokenizer` has them; "." is a label that is ignored and "!" the end."""
    return [{".": IGNORED, "!": END}.get(letter, ord(letter) - ord("a")) for letter in text]


class Prompts(unittest.TestCase):
    def setUp(self):
        sys.modules["tokenizers"] = types.SimpleNamespace(Tokenizer=Tokenizer)
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def prepare(self, rows, tokenizer, **settings):
        """The samples, as pairs of lists of input_ids and labels."""
        (self.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.assertEqual(fsdpc.prepare_prompts(self.folder / "rows.jsonl", self.folder / "out.safetensors", tokenizer, **settings), len(rows))
        self.assertEqual(sorted(file.name for file in self.folder.iterdir()), ["out.safetensors", "rows.jsonl"])
        found = accept.load_safetensors(self.folder / "out.safetensors")
        parts = {name: [found[name][begin:end].tolist() for begin, end in zip(offsets, offsets[1:])]
                 for name in ("input_ids", "labels") for offsets in [found[name + ".offsets"].tolist()]}
        return list(zip(parts["input_ids"], parts["labels"]))

    def assertSamples(self, samples, *texts):
        self.assertEqual(samples, [(numbers(ids), numbers(labels)) for ids, labels in texts])

    def test_labels_are_the_next_tokens_of_completions(self):
        rows = [{"prompt": "abc", "completion": "de"}, {"prompt": "f", "completion": ""}, {"prompt": "", "completion": "gh"}]
        self.assertSamples(self.prepare(rows, Tokenizer()), ("abcde", "..de!"), ("f", "!"), ("gh", "h!"))

    def test_columns_and_the_end_have_other_names(self):
        rows = [{"q": "abc", "a": "de"}]
        self.assertSamples(self.prepare(rows, Tokenizer(), prompt="q", completion="a", end="<eos>"), ("abcde", "..de!"))
        with self.assertRaisesRegex(ValueError, "the tokenizer has no token '<stop>'"):
            self.prepare(rows, Tokenizer(), prompt="q", completion="a", end="<stop>")

    def test_a_token_before_prompts_is_no_label(self):
        rows = [{"prompt": "ab", "completion": "c"}, {"prompt": "", "completion": "c"}]
        self.assertSamples(self.prepare(rows, Tokenizer(), begin="<eos>"), ("!abc", "..c!"), ("!c", "c!"))

    def test_a_token_that_both_share_is_of_the_completion(self):
        rows = [{"prompt": "abc", "completion": "de"}]
        self.assertSamples(self.prepare(rows, Pairs()), ("ace", "ce!"))

    def test_all_that_the_assistant_says_is_learnt(self):
        says = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "cd"}, {"role": "user", "content": "e"},
                {"role": "assistant", "content": "f"}]
        self.assertSamples(self.prepare([{"messages": says}, {"messages": says[:2]}], Chat()),
                           ("uabzxcdzuezxf", "....cdz....fz"), ("uabzxcd", "....cdz"))

    def test_what_cannot_be_learnt_is_named(self):
        says = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "cd"}]
        for row, tokenizer, what in (({"prompt": "", "completion": ""}, Tokenizer(), "no token is left to be learnt"),
                                     ({"prompt": "a"}, Tokenizer(), "has no 'completion'; there are prompt"),
                                     ({"prompt": "a", "completion": 1}, Tokenizer(), "'completion' is no text"),
                                     ({"messages": says[:1]}, Chat(), "no token is left to be learnt"),
                                     ({"messages": "hello"}, Chat(), "messages are a list of objects"),
                                     ({"messages": [{"role": "tool"}]}, Chat(), "the chat template refuses the messages: 'tool'"),
                                     ({"messages": 2 * says}, Forgetful(), "the chat template writes message 2 otherwise")):
            with self.subTest(what), self.assertRaisesRegex(ValueError, f"rows.jsonl:1: {what}"):
                self.prepare([row], tokenizer)
            self.assertFalse((self.folder / "out.partial").exists())
        with self.assertRaisesRegex(ValueError, "the tokenizer has no chat template"):
            self.prepare([{"messages": says}], Tokenizer())
        with self.assertRaisesRegex(ValueError, "the sources have no rows"):
            self.prepare([], Tokenizer())


if __name__ == "__main__":
    unittest.main()
