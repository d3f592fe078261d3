#!/usr/bin/env python3
"""Do identifiers and messages use the field's words?   check_words.py [PATH...]

No source has an identifier that renames.tsv (old, tab, new) renamed. No identifier, read as words, and no string literal has a phrase
of phrases.tsv (phrase, tab, what to write instead). Text of tests is free of the second rule: tests quote models, and say what
went wrong with them. Sources of runtime/common name no target: they may only ask which compiler reads them. Exits 1 with a line for each violation.
"""
import pathlib, re, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = (".h", ".cpp", ".cu", ".cuh", ".def", ".py", ".fsir", ".test", ".onnxtxt", ".md", ".txt", ".cmake", ".sh")
UNREAD = ("tests/fixtures/", "tests/driver/check_words.test")   # exports of others, and this script's own test
# A comment, a string literal, a raw string or an identifier; comments come first, so that a quote in one begins nothing.
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[A-Za-z_]\w*', re.S)


def table(name):
    return dict(line.split("\t") for line in (ROOT / "tests" / name).read_text().splitlines() if line)


def words_of(identifier):
    """rowsOfBatch and rows_of_batch -> rows of batch"""
    return re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", identifier).replace("_", " ").lower()


def violations(text, renames, phrases, is_product):
    """(offset, what is wrong) of one source."""
    for match in re.finditer(r"\w+", text):
        if match[0] in renames:
            yield match.start(), f"'{match[0]}' is '{renames[match[0]]}' now"
    if not is_product:
        return
    refused = re.compile(r"\b(" + "|".join(map(re.escape, phrases)) + r")\b")
    for match in TOKEN.finditer(text):
        token = match[0]
        if token.startswith(("//", "/*")):
            continue
        words = token if token[0] in "\"'R" and not token.isidentifier() else words_of(token)
        for found in refused.finditer(words):
            yield match.start(), f"'{found[0]}' in {token[:60]}: write '{phrases[found[0]]}'"


def targets_named(text):
    """(offset, what is wrong) where a source for every target names one."""
    for match in re.finditer(r"cuda\w*|cublas\w*|nccl\w*|\b(cpu|gpu) target", re.sub(r"__CUDA\w+|<cuda_fp16.h>", lambda word: "_" * len(word[0]), text), re.I):
        yield match.start(), f"'{match[0]}' in a source for every target"


def main():
    paths = [pathlib.Path(path) for path in sys.argv[1:]]
    if not paths:
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
        paths = [ROOT / name for name in listed if name.endswith(SOURCES) and not name.startswith(UNREAD)]
    renames, phrases, failed = table("renames.tsv"), table("phrases.tsv"), 0
    for path in paths:
        if not path.is_file():
            continue
        text = path.read_text(errors="replace")
        name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
        is_product = path.suffix in (".h", ".cpp", ".cu", ".cuh", ".def") and not name.startswith("tests/")
        named = targets_named(text) if is_product and name.startswith("runtime/common/") else ()
        for offset, what in [*violations(text, renames, phrases, is_product), *named]:
            print(f"{name}:{text.count(chr(10), 0, offset) + 1}: {what}")
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
