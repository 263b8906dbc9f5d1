"""Networks for tools/onnx_training.py: those of torchvision that were tried, a transformer encoder, a GPT
in nanoGPT's way, and small nets, one for each thing that an importer can get wrong. At the smallest
images that work, with few classes: plain C in double trains each in seconds.

A net is (make, shape of a batch, Net's further words). Its logits are (n, classes), (n, classes, h, w)
or, of tokens, (n, tokens, classes).
"""
import dataclasses
import math
import typing

import torch
import torchvision
from torch import nn
from torch.nn import functional

CLASSES = 5
CALM = 2.0  # biases of normalisations: most of what rectifiers get passes, and rounding does not grow
VOCABULARY = 20


@dataclasses.dataclass
class Net:
    make: typing.Callable
    shape: tuple                # of a batch
    labels: str = "classes"     # or "pixels" or "tokens": one label for each
    vocabulary: int = 0         # the input are ids below this; 0: real numbers
    rate: float = 1e-4          # of SGD: deep normalisations of few values magnify rounding
    freeze: tuple = ()          # buffers that files of TorchScript cannot tell from parameters
    outputs: int = 1            # the first is the one that is trained
    random: bool = False        # it has dropout or stochastic depth: tried with them on, too
    unwritten: tuple = ()       # exporters that fail
    without: tuple = ()         # exporters that round the network's own numbers to float
    computed: dict = dataclasses.field(default_factory=dict)  # parameters of which dynamo computes these tensors
    melted: dict = dataclasses.field(default_factory=dict)    # buffers that are not saved, of each exporter
    as_made: bool = False       # exported as PyTorch makes it: ones, zeros and copies stay, which exporters merge


# ---- parts ----

class First(nn.Module):
    """torchvision's networks for segmentation return a dictionary."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)["out"]


class Small(nn.Module):
    """Two convolutions with something between them, and a head."""

    def __init__(self, between, channels=6):
        super().__init__()
        self.first, self.between = nn.Conv2d(3, channels, 3, padding=1), between
        self.second, self.fc = nn.Conv2d(channels, 4, 3), nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.fc(functional.relu(self.second(self.between(self.first(x)))).mean((2, 3)))


class Tokens(nn.Module):
    """Ids, an embedding, something on (n, tokens, features), and a head."""

    def __init__(self, between, features=12):
        super().__init__()
        self.wte, self.between = nn.Embedding(VOCABULARY, features), between
        self.head = nn.Linear(features, VOCABULARY)

    def forward(self, ids):
        return self.head(self.between(self.wte(ids)))


class Apply(nn.Module):
    """A function, with parameters and buffers of these names, which it gets as its other arguments."""

    def __init__(self, function, parameters=None, buffers=None):
        super().__init__()
        self.function, self.names = function, [*(parameters or {}), *(buffers or {})]
        for name, value in (parameters or {}).items():
            setattr(self, name, nn.Parameter(value))
        for name, value in (buffers or {}).items():
            self.register_buffer(name, value)

    def forward(self, x):
        return self.function(x, *(getattr(self, name) for name in self.names))


class Depth(nn.Module):
    """A residual branch that whole samples skip, as in torchvision's networks."""

    def __init__(self, mode):
        super().__init__()
        self.conv, self.drop = nn.Conv2d(6, 6, 3, padding=1), torchvision.ops.StochasticDepth(0.4, mode)

    def forward(self, x):
        return x + self.drop(functional.relu(self.conv(x)))


# ---- transformers ----

def encoder(dropout=0.1, first=False):
    """PyTorch's own layers, of real inputs, (n, tokens, features)."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout, batch_first=True, norm_first=first,
                                       activation="gelu" if first else "relu")
    return nn.Sequential(nn.Linear(8, 16), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
                         nn.Linear(16, CLASSES))


class CausalAttention(nn.Module):
    """As nanoGPT does it where there is no fused one: a mask in a buffer, masked_fill with -inf."""

    def __init__(self, features, heads, tokens, dropout):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = nn.Linear(features, 3 * features), nn.Linear(features, features)
        self.attn_dropout, self.resid_dropout = nn.Dropout(dropout), nn.Dropout(dropout)
        self.register_buffer("bias", torch.tril(torch.ones(tokens, tokens)).view(1, 1, tokens, tokens))

    def forward(self, x):
        n, t, c = x.size()
        q, k, v = (y.view(n, t, self.heads, c // self.heads).transpose(1, 2)
                   for y in self.c_attn(x).split(c, dim=2))
        weights = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        weights = weights.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
        weights = self.attn_dropout(functional.softmax(weights, dim=-1))
        y = (weights @ v).transpose(1, 2).contiguous().view(n, t, c)
        return self.resid_dropout(self.c_proj(y))


class FusedAttention(CausalAttention):
    """The same with PyTorch's fused operator."""

    def forward(self, x):
        n, t, c = x.size()
        q, k, v = (y.view(n, t, self.heads, c // self.heads).transpose(1, 2)
                   for y in self.c_attn(x).split(c, dim=2))
        rate = self.attn_dropout.p if self.training else 0.0
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=rate)
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(n, t, c)))


class OwnNorm(nn.Module):
    """A layer normalisation whose bias may be absent."""

    def __init__(self, features, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features)) if bias else None

    def forward(self, x):
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class GPTBlock(nn.Module):
    def __init__(self, attention, features, heads, tokens, dropout):
        super().__init__()
        self.ln_1, self.ln_2 = OwnNorm(features, False), OwnNorm(features, True)
        self.attn = attention(features, heads, tokens, dropout)
        self.mlp = nn.Sequential(nn.Linear(features, 4 * features), nn.GELU(),
                                 nn.Linear(4 * features, features), nn.Dropout(dropout))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class NanoGPT(nn.Module):
    """Learned positions, pre-norm blocks, a head that is the embedding."""

    def __init__(self, attention=CausalAttention, tokens=8, features=16, heads=2, dropout=0.1):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, features), nn.Embedding(tokens, features)
        self.drop, self.ln_f = nn.Dropout(dropout), OwnNorm(features, True)
        self.h = nn.ModuleList(GPTBlock(attention, features, heads, tokens, dropout) for _ in range(2))
        self.lm_head = nn.Linear(features, VOCABULARY, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.size(1), dtype=torch.long, device=ids.device))
        x = self.drop(x)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class BiasedAttention(nn.Module):
    """A buffer that is added to the scores, as relative positions that are not learned."""

    def __init__(self, features=12, tokens=6):
        super().__init__()
        self.qkv = nn.Linear(features, 3 * features)
        self.register_buffer("slope", -0.3 * (torch.arange(tokens)[:, None] - torch.arange(tokens)).abs())

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return x + functional.softmax(q @ k.transpose(1, 2) / 3.5 + self.slope, dim=-1) @ v


# ---- what begins alike ----

class Scaled(nn.Module):
    """ConvNeXt's way: a branch that begins as almost nothing. Its scale may get its axes in the code."""

    def __init__(self, *shape):
        super().__init__()
        self.conv, self.layer_scale = nn.Conv2d(6, 6, 3, padding=1), nn.Parameter(torch.full(shape, 1e-6))

    def forward(self, x):
        scale = self.layer_scale if self.layer_scale.dim() == 3 else self.layer_scale.view(6, 1, 1)
        return x + scale * functional.gelu(self.conv(x))


class LearnedBias(nn.Module):
    """Attention with a learned bias that begins with zeros."""

    def __init__(self, features=12, tokens=6):
        super().__init__()
        self.qkv, self.bias = nn.Linear(features, 3 * features), nn.Parameter(torch.zeros(tokens, tokens))

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return x + functional.softmax(q @ k.transpose(1, 2) * 0.25 + self.bias, dim=-1) @ v


def norm_twice():
    """A normalisation used twice, between others that begin as it does."""
    norm = nn.LayerNorm(12)
    return nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 12), norm, nn.Linear(12, 12), nn.Tanh(), norm,
                         nn.Linear(12, 12), nn.LayerNorm(12))


def dense_zeros(tied=False):
    """Dense layers of samples whose biases begin with zeros, two of them perhaps the same one."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 10), nn.Tanh(), nn.Linear(10, 10), nn.Tanh(),
                        nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, CLASSES))
    for i in (1, 3, 5, 7):
        nn.init.zeros_(net[i].bias)
    if tied:
        net[5].bias = net[1].bias
    return net


# ---- torchvision ----

def vision(name, **words):
    def make():
        return getattr(torchvision.models, name)(num_classes=CLASSES, **words)
    return make


def segmentation(name):
    def make():
        f = getattr(torchvision.models.segmentation, name)
        return First(f(weights=None, weights_backbone=None, num_classes=CLASSES))
    return make


def video(name):
    def make():
        net = getattr(torchvision.models.video, name)(num_classes=CLASSES)
        if name == "s3d":  # its last window wants 224 pixels
            net.avgpool = nn.AvgPool3d((2, 2, 2), stride=1)
        return net
    return make


# With fewer samples the last normalisations have so few values that rounding grows. Odd sizes: strides round up, so
# that 17 pixels leave as many as 32 do, 33 as 64, 49 as 64 in S3D.
SMALL = (8, 3, 32, 32)
TORCHVISION = {
    "densenet121": Net(vision("densenet121"), SMALL),
    "mobilenet_v2": Net(vision("mobilenet_v2"), SMALL, random=True),
    "mobilenet_v3_small": Net(vision("mobilenet_v3_small"), SMALL),
    "mobilenet_v3_large": Net(vision("mobilenet_v3_large"), SMALL),
    "efficientnet_b0": Net(vision("efficientnet_b0"), (4, 3, 33, 33), random=True),
    "efficientnet_v2_s": Net(vision("efficientnet_v2_s"), SMALL),
    "convnext_tiny": Net(vision("convnext_tiny"), (2, 3, 32, 32), random=True),
    "shufflenet_v2": Net(vision("shufflenet_v2_x0_5"), SMALL),
    "squeezenet": Net(vision("squeezenet1_1"), (2, 3, 48, 48), random=True),
    "mnasnet": Net(vision("mnasnet0_5"), SMALL, rate=1e-5),
    "regnet_y_400mf": Net(vision("regnet_y_400mf"), SMALL),
    "googlenet": Net(vision("googlenet", init_weights=False, aux_logits=True), (4, 3, 64, 64), outputs=3),
    "wide_resnet50_2": Net(vision("wide_resnet50_2"), SMALL),
    "resnext50": Net(vision("resnext50_32x4d"), SMALL),
    "deeplabv3": Net(segmentation("deeplabv3_resnet50"), (4, 3, 17, 17), "pixels"),
    "fcn": Net(segmentation("fcn_resnet50"), (2, 3, 17, 17), "pixels"),
    "lraspp": Net(segmentation("lraspp_mobilenet_v3_large"), SMALL, "pixels"),
    "r3d_18": Net(video("r3d_18"), (2, 3, 4, 17, 17)),
    "mc3_18": Net(video("mc3_18"), (2, 3, 4, 17, 17)),
    "r2plus1d_18": Net(video("r2plus1d_18"), (2, 3, 4, 17, 17)),
    "s3d": Net(video("s3d"), (2, 3, 13, 49, 49), rate=1e-5),
}

# ---- transformers ----

ALL = ("script", "raw", "dynamo")
POSITIONS = {"wpe.weight": "embedding_1"}  # its rows 0, 1, .., as nanoGPT takes them
MASKS = ("h.0.attn.bias", "h.1.attn.bias")  # attention's causal masks
TRANSFORMERS = {
    "encoder": Net(encoder, (4, 6, 8), "tokens", rate=0.1, random=True),
    "encoder_first": Net(lambda: encoder(first=True), (4, 6, 8), "tokens", rate=0.1),
    "nanogpt": Net(NanoGPT, (4, 8), "tokens", VOCABULARY, 0.1, random=True, computed=POSITIONS,
                   melted=dict.fromkeys(ALL, MASKS)),
    "nanogpt_fused": Net(lambda: NanoGPT(FusedAttention), (4, 8), "tokens", VOCABULARY, 0.1,
                         computed=POSITIONS, melted=dict.fromkeys(ALL, MASKS)),
    "attention_buffer": Net(lambda: Tokens(BiasedAttention()), (4, 6), "tokens", VOCABULARY, 0.1,
                            ("between.slope",)),
}

# ---- small nets: which values are trained (point 1) ----

IMAGE = (4, 3, 8, 8)


def small(between, **words):
    """between: how to make what lies between the convolutions, of 6 channels."""
    return Net(lambda: Small(between()), IMAGE, rate=0.1, **words)


def tokens(between, **words):
    """between: how to make what lies between embedding and head, of 12 features and 6 tokens."""
    return Net(lambda: Tokens(between()), (4, 6), "tokens", VOCABULARY, 0.1, **words)


def standardised():
    """The way of torchvision's references: channels minus mean, by deviation, inside the network."""
    mean, std = (torch.tensor(t).view(3, 1, 1) for t in ([0.4, 0.5, 0.6], [0.2, 0.3, 0.25]))
    return nn.Sequential(Apply(lambda x, m, s: (x - m) / s, buffers={"mean": mean, "std": std}),
                         Small(nn.Identity()))


def scale(*shape):
    return torch.full(shape, 0.7)


KINDS = {
    "instancenorm": small(lambda: nn.InstanceNorm2d(6)),
    "instancenorm_affine": small(lambda: nn.InstanceNorm2d(6, affine=True)),
    "batchnorm_plain": small(lambda: nn.BatchNorm2d(6, affine=False)),
    "groupnorm_plain": small(lambda: nn.GroupNorm(3, 6, affine=False)),
    "groupnorm": small(lambda: nn.GroupNorm(3, 6)),
    "layernorm_plain": tokens(lambda: nn.LayerNorm(12, elementwise_affine=False)),
    "layernorm_no_bias": tokens(lambda: nn.LayerNorm(12, bias=False)),
    "layernorm_image": small(lambda: nn.LayerNorm((6, 8, 8))),
    "prelu": small(lambda: nn.PReLU(6)),
    "prelu_one": small(nn.PReLU),
    "linear_tokens": tokens(lambda: nn.Sequential(nn.Linear(12, 10), nn.ReLU(),
                                                  nn.Linear(10, 12, bias=False))),
    "standardised": Net(standardised, IMAGE, rate=0.1, freeze=("0.mean", "0.std")),
    "scalar_mul": small(lambda: Apply(lambda x, a: x * a, {"a": scale()})),
    "scalar_add": small(lambda: Apply(lambda x, a: x + a, {"a": scale(1)})),
    "scalar_mul_one": small(lambda: Apply(lambda x, a: x * a, {"a": scale(1)})),
    "scalar_add_none": small(lambda: Apply(lambda x, a: x + a, {"a": scale()})),
    "channel_scale": small(lambda: Apply(lambda x, g: x + g * functional.gelu(x), {"gamma": scale(6, 1, 1)})),
    "token_scale": tokens(lambda: Apply(lambda x, g: x * g, {"gamma": scale(12)})),
    "buffer_sum": small(lambda: Apply(lambda x, a, b: x * (a + 2 * b),  # exact in float, too: dynamo folds
                                      buffers={"a": torch.arange(1.0, 7).view(6, 1, 1),
                                               "b": torch.full((6, 1, 1), -0.25)}),
                        freeze=("between.a", "between.b"),
                        melted=dict.fromkeys(("raw", "dynamo"), ("between.a", "between.b"))),
}

# ---- small nets: what begins alike, exported as made ----

MADE = {
    "made_batchnorm": small(lambda: nn.BatchNorm2d(6), as_made=True),
    "made_groupnorm": small(lambda: nn.Sequential(nn.GroupNorm(3, 6), nn.Tanh(), nn.GroupNorm(3, 6)), as_made=True),
    "made_norm_twice": tokens(norm_twice, as_made=True),
    "made_attention": tokens(lambda: nn.Sequential(LearnedBias(), LearnedBias()), as_made=True),
    "made_layer_scale": small(lambda: nn.Sequential(Scaled(6, 1, 1), Scaled(6, 1, 1)), as_made=True),
    "made_layer_view": small(lambda: nn.Sequential(Scaled(6), Scaled(6)), as_made=True),
    "made_scalars": small(lambda: Apply(lambda x, a, b: x * a + torch.tanh(x) * b,
                                        {"a": torch.ones(1), "b": torch.ones(1)}), as_made=True),
    "made_zeros": Net(dense_zeros, IMAGE, rate=0.1, as_made=True),
    "made_tied_zeros": Net(lambda: dense_zeros(True), IMAGE, rate=0.1, as_made=True),
    "made_encoder": Net(encoder, (4, 6, 8), "tokens", rate=0.1, as_made=True),  # its layers are copies
}

# ---- small nets: operators that refused files wanted (point 4) ----
# Their numbers are exact in float, as which files have them: 0.1 of PyTorch's double is another one.

OPERATORS = {
    "hardswish": nn.Hardswish, "hardsigmoid": nn.Hardsigmoid, "softplus": nn.Softplus, "mish": nn.Mish,
    "elu": nn.ELU, "elu_alpha": lambda: nn.ELU(0.7), "celu": lambda: nn.CELU(0.75),  # 1 / 0.7 is float there
    "selu": nn.SELU, "silu": nn.SiLU, "relu6": nn.ReLU6,
    "softplus_beta": lambda: nn.Softplus(beta=2.0), "gelu_tanh": lambda: nn.GELU("tanh"),
    "leaky_relu": lambda: nn.LeakyReLU(0.2), "hardtanh": nn.Hardtanh,
    "neg": lambda: Apply(lambda x: -x), "abs": lambda: Apply(torch.abs),
    "sqrt": lambda: Apply(lambda x: torch.sqrt(x * x + 1)), "exp": lambda: Apply(lambda x: torch.exp(-x)),
    "log": lambda: Apply(lambda x: torch.log(x * x + 1)), "pow2": lambda: Apply(lambda x: x ** 2),
    "pow": lambda: Apply(lambda x: (x.abs() + 0.5) ** 1.75),
    "rsqrt": lambda: Apply(lambda x: x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 2 ** -16)),
    "reciprocal": lambda: Apply(lambda x: 1 / (1 + x.abs())),
    "max": lambda: Apply(lambda x: torch.maximum(x, x * x)),
    "min": lambda: Apply(lambda x: torch.minimum(x, 0.25 - x)),
    "max_number": lambda: Apply(lambda x: torch.maximum(x, torch.tensor(0.125))),
    "where": lambda: Apply(lambda x: torch.where(x > 0.0625, x, 0.25 * x)),
    "masked_fill": lambda: Apply(lambda x: x.masked_fill(x < -0.125, -0.125)),
    "sum": lambda: Apply(lambda x: x + 0.125 * x.sum(1, keepdim=True)),
    "sum_space": lambda: Apply(lambda x: x + 0.015625 * x.sum((2, 3), keepdim=True)),
    "amax": lambda: Apply(lambda x: x - x.amax(1, keepdim=True)),
    "amax_space": lambda: Apply(lambda x: x - x.amax((2, 3), keepdim=True)),
    "norm2": lambda: Apply(lambda x: x / x.norm(dim=1, keepdim=True).clamp_min(2 ** -20)),
    "normalize": lambda: Apply(lambda x: functional.normalize(x, dim=1)),
    "channel_softmax": lambda: Apply(lambda x: x * functional.softmax(x, 1)),
    "log_softmax": lambda: Apply(lambda x: functional.log_softmax(x, 1)),
    "dropout": lambda: nn.Dropout(0.3), "dropout2d": lambda: nn.Dropout2d(0.3),
    "stochastic_depth": lambda: Depth("row"),
}
RANDOM = {"dropout", "dropout2d", "stochastic_depth"}
LAST = {"end_log_softmax": Net(lambda: nn.Sequential(Small(nn.Identity()), nn.LogSoftmax(1)), IMAGE,
                               rate=0.1)}

ROUNDED = {"gelu_tanh": ("script",)}  # sqrt(2 / pi) in four nodes

UNWRITTEN = {"dropout2d": ("script",)}  # aten::feature_dropout

NETS = {**KINDS, **MADE, **{k: small(f, random=k in RANDOM, without=ROUNDED.get(k, ()),
                                   unwritten=UNWRITTEN.get(k, ()))
                    for k, f in OPERATORS.items()}, **LAST,
        **TRANSFORMERS, **TORCHVISION}


# ---- as the comparison wants them ----

def silence(model):
    """Without randomness."""
    for m in model.modules():
        if isinstance(m, (nn.modules.dropout._DropoutNd, torchvision.ops.StochasticDepth)):
            m.p = 0.0
        if isinstance(m, nn.MultiheadAttention):
            m.dropout = 0.0


def quieten(model):
    """Normalisations and zeros where nothing goes unnoticed."""
    for m in model.modules():
        affine = isinstance(m, (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, OwnNorm))
        if affine and getattr(m, "weight", None) is not None:
            nn.init.uniform_(m.weight, 0.7, 1.3)
        if affine and getattr(m, "bias", None) is not None:
            nn.init.normal_(m.bias, CALM, 0.1)
        if getattr(m, "running_mean", None) is not None:
            nn.init.normal_(m.running_mean, 0, 0.1)
            nn.init.uniform_(m.running_var, 0.5, 2)
    distinguish(list(model.parameters()))


@torch.no_grad()
def distinguish(parameters):
    """Exporters merge equal numbers, and drop a bias of zeros."""
    for i, p in enumerate(parameters):
        constant = p.numel() > 1 and bool((p == p.flatten()[0]).all())
        if constant or any(p.shape == q.shape and torch.equal(p, q) for q in parameters[:i]):
            p.add_(0.1 * torch.randn_like(p))


def build(name, seed=1, still=True):
    """The network in float, in training mode, with weights that the seed decides: the first one's are those
    that are exported; of the others no two are alike."""
    torch.manual_seed(seed)
    model = NETS[name].make()
    if still:
        silence(model)
    if seed != 1 or not NETS[name].as_made:
        quieten(model)
    return model.train()


def batches(name, count, seed=1):
    """count batches of samples and labels."""
    net, random = NETS[name], torch.Generator().manual_seed(seed)
    n, shape = net.shape[0] * count, net.shape[1:]
    if net.vocabulary:
        x = torch.randint(0, net.vocabulary, (n, *shape), generator=random)
    else:
        x = torch.randn((n, *shape), generator=random)
    extent = {"classes": (), "pixels": shape[1:], "tokens": shape[:1]}[net.labels]
    y = torch.randint(0, net.vocabulary or CLASSES, (n, *extent), generator=random)
    return x, y


def loss(net, output, y):
    """Cross-entropy of the first output, the mean over samples, pixels or tokens."""
    logits = output if isinstance(output, torch.Tensor) else output[0]
    return functional.cross_entropy(logits.transpose(1, 2) if net.labels == "tokens" else logits, y)
