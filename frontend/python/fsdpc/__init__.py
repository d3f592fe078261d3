"""Around fsdpc: exporting a PyTorch model for training, preparing data, reading logs. Compiling and training need none of it."""
from .export_model import ExportError, export
from .prepare_images import prepare_images
from .prepare_prompts import prepare_prompts
from .prepare_tokens import prepare
from .training_log import read_log

__all__ = ["export", "ExportError", "prepare", "prepare_images", "prepare_prompts", "read_log"]
