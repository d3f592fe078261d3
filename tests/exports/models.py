"""The models that make.py exports. Each has one cause for which an exporter's file differs from the author's parameters.

A function with @export returns (module, inputs of all rows). Weights are initialised by torch and seeded by make.py: equal
norms, ones and zeros as in a model that was never trained.
"""
import dataclasses
import torch
from torch import nn
from torch.nn import functional as F

ROWS, SEQUENCE, WIDTH, VOCABULARY, CLASSES = 4, 6, 8, 24, 5
CASES = {}


@dataclasses.dataclass
class Case:
    make: object
    cause: str
    loss: str = "cross_entropy"     # or mse, in_graph
    class_axis: int = -1
    exporter: str = "dynamo"        # or torchscript
    training: bool = False          # the mode the module is exported in
    arguments: dict = dataclasses.field(default_factory=dict)   # of torch.onnx.export
    optimizer: dict = dataclasses.field(default_factory=lambda: SGD)
    group: object = None            # name of a parameter -> its own settings of the optimizer
    steps: int = 4
    options: list = dataclasses.field(default_factory=list)     # of fsdpc
    rows: dict = dataclasses.field(default_factory=dict)        # parameter -> its rows in the file, if some are missing
    absent: str = ""                # regex: parameters that the exporter drops and training keeps at zero
    reference: object = None        # module -> the module that training the file trains, if not the exported one


SGD = {"kind": "sgd", "lr": 0.1, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False}
ADAMW = {"kind": "adamw", "lr": 0.01, "betas": [0.9, 0.999], "eps": 1e-5, "weight_decay": 0.1}
LION = {"kind": "lion", "lr": 0.002, "betas": [0.9, 0.99], "weight_decay": 0.1}
UNOPTIMIZED = {"optimize": False}


def export(cause, **settings):
    def add(make):
        CASES[make.__name__] = Case(make, cause, **settings)
        return make
    return add


def generator(seed):
    return torch.Generator().manual_seed(seed)


def tokens(seed=1, length=SEQUENCE):
    return torch.randint(0, VOCABULARY, (ROWS, length), generator=generator(seed))


def numbers(*shape, seed=2):
    return torch.randn(ROWS, *shape, generator=generator(seed))


def table(rows, width=WIDTH):
    return nn.Parameter(torch.randn(rows, width) * 0.5)


class Attention(nn.Module):
    def __init__(self, width=WIDTH, heads=2, output_bias=True):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width, bias=output_bias)

    def forward(self, x, bias=None):
        b, s, w = x.shape
        q, k, v = self.qkv(x).reshape(b, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * (w // self.heads) ** -0.5
        scores = scores if bias is None else scores + bias
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, s, w))


class Mlp(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.norm1, self.attention, self.norm2, self.mlp = nn.LayerNorm(width), Attention(width), nn.LayerNorm(width), Mlp(width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


# ---- tables that are stored expanded, sliced or gathered

@export("a class token expanded along the batch", optimizer=ADAMW)
def cls_token():
    class Vit(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(1, WIDTH, 4, 4)
            self.cls_token, self.position = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, 5, WIDTH))
            self.block, self.norm, self.head = Block(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

        def forward(self, pixels):
            x = self.patches(pixels).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1) + self.position
            return self.head(self.norm(self.block(x))[:, 0])
    return Vit(), {"pixels": numbers(1, 8, 8)}


@export("a table of positions sliced by arange", rows={"positions.weight": range(SEQUENCE)})
def position_slice():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(16, WIDTH)
            self.block, self.head = Block(), nn.Linear(WIDTH, VOCABULARY)

        def forward(self, ids):
            return self.head(self.block(self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))))
    return Net(), {"ids": tokens()}


@export("a table of token types read at one row", rows={"types.weight": [0]}, optimizer=ADAMW)
def token_types():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.types, self.norm = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(2, WIDTH), nn.LayerNorm(WIDTH)
            self.block, self.head = Block(), nn.Linear(WIDTH, CLASSES)

        def forward(self, ids):
            x = self.norm(self.tokens(ids) + self.types(torch.zeros(ids.shape, dtype=torch.long)))
            return self.head(self.block(x).mean(1))
    return Net(), {"ids": tokens()}


@export("a table of relative positions gathered by a buffer, rows more than once")
def relative_positions():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.relative = table(2 * SEQUENCE - 1, 2)
            steps = torch.arange(SEQUENCE)
            self.register_buffer("index", steps[:, None] - steps[None, :] + SEQUENCE - 1)
            self.attention, self.head = Attention(), nn.Linear(WIDTH, CLASSES)

        def forward(self, x):
            return self.head(self.attention(x, self.relative[self.index].permute(2, 0, 1)).mean(1))
    return Net(), {"x": numbers(SEQUENCE, WIDTH)}


@export("learned queries expanded along the batch")
def learned_queries():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.queries, self.key, self.value = table(3), nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)
            self.head = nn.Linear(3 * WIDTH, CLASSES)

        def forward(self, x):
            queries = self.queries.unsqueeze(0).expand(x.shape[0], -1, -1)
            return self.head(((queries @ self.key(x).transpose(1, 2)).softmax(-1) @ self.value(x)).flatten(1))
    return Net(), {"x": numbers(SEQUENCE, WIDTH)}


# ---- constants that look like parameters

@export("a mask of zeros beside a projection without a bias")
def zero_mask():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.head = Attention(output_bias=False), nn.Linear(WIDTH, CLASSES)

        def forward(self, x):
            x = x + self.attention(x, torch.zeros(x.shape[0], 1, x.shape[1], x.shape[1]))
            return self.head(x.mean(1))
    return Net(), {"x": numbers(SEQUENCE, WIDTH)}


@export("norms over the image without parameters of their own: InstanceNormalization of ones and zeros")
def norms_without_parameters():
    net = nn.Sequential(nn.Conv2d(1, WIDTH, 3), nn.InstanceNorm2d(WIDTH), nn.ReLU(), nn.Conv2d(WIDTH, WIDTH, 3, bias=False),
                        nn.GroupNorm(2, WIDTH, affine=False), nn.SiLU(), nn.Conv2d(WIDTH, WIDTH, 3), nn.GroupNorm(4, WIDTH), nn.Flatten(),
                        nn.Linear(WIDTH * 4, CLASSES))
    return net, {"x": numbers(1, 8, 8)}


# ---- equal parameters that the exporter merged

@export("two equal norms of one input (GPT-NeoX), equal over the layers too", optimizer=ADAMW)
def parallel_norms():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.attention, self.norm2, self.mlp = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH), Mlp()

        def forward(self, x):
            return x + self.attention(self.norm1(x)) + self.mlp(self.norm2(x))

    return nn.Sequential(Layer(), Layer(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)), {"x": numbers(SEQUENCE, WIDTH)}


@export("equal layer scales (CaiT, ConvNeXt)")
def layer_scales():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.gamma, self.mlp = nn.Parameter(torch.full((WIDTH,), 0.1)), Mlp()

        def forward(self, x):
            return x + self.gamma * self.mlp(x)

    return nn.Sequential(Layer(), Layer(), Layer(), nn.Linear(WIDTH, CLASSES)), {"x": numbers(WIDTH)}


@export("equal norms of all layers merged by the TorchScript exporter", exporter="torchscript", optimizer=ADAMW)
def merged_norms_torchscript():
    return nn.Sequential(Block(), Block(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)), {"x": numbers(SEQUENCE, WIDTH)}


@export("a language model by the TorchScript exporter: a label for each token", exporter="torchscript")
def language_model_torchscript():
    return nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), Block(), nn.Linear(WIDTH, VOCABULARY)), {"ids": tokens()}


@export("an output layer tied to the embedding", optimizer=ADAMW)
def tied_head():
    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.block, self.norm = nn.Embedding(VOCABULARY, WIDTH), Block(), nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, ids):
            return self.head(self.norm(self.block(self.tokens(ids))))
    return Gpt(), {"ids": tokens()}


@export("zero biases that the exporter drops, restored", options=["--restore_biases"])
def dropped_biases():
    net = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, CLASSES))
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)
    return net, {"x": numbers(WIDTH)}


# ---- weights that are computed from weights

def state_spaces():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.a_log, self.d = nn.Parameter(torch.log(torch.arange(1.0, WIDTH + 1))), nn.Parameter(torch.ones(WIDTH))
            self.step = nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            rate, state, states = -torch.exp(self.a_log), torch.zeros_like(x[:, 0]), []
            for t in range(x.shape[1]):
                step = F.softplus(self.step(x[:, t]))
                state = torch.exp(step * rate) * state + step * x[:, t]
                states.append(state)
            return torch.stack(states, 1) + self.d * x

    return nn.Sequential(Layer(), Layer(), nn.Linear(WIDTH, CLASSES)), {"x": numbers(3, WIDTH)}


@export("a decay that is -exp of a parameter (Mamba), of which only the result is left in the file")
def state_space_folded():
    return state_spaces()


@export("a decay that is -exp of a parameter, whose computation is still in the file; equal in all layers", arguments=UNOPTIMIZED)
def state_space_kept():
    return state_spaces()


def weight_normed():
    normed = nn.utils.parametrizations.weight_norm
    return nn.Sequential(normed(nn.Linear(WIDTH, WIDTH)), nn.ReLU(), normed(nn.Linear(WIDTH, CLASSES))), {"x": numbers(WIDTH)}


@export("weight norm, of which only the result is left in the file")
def weight_norm_folded():
    return weight_normed()


@export("weight norm, whose computation is still in the file", arguments=UNOPTIMIZED)
def weight_norm_kept():
    return weight_normed()


@export("a norm over the image's axes with parameters in [1, 1, 1, C] (ConvNeXt V2)")
def global_response_norm():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.up, self.down = nn.Conv2d(1, WIDTH, 2, 2), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
            self.gamma, self.beta = nn.Parameter(torch.zeros(1, 1, 1, 2 * WIDTH)), nn.Parameter(torch.zeros(1, 1, 1, 2 * WIDTH))
            self.head = nn.Linear(WIDTH, CLASSES)

        def forward(self, x):
            x = self.stem(x).permute(0, 2, 3, 1)
            y = F.gelu(self.up(x))
            size = torch.norm(y, p=2, dim=(1, 2), keepdim=True)
            y = self.gamma * (y * (size / (size.mean(-1, keepdim=True) + 1e-6))) + self.beta + y
            return self.head((x + self.down(y)).mean((1, 2)))
    return Net(), {"x": numbers(1, 8, 8)}


# ---- modules of torch

@export("nn.TransformerDecoderLayer: one projection cut into query, key and value; its zero biases restored", loss="mse", optimizer=ADAMW,
        options=["--restore_biases"])
def decoder_layer():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerDecoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.0, batch_first=True)

        def forward(self, x, memory):
            return self.layer(x, memory)
    return Net(), {"x": numbers(SEQUENCE, WIDTH), "memory": numbers(4, WIDTH, seed=3)}


def convolutions():
    net = nn.Sequential(nn.Conv2d(1, WIDTH, 3, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU(), nn.Conv2d(WIDTH, WIDTH, 3), nn.BatchNorm2d(WIDTH),
                        nn.ReLU(), nn.Flatten(), nn.Linear(WIDTH * 16, CLASSES))
    for layer in net:
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.copy_(torch.randn(WIDTH) * 0.2)
            layer.running_var.copy_(torch.rand(WIDTH) + 0.5)
    return net, {"x": numbers(1, 8, 8)}


@export("BatchNorm kept by optimize=False", arguments=UNOPTIMIZED)
def batch_norm_kept():
    return convolutions()


@export("BatchNorm by the TorchScript exporter in training mode", exporter="torchscript", training=True)
def batch_norm_training():
    return convolutions()


def fused(net):
    layers = list(net)
    for i, layer in enumerate(layers):
        if isinstance(layer, nn.BatchNorm2d):
            layers[i - 1], layers[i] = torch.nn.utils.fusion.fuse_conv_bn_eval(layers[i - 1], layer), nn.Identity()
    return nn.Sequential(*layers).requires_grad_(True)          # including the biases that folding created


@export("BatchNorm folded into the convolutions before it", reference=fused)
def batch_norm_folded():
    return convolutions()


@export("nn.LSTM", optimizer=ADAMW)
def lstm():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.lstm, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.LSTM(WIDTH, WIDTH, batch_first=True), nn.Linear(WIDTH, VOCABULARY)

        def forward(self, ids):
            return self.head(self.lstm(self.tokens(ids))[0])
    return Net(), {"ids": tokens()}


@export("nn.GRU in both directions")
def gru_bidirectional():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru, self.head = nn.GRU(WIDTH, WIDTH, bidirectional=True, batch_first=True), nn.Linear(2 * WIDTH, CLASSES)

        def forward(self, x):
            return self.head(self.gru(x)[0].mean(1))
    return Net(), {"x": numbers(SEQUENCE, WIDTH)}


@export("a loop over a cell", arguments=UNOPTIMIZED)
def recurrent_cell():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.GRUCell(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

        def forward(self, x):
            state = torch.zeros(x.shape[0], WIDTH, dtype=x.dtype)
            for t in range(x.shape[1]):
                state = self.cell(x[:, t], state)
            return self.head(state)
    return Net(), {"x": numbers(4, WIDTH)}


# ---- ops

@export("a mixture of experts: TopK and a scatter of its weights")
def mixture_of_experts():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.router, self.experts = nn.Linear(WIDTH, 4, bias=False), nn.ModuleList(Mlp() for _ in range(4))
            self.head = nn.Linear(WIDTH, CLASSES)

        def forward(self, x):
            weights, chosen = self.router(x).softmax(-1).topk(2, -1)
            weights = torch.zeros(x.shape[0], 4, dtype=x.dtype).scatter(1, chosen, weights / weights.sum(-1, keepdim=True))
            return self.head(x + sum(weights[:, i:i + 1] * expert(x) for i, expert in enumerate(self.experts)))
    return Net(), {"x": numbers(WIDTH)}


@export("values written at constant places: ScatterND")
def scattered_rows():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

        def forward(self, x):
            y = self.fc(x)
            y = y.clone()
            y[:, torch.tensor([1, 3])] = y[:, torch.tensor([0, 2])] * 2
            return self.head(y.mean(1))
    return Net(), {"x": numbers(SEQUENCE, WIDTH)}


@export("a spatial transformer: GridSample of a predicted grid")
def spatial_transformer():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.where, self.conv, self.head = nn.Linear(64, 6), nn.Conv2d(1, 4, 3), nn.Linear(4 * 36, CLASSES)

        def forward(self, x):
            theta = self.where(x.flatten(1)).reshape(-1, 2, 3) * 0.3 + torch.eye(2, 3)
            x = F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False)
            return self.head(self.conv(x).relu().flatten(1))
    return Net(), {"x": numbers(1, 8, 8)}


@export("torch.split without optimization: SplitToSequence and SequenceAt", arguments=UNOPTIMIZED)
def split_unoptimized():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.head = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, CLASSES)

        def forward(self, x):
            q, k, v = self.qkv(x).split(WIDTH, -1)
            return self.head(((q @ k.transpose(1, 2)).softmax(-1) @ v).mean(1))
    return Net(), {"x": numbers(SEQUENCE, WIDTH)}


@export("several documents in a sample, found where a position is not the next one", optimizer=ADAMW)
def packed_documents():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(SEQUENCE, WIDTH)
            self.norm, self.attention, self.head = nn.LayerNorm(WIDTH), Attention(), nn.Linear(WIDTH, VOCABULARY)

        def forward(self, ids, positions):
            documents = F.pad((positions[:, 1:] - positions[:, :-1] != 1).cumsum(1), (1, 0))
            order = torch.arange(ids.shape[1])
            seen = (documents[:, None, :, None] == documents[:, None, None, :]) & (order[None, :] <= order[:, None])
            x = self.tokens(ids) + self.positions(positions)
            return self.head(x + self.attention(self.norm(x), torch.where(seen, 0.0, -1e9)))
    positions = [[0, 1, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 2, 0], [2, 3, 4, 0, 1, 2]]
    return Net(), {"ids": tokens(), "positions": torch.tensor(positions)}


@export("a loss inside the graph that shifts the labels itself", loss="in_graph")
def shifted_loss():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.block, self.head = nn.Embedding(VOCABULARY, WIDTH), Block(), nn.Linear(WIDTH, VOCABULARY)

        def forward(self, ids, labels):
            logits = self.head(self.block(self.tokens(ids)))
            return F.cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), labels[:, 1:].reshape(-1))
    labels = tokens(5)
    labels[0, 3], labels[2, 1:3] = -100, -100
    return Net(), {"ids": tokens(), "labels": labels}


def own_settings(name):
    layer = 0 if name.startswith("tokens") else int(name.split(".")[1]) + 1 if name.startswith("blocks") else 3
    settings = {"lr": 0.01 * 0.5 ** (3 - layer)}
    if name.startswith("head"):
        settings = {"lr": 0.003, "betas": (0.8, 0.95), "weight_decay": 0.3}
    if name.startswith("blocks.1.mlp"):
        settings["lr"] *= 3
    if "norm" in name or name.endswith("bias"):
        settings["weight_decay"] = 0.0
    return settings


@export("groups of parameters with their own settings, lr decaying over layers", optimizer=ADAMW, group=own_settings,
        options=["--group", "head[.].*:name=head,lr=0.003,betas=0.8,0.95,weight_decay=0.3", "--group", "blocks[.]1[.]mlp.*:lr_scale=3",
                 "--no_decay", "norms_biases", "--layer_decay", "0.5"])
def parameter_groups():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.blocks = nn.Embedding(VOCABULARY, WIDTH), nn.ModuleList([Block(), Block()])
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

        def forward(self, ids):
            x = self.tokens(ids)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))
    return Net(), {"ids": tokens()}


@export("Lion, for a hundred steps", loss="mse", optimizer=LION, steps=100)
def lion():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CLASSES)), {"x": numbers(WIDTH)}
