"""The rows of .jsonl, .parquet and .arrow files."""
import json
import pathlib

TABLES = (".jsonl", ".json", ".parquet", ".arrow")


def sources_of(sources):
    """The paths of `sources`, which is one of them or a list."""
    return [pathlib.Path(source) for source in ([sources] if isinstance(sources, (str, pathlib.Path)) else sources)]


def rows_of(path, fields):
    """(place, row) of each row: where it is, such as "a.jsonl:3", and a dict that has those of `fields` that the file has. Others may
    be None."""
    if path.suffix not in TABLES:
        raise ValueError(f"{path}: .jsonl, .parquet or .arrow is expected")
    if path.suffix in (".jsonl", ".json"):
        yield from _lines_of(path)
    else:
        import datasets
        table = datasets.load_dataset(path.suffix[1:], data_files=str(path), split="train")
        columns = [field for field in fields if field in table.column_names]
        if not columns:
            raise ValueError(f"{path}: has no column {' or '.join(map(repr, fields))}; there are {', '.join(table.column_names)}")
        unread = dict.fromkeys(table.column_names)      # messages name all columns
        yield from ((f"{path}: row {number}", unread | row) for number, row in enumerate(table.select_columns(columns), 1))


def _lines_of(path):
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:     # no JSON, or no UTF-8
                raise ValueError(f"{path}:{number}: {error}") from error
            if not isinstance(row, dict):
                raise ValueError(f"{path}:{number}: no JSON object")
            yield f"{path}:{number}", row


def text_of(place, row, field):
    """The text in a column of a row."""
    if field not in row:
        raise ValueError(f"{place}: has no {field!r}; there are {', '.join(row)}")
    if not isinstance(row[field], str):
        raise ValueError(f"{place}: {field!r} is no text")
    return row[field]
