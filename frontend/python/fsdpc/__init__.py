"""Around fsdpc: exporting a PyTorch model for training, preparing tokens, reading logs. Compiling and training need none of it."""
from .export_model import ExportError, export
from .prepare_tokens import prepare
from .training_log import read_log

__all__ = ["export", "ExportError", "prepare", "read_log"]
