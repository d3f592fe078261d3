"""PyTorch to ONNX as fsdpc trains it: nothing folded or merged, parameters by their names, the batch symbolic."""
import inspect
import json
import pathlib
import shutil
import subprocess
import tempfile
import types

OTHER_NAMES = "fsdpc.other_names"       # frontend/onnx/metadata.h


class ExportError(RuntimeError):
    """What was lost on the way into the file, one line for each parameter."""


def export(model, inputs, path, weights=False, outputs=None, opset=20, command="fsdpc", check=True):
    """Writes `model` to `path` and returns what `fsdpc inspect --json` says of the file.

    inputs: the forward's arguments, in order, or a dict by their names; dim 0 of each is the batch and becomes symbolic.
    weights: whether the file has the values. Without them, programs start from --load_model.
    outputs: names of the outputs that are kept, such as ["logits"]; by default "loss" is left out where there is another.
    The mode (model.train(), model.eval()) is kept: dropout is in the graph in training mode only.
    command: the compiler, found on PATH or by its path.
    check=False: a parameter that requires a gradient and did not arrive is no ExportError."""
    if not shutil.which(command):
        raise ExportError(f"there is no command {str(command)!r} on PATH, which checks the file; command= takes the compiler's path")
    import torch
    arguments = inputs if isinstance(inputs, dict) else dict(zip(inspect.signature(model.forward).parameters, inputs))
    names = list(arguments)
    path = pathlib.Path(path)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder, _FlatForward(model, names, outputs) as flat:
        found = flat.output_names(arguments)
        file = pathlib.Path(folder, path.name)
        batch = torch.export.Dim("batch", min=1)
        torch.onnx.export(model, tuple(arguments.values()), str(file), input_names=names, output_names=found, dynamo=True,
                          optimize=False, external_data=True, opset_version=opset, verbose=False,
                          dynamic_shapes=(tuple({0: batch} if value.dim() else None for value in arguments.values()),))
        _finish(model, file, weights)
        for part in sorted(pathlib.Path(folder).iterdir(), reverse=True):    # the data before the model that names it
            if weights or part == file:
                shutil.move(part, path.parent / part.name)
    return _arrived(model, path, command, check)


class _FlatForward:
    """While it is open, the model takes its inputs by position and returns a tuple of tensors. A module around it would change
    the names of all parameters."""

    def __init__(self, model, names, outputs):
        self.model, self.names, self.wanted = model, names, outputs
        self.forward = model.forward

    def __enter__(self):
        def flat(module, *values):
            return tuple(self.select(self.call(values)).values())
        self.model.forward = types.MethodType(flat, self.model)
        return self

    def __exit__(self, *_):
        del self.model.forward

    def call(self, values):
        result = self.forward(**dict(zip(self.names, values)))
        if hasattr(result, "items"):
            return dict(result.items())
        results = result if isinstance(result, (tuple, list)) else (result,)
        return {f"output_{i}" if len(results) > 1 else "output": value for i, value in enumerate(results)}

    def select(self, results):
        import torch
        tensors = {name: value for name, value in results.items() if isinstance(value, torch.Tensor)}
        wanted = self.wanted or [name for name in tensors if name != "loss"] or list(tensors)
        missing = [name for name in wanted if name not in tensors]
        if missing:
            raise ExportError(f"the model returns no tensor {missing[0]!r}; there are {', '.join(tensors)}")
        return {name: tensors[name] for name in wanted}

    def output_names(self, arguments):
        import torch
        with torch.no_grad():
            return list(self.select(self.call(list(arguments.values()))))


def _saved_names(model):
    """How save_pretrained calls the parameters of a class that it saves under other names than its modules have."""
    try:
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:
        return {}
    if not hasattr(model, "save_pretrained"):
        return {}
    state = {name: value.detach() for name, value in model.state_dict(keep_vars=True).items()}
    saved = revert_weight_conversion(model, dict(state))
    of_storage = {}
    for name, value in saved.items():
        of_storage.setdefault((value.data_ptr(), tuple(value.shape)), []).append(name)
    return {name: of_storage.get((value.data_ptr(), tuple(value.shape)), []) for name, value in state.items() if value.numel()}


def _finish(model, file, weights):
    import onnx
    proto = onnx.load(file, load_external_data=False)
    _state_other_names(model, proto)
    if not weights:
        _keep_buffers(model, proto, file.parent)
    onnx.save(proto, file)


def _state_other_names(model, proto):
    others = {name: [other for other in names if other != name] for name, names in _saved_names(model).items()}
    for first, *names in _names_of_shared(model):
        others.setdefault(first, []).extend(names)
    lines = [f"{name}\t{other}" for name, names in others.items() for other in names]
    if lines:
        entry = proto.metadata_props.add()
        entry.key, entry.value = OTHER_NAMES, "\n".join(lines)


def _keep_buffers(model, proto, folder):
    """Moves the values of tensors that are no parameters, such as a table of positions, from the data file into the model: no
    file of weights has them."""
    from onnx import external_data_helper
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    for tensor in proto.graph.initializer:
        if tensor.name not in parameters and external_data_helper.uses_external_data(tensor):
            external_data_helper.load_external_data_for_tensor(tensor, str(folder))
            tensor.data_location = tensor.DEFAULT
            del tensor.external_data[:]


def _names_of_shared(model):
    names = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def _arrived(model, path, command, check):
    """Compares what the compiler finds in the file with the parameters of the model."""
    ended = subprocess.run([command, "inspect", str(path), "--json"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if ended.returncode != 0:
        raise ExportError(ended.stderr.strip())
    report = json.loads(ended.stdout)
    found = {name: parameter for parameter in report["parameters"] for name in (parameter["name"], *parameter["other_names"])}
    why = {entry["name"]: entry["why"] for entry in report["untrainable"]}
    groups, lost = {}, []
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), (parameter, []))[1].append(name)
    for parameter, names in groups.values():
        ours = next((found[name] for name in names if name in found), None)
        if not parameter.requires_grad:
            continue
        if ours is None:
            lost.append(f"{names[0]} {list(parameter.shape)}: {why.get(names[0], 'is not in the file: no output depends on it')}")
        elif ours["shape"] != list(parameter.shape):
            lost.append(f"{names[0]} {list(parameter.shape)}: has the shape {ours['shape']} in the file")
    if lost and check:
        raise ExportError(f"{path}: {len(lost)} parameter(s) did not arrive:\n  " + "\n  ".join(lost))
    report["lost"] = lost
    return report
