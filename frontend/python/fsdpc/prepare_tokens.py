"""Text to files of tokens that training programs read (`--train_data`): llm.c's .bin, a header and uint16 or uint32 tokens."""
import pathlib
import struct

from .rows import TABLES, rows_of, sources_of, text_of

SHORT, WIDE = (20240520, 1, "<u2"), (20240801, 7, "<u4")     # magic, version, type (runtime/common/data_formats.h)
HEADER_WORDS = 256
END_NAMES = ("<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "[SEP]")


def documents_of(path, field):
    """The documents of a file: .txt or .md is one, .jsonl has one in each line, .parquet and .arrow one in each row."""
    if path.suffix in (".txt", ".md"):
        try:
            yield path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: {error}") from error
    elif path.suffix in TABLES:
        yield from (text_of(place, row, field) for place, row in rows_of(path, [field]))
    else:
        raise ValueError(f"{path}: .txt, .md, .jsonl, .parquet or .arrow is expected")


def open_tokenizer(tokenizer):
    """A tokenizers.Tokenizer: given as one, within one of transformers, as a tokenizer.json, as a folder that has it, or by a name for the
    Hub."""
    import tokenizers
    tokenizer = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if isinstance(tokenizer, tokenizers.Tokenizer):
        return tokenizer
    path = pathlib.Path(tokenizer)
    if path.is_dir():
        path = path / "tokenizer.json"
    return tokenizers.Tokenizer.from_file(str(path)) if path.exists() else tokenizers.Tokenizer.from_pretrained(str(tokenizer))


def token_of(encoder, text):
    token = encoder.token_to_id(text)
    if token is None:
        raise ValueError(f"the tokenizer has no token {text!r}")
    return token


def end_token(encoder, end):
    """The token `end`; of None the one after a document, by its usual names."""
    if end is not None:
        return token_of(encoder, end)
    tokens = [token for token in map(encoder.token_to_id, END_NAMES) if token is not None]
    if not tokens:
        raise ValueError(f"the tokenizer has no token {' or '.join(map(repr, END_NAMES))}; end= names the one after a document")
    return tokens[0]


class ShardWriter:
    """Writes tokens to FOLDER/NAME_000000.bin, ... of at most `shard_tokens` each. A file appears when it is complete."""

    def __init__(self, folder, name, shard_tokens, wide):
        self.folder, self.name, self.shard_tokens = pathlib.Path(folder), name, shard_tokens
        self.magic, self.version, self.type = WIDE if wide else SHORT
        self.pending, self.count, self.files = [], 0, []
        self.folder.mkdir(parents=True, exist_ok=True)

    def add(self, tokens):
        import numpy
        self.pending.append(numpy.asarray(tokens, self.type))
        self.count += len(tokens)
        while self.count >= self.shard_tokens:
            joined = numpy.concatenate(self.pending)
            self.write(joined[:self.shard_tokens])
            self.pending, self.count = [joined[self.shard_tokens:]], self.count - self.shard_tokens

    def finish(self):
        import numpy
        if self.count:
            self.write(numpy.concatenate(self.pending))
        return self.files

    def write(self, tokens):
        path = self.folder / f"{self.name}_{len(self.files):06}.bin"
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            file.write(struct.pack("<3i", self.magic, self.version, len(tokens)).ljust(HEADER_WORDS * 4, b"\0"))
            file.write(tokens.tobytes())
        partial.rename(path)
        self.files.append(path)


def prepare(sources, folder, tokenizer, field="text", end=None, name="train", shard_tokens=100_000_000):
    """Writes the documents of `sources` (a path or a list) as token files into `folder` and returns their paths.

    end: the token behind each document, as text, such as "<|endoftext|>"; by default the tokenizer's, found by its usual names.
    Needs the packages tokenizers and numpy, and datasets for .parquet and .arrow. ValueError names the file and the line."""
    encoder = open_tokenizer(tokenizer)
    last = end_token(encoder, end)
    writer = ShardWriter(folder, name, shard_tokens, wide=encoder.get_vocab_size(with_added_tokens=True) > 1 << 16)
    for source in sources_of(sources):
        for document in documents_of(source, field):
            writer.add(encoder.encode(document, add_special_tokens=False).ids + [last])
    return writer.finish()
