"""The fixtures of tests/fixtures that a step uses."""
import os, pathlib

FOLDER = pathlib.Path(__file__).resolve().parent / "fixtures"

# Each covers one feature of models and is accepted in few settings. Other steps skip it. With BatchNorm, both variants.
FEW_SETTINGS = {
    "albert_tiny": ("file",),
    "dlrm_tiny": ("file",),
    "gpt2_ts_eval": ("file",),
    "lstm_tiny": ("file",),
    "nanogpt_loss": ("file",),
    "resnet_fused": ("file",),
    "resnet_tiny": ("file", "train"),
    "unet_tiny": ("file",),
}
# Each is another export, size or optimizer of a model that is tested in every setting.
SAME_MODELS = ("gpt2_fresh", "mlp_seq_ts_eval", "mlp_ts", "mlp_ts_eval", "mnist_cnn_nodropout")
# Fixtures that the compiler does not train yet: shown, counted neither way. A line moves up when its fixture is accepted.
NOT_YET = {
}
# Parameters of these are looked up by rows: in the output layer too, and in several tables.
WITH_TABLES = ("gpt2_tiny", "bigmodel_tiny", "dlrm_tiny")
# Maximum distance of the losses from PyTorch's f32 run, as a multiple of that of another PyTorch bf16 run, and why.
# lstm_tiny: PyTorch's kernel keeps gates and cell state in f32 over all steps of a sequence. The graph has bf16 values.
BF16_FURTHER = {"lstm_tiny": 1.2}
# Checked against the bounds of bf16 node by node, also on the emulated device.
BF16_EVERY_NODE = ("bigmodel_tiny", "gpt2_tiny", "mlp", "mnist_cnn_nodropout")


def with_batches():
    """Folders of all fixtures that have losses."""
    return [f.parent for f in sorted(FOLDER.glob("*/meta.json"))]


def everywhere(wanted=()):
    """Folders of the fixtures that every step uses, limited to `wanted` if any are named."""
    names = [f.parent.name for f in sorted(FOLDER.glob("*/meta.json"))]
    return [FOLDER / name for name in names if name not in FEW_SETTINGS and name not in NOT_YET and (not wanted or name in wanted)]


def few_settings(wanted=()):
    """(folder, variant) of the fixtures that are accepted in few settings."""
    return [(FOLDER / name, variant) for name, variants in FEW_SETTINGS.items() if not wanted or name in wanted for variant in variants]


def with_tables(wanted=()):
    return [FOLDER / name for name in WITH_TABLES if not wanted or name in wanted]


def wanted():
    """Names in FSDPC_FIXTURES, which limits a step."""
    return os.environ.get("FSDPC_FIXTURES", "").split()
