"""Writing .safetensors files of data sets that do not fit into memory."""
import json
import pathlib

HEADER_BYTES = 4096     # reserved; blanks fill it up
TYPES = {"float32": "F32", "float16": "F16", "int32": "I32", "int64": "I64"}


class SafetensorsFile:
    """Writes the rows of one tensor as they come, then other tensors. The file appears when it is complete."""

    def __init__(self, path, name, dtype, row_shape=()):
        self.path, self.name, self.dtype, self.row_shape, self.rows = pathlib.Path(path), name, dtype, tuple(row_shape), 0
        if self.path.suffix != ".safetensors":
            raise ValueError(f"{path}: a name that ends with .safetensors is expected")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.partial = self.path.with_suffix(".partial")
        self.file = self.partial.open("wb")
        self.file.seek(8 + HEADER_BYTES)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.partial.unlink(missing_ok=True)

    def add(self, rows):
        """Rows of the first tensor, an array [n, *row_shape]."""
        self.file.write(rows.astype(self.dtype).tobytes())
        self.rows += len(rows)

    def finish(self, others):
        """others: arrays by their names."""
        tensors = {self.name: (self.dtype, (self.rows, *self.row_shape))}
        for name, array in others.items():
            self.file.write(array.tobytes())
            tensors[name] = str(array.dtype), array.shape
        header, begin = {}, 0
        for name, (dtype, shape) in tensors.items():
            end = begin + _bytes_of(dtype, shape)
            header[name] = {"dtype": TYPES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
            begin = end
        self.file.seek(0)
        self.file.write(HEADER_BYTES.to_bytes(8, "little") + json.dumps(header).encode().ljust(HEADER_BYTES))
        self.file.close()
        self.partial.rename(self.path)


def _bytes_of(dtype, shape):
    import numpy
    count = 1
    for size in shape:
        count *= size
    return count * numpy.dtype(dtype).itemsize
