"""The modules that the fixtures were exported from, by fixture. Dropout is off. `units` go to fully_shard one by one."""
import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    def __init__(self, meta):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(32, 64), nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x):
        return self.fc3(F.gelu(self.fc2(F.gelu(self.fc1(x)))))

    def units(self):
        return [self.fc1, self.fc2, self.fc3]


class MnistCnn(nn.Module):
    def __init__(self, meta):
        super().__init__()
        sizes = {row["fqn"]: row["shape"] for row in meta["parameters"]}
        width, (hidden, flat) = sizes["conv1.weight"][0], sizes["fc1.weight"]
        self.conv1, self.conv2 = nn.Conv2d(1, width, 3), nn.Conv2d(width, 2 * width, 3)
        self.fc1, self.fc2 = nn.Linear(flat, hidden), nn.Linear(hidden, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return F.log_softmax(self.fc2(F.relu(self.fc1(torch.flatten(x, 1)))), dim=1)

    def units(self):
        return [self.conv1, self.conv2, self.fc1, self.fc2]


class BigBlock(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.linear1, self.linear2 = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        x = self.norm1(x + self.attn(x, x, x, need_weights=False)[0])
        return self.norm2(x + self.linear2(F.relu(self.linear1(x))))


class BigModel(nn.Module):
    def __init__(self, meta):
        super().__init__()
        dims = meta["dims"]
        self.embedding = nn.Embedding(dims["vocab"], dims["width"])
        self.layers = nn.ModuleList(BigBlock(dims["width"], dims["heads"], 4 * dims["width"]) for _ in range(dims["layers"]))
        self.output = nn.Linear(dims["width"], dims["vocab"])

    def forward(self, tokens):
        x = self.embedding(tokens).transpose(0, 1)
        for layer in self.layers:
            x = layer(x)
        return self.output(x.transpose(0, 1))

    def units(self):
        return list(self.layers)


class Gpt2(nn.Module):
    def __init__(self, meta):
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel
        dims = meta["dims"]
        self.model = GPT2LMHeadModel(GPT2Config(vocab_size=dims["vocab"], n_positions=64, n_embd=dims["width"], n_layer=dims["layers"],
                                                n_head=dims["heads"], resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))

    def forward(self, input_ids):
        return self.model(input_ids).logits

    def units(self):
        return list(self.model.transformer.h)


class Albert(nn.Module):
    """Its one layer is applied three times, so the only unit is the entire module."""

    def __init__(self, meta):
        super().__init__()
        from transformers import AlbertConfig, AlbertForSequenceClassification
        dims = meta["dims"]
        self.model = AlbertForSequenceClassification(AlbertConfig(
            vocab_size=dims["vocab"], embedding_size=32, hidden_size=96, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128,
            max_position_embeddings=32, num_labels=dims["classes"], hidden_dropout_prob=0, attention_probs_dropout_prob=0,
            classifier_dropout_prob=0))

    def forward(self, input_ids, attention_mask, token_type_ids):
        return self.model(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).logits

    def units(self):
        return []


class Dlrm(nn.Module):
    def __init__(self, meta):
        super().__init__()
        sizes = [row["shape"] for row in meta["parameters"] if row["fqn"].startswith("tables.")]
        self.bottom = nn.Sequential(nn.Linear(meta["dims"]["dense"], 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.tables = nn.ModuleList(nn.Embedding(*size) for size in sizes)
        self.top = nn.Sequential(nn.Linear(26, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, dense, sparse):
        low = self.bottom(dense)
        vectors = torch.stack([low, *(table(sparse[:, i]) for i, table in enumerate(self.tables))], 1)
        row, column = torch.tril_indices(5, 5, -1)
        return self.top(torch.cat([low, (vectors @ vectors.transpose(1, 2))[:, row, column]], 1)).squeeze(1)

    def units(self):
        return [self.bottom, *self.tables, self.top]


class LstmLm(nn.Module):
    def __init__(self, meta):
        super().__init__()
        vocab, width = meta["dims"]["vocab"], meta["dims"]["width"]
        self.embed, self.lstm, self.head = nn.Embedding(vocab, width), nn.LSTM(width, width, 2, batch_first=True), nn.Linear(width, vocab)

    def forward(self, tokens):
        return self.head(self.lstm(self.embed(tokens))[0])

    def units(self):
        return [self.embed, self.lstm, self.head]


class NanoGptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width, bias=False), "c_proj": nn.Linear(width, width, bias=False)})
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width, bias=False), nn.GELU(), nn.Linear(4 * width, width, bias=False))

    def forward(self, x):
        parts = self.attn["c_attn"](self.ln_1(x)).split(x.shape[-1], 2)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        x = x + self.attn["c_proj"](F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.ln_2(x))


class NanoGpt(nn.Module):
    """The loss, which the fixture has in the graph, is computed from f32 logits, as autocast computes it."""

    def __init__(self, meta):
        super().__init__()
        vocab, seq = meta["dims"]["vocab"], meta["dims"]["seq"]
        width = next(row["shape"][1] for row in meta["parameters"] if row["fqn"] == "net.wte.weight")
        self.net = nn.ModuleDict({"wte": nn.Embedding(vocab, width), "wpe": nn.Embedding(seq, width),
                                  "h": nn.ModuleList(NanoGptBlock(width, 4) for _ in range(2)), "ln_f": nn.LayerNorm(width, bias=False)})

    def forward(self, tokens, labels):
        x = self.net["wte"](tokens) + self.net["wpe"].weight
        for block in self.net["h"]:
            x = block(x)
        logits = F.linear(self.net["ln_f"](x), self.net["wte"].weight)
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())

    def units(self):
        return list(self.net["h"])


class ResNetBlock(nn.Module):
    """`norm` constructs the layer after a convolution."""

    def __init__(self, channels, out, norm, bias):
        super().__init__()
        stride = 1 if channels == out else 2
        self.conv1, self.bn1 = nn.Conv2d(channels, out, 3, stride, 1, bias=bias), norm(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=bias), norm(out)
        self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=bias), norm(out)) if stride > 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.downsample(x))


class ResNet(nn.Module):
    """torchvision's with basic blocks, an eighth of its width, and frozen statistics, as in the file, or no BatchNorm."""

    def __init__(self, meta):
        super().__init__()
        is_fused = "BatchNormalization" not in meta["ops"]
        norm = (lambda channels: nn.Identity()) if is_fused else nn.BatchNorm2d
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 7, 2, 3, bias=is_fused), norm(8)
        for i, (channels, out) in enumerate([(8, 8), (8, 16), (16, 32), (32, 64)], 1):
            setattr(self, f"layer{i}", nn.Sequential(ResNetBlock(channels, out, norm, is_fused)))
        self.fc = nn.Linear(64, 10)
        self.eval()

    def forward(self, image):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(image))), 3, 2, 1)
        for layer in self.units():
            x = layer(x)
        return self.fc(x.mean((2, 3)))

    def units(self):
        return [self.layer1, self.layer2, self.layer3, self.layer4]


def unet_convolutions(channels, out):
    return nn.Sequential(*(layer for width in (channels, out)
                           for layer in (nn.Conv2d(width, out, 3, padding=1), nn.GroupNorm(4, out), nn.SiLU())))


class UNet(nn.Module):
    def __init__(self, meta):
        super().__init__()
        self.d1, self.d2, self.mid = unet_convolutions(1, 8), unet_convolutions(8, 16), unet_convolutions(16, 32)
        self.up2, self.u2 = nn.ConvTranspose2d(32, 16, 2, 2), unet_convolutions(32, 16)
        self.up1, self.u1 = nn.ConvTranspose2d(16, 8, 4, 2, 1), unet_convolutions(16, 8)
        self.final = nn.Conv2d(8, 1, 1)

    def forward(self, noisy):
        fine = self.d1(noisy)
        coarse = self.d2(F.max_pool2d(fine, 2))
        x = self.mid(F.avg_pool2d(coarse, 2))
        x = self.u2(torch.cat([self.up2(x), coarse], 1))
        return self.final(self.u1(torch.cat([self.up1(x), fine], 1)))

    def units(self):
        return [self.d1, self.d2, self.mid, self.u2, self.u1]


MODELS = {"albert_tiny": Albert, "bigmodel_tiny": BigModel, "dlrm_tiny": Dlrm, "gpt2_fresh": Gpt2, "gpt2_tiny": Gpt2, "gpt2_ts_eval": Gpt2,
          "lstm_tiny": LstmLm, "mlp": Mlp, "mlp_seq_ts_eval": Mlp, "mlp_ts": Mlp, "mlp_ts_eval": Mlp, "mnist_cnn": MnistCnn,
          "mnist_cnn_nodropout": MnistCnn, "nanogpt_loss": NanoGpt, "resnet_fused": ResNet, "resnet_tiny": ResNet, "unet_tiny": UNet}
