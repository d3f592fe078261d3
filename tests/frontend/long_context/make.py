#!/usr/bin/env python3
"""Exports the models of long_context.test: tiny ones, without their weights, with a symbolic sequence length. No test runs it; it
needs torch, transformers, onnx and onnxscript.

    make.py [NAME...]
"""
import pathlib, sys, warnings
import onnx, torch
import transformers as T

warnings.filterwarnings("ignore")
LONGEST = 131072
HERE = pathlib.Path(__file__).resolve().parent
SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=64, max_position_embeddings=LONGEST)
ROTARY = dict(SMALL, num_key_value_heads=2, intermediate_size=64)

# name: class, config, its second input: what pads samples, or the positions in the documents of packed ones
MODELS = {
    "llama": (T.LlamaForCausalLM, T.LlamaConfig(**ROTARY), None),
    "llama_padded": (T.LlamaForCausalLM, T.LlamaConfig(**ROTARY), "attention_mask"),
    "llama_packed": (T.LlamaForCausalLM, T.LlamaConfig(**ROTARY), "position_ids"),
    "qwen2": (T.Qwen2ForCausalLM, T.Qwen2Config(**ROTARY), None),
    "mistral": (T.MistralForCausalLM, T.MistralConfig(**ROTARY, sliding_window=32), None),
    "mistral_packed": (T.MistralForCausalLM, T.MistralConfig(**ROTARY, sliding_window=32), "position_ids"),
    "gemma2": (T.Gemma2ForCausalLM, T.Gemma2Config(**ROTARY, sliding_window=32, head_dim=8), None),
    "gpt2": (T.GPT2LMHeadModel, T.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=64, n_positions=LONGEST), None),
    "bert_padded": (T.BertForMaskedLM, T.BertConfig(**SMALL, intermediate_size=64), "attention_mask"),
}


class Logits(torch.nn.Module):
    def __init__(self, model, second):
        super().__init__()
        self.model, self.second = model, second

    def forward(self, input_ids, second=None):
        # Instead of BERT's buffers of the largest length.
        more = {"token_type_ids": torch.zeros_like(input_ids), "position_ids": torch.arange(input_ids.shape[1])[None]} \
            if isinstance(self.model, T.BertForMaskedLM) else {"use_cache": False}
        if self.second:
            more[self.second] = second
        return self.model(input_ids=input_ids, **more).logits


def strip(path):
    """Leaves out weights and what the exporter says of its sources."""
    model = onnx.load(path, load_external_data=False)
    del model.metadata_props[:]
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    del model.graph.value_info[:]
    for tensor in model.graph.initializer:
        count = 1
        for dim in tensor.dims:
            count *= dim
        if tensor.data_location == onnx.TensorProto.EXTERNAL or count > 64:
            tensor.ClearField("raw_data")
            del tensor.external_data[:]
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="weights.bin")
    onnx.save(model, path)
    path.with_name(path.name + ".data").unlink(missing_ok=True)


def export(name):
    make, config, second = MODELS[name]
    model = Logits(make(config).train(), second)
    ids, mask = torch.randint(3, 60, (2, 64)), torch.ones(2, 64, dtype=torch.long)
    mask[1, 50:] = 0
    positions = torch.arange(64).expand(2, 64) % torch.tensor([[40], [25]])
    arguments = (ids, *{"attention_mask": [mask], "position_ids": [positions]}.get(second, []))
    tokens = torch.export.Dim("tokens", min=8, max=LONGEST)
    path = HERE / f"{name}.onnx"
    torch.onnx.export(model, arguments, path, dynamo=True, optimize=False, dynamic_shapes=({1: tokens},) * len(arguments),
                      input_names=["input_ids", second][:len(arguments)], output_names=["logits"])
    strip(path)


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        export(name)
