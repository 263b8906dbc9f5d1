"""Networks for tools/onnx_exports.py, with names that say what they try: torchvision's, a small U-Net,
a small GPT. All at sizes that plain C computes in seconds.
"""
import torch
import torchvision
from torch import nn
from torch.nn import functional


def double_conv(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
                         nn.Conv2d(b, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))


class UNet(nn.Module):
    """Two levels; one goes up by a transposed convolution, one by interpolation."""

    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.bottom = double_conv(3, 8), double_conv(8, 16), double_conv(16, 32)
        self.up2, self.join2 = nn.ConvTranspose2d(32, 16, 2, 2), double_conv(32, 16)
        self.up1, self.join1 = nn.Upsample(scale_factor=2, mode="bilinear"), double_conv(24, 8)
        self.head = nn.Conv2d(8, 5, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(functional.max_pool2d(a, 2))
        c = self.bottom(functional.max_pool2d(b, 2))
        b = self.join2(torch.cat([self.up2(c), b], 1))
        return self.head(self.join1(torch.cat([self.up1(b), a], 1)))


class Block(nn.Module):
    def __init__(self, features, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(features), nn.LayerNorm(features)
        self.qkv, self.proj = nn.Linear(features, 3 * features), nn.Linear(features, features)
        self.fc, self.out = nn.Linear(features, 4 * features), nn.Linear(4 * features, features)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (y.view(n, t, self.heads, c // self.heads).transpose(1, 2)
                   for y in self.qkv(self.ln_1(x)).split(c, dim=2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.proj(y.transpose(1, 2).reshape(n, t, c)))
        return x + self.drop(self.out(functional.gelu(self.fc(self.ln_2(x)))))


class GPT(nn.Module):
    """Learned positions; the head is the transpose of the embedding, one weight."""

    def __init__(self, vocabulary=50, tokens=12, features=32, heads=4, layers=2):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, features), nn.Embedding(tokens, features)
        self.blocks = nn.Sequential(*(Block(features, heads) for _ in range(layers)))
        self.ln_f, self.head = nn.LayerNorm(features), nn.Linear(features, vocabulary, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.ln_f(self.blocks(x)))


def vit():
    return torchvision.models.VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=4,
                                                hidden_dim=64, mlp_dim=128, num_classes=10)


def inception():
    return torchvision.models.inception_v3(num_classes=10, aux_logits=False, transform_input=True,
                                           init_weights=False)


# name -> (how to make it, shape of an input; a vocabulary: of whole numbers)
TORCH = {
    "resnet18": (lambda: torchvision.models.resnet18(num_classes=10), (2, 3, 64, 64), None),
    "vgg11": (lambda: torchvision.models.vgg11(num_classes=10), (1, 3, 224, 224), None),
    "alexnet": (lambda: torchvision.models.alexnet(num_classes=10), (1, 3, 224, 224), None),
    "inception_v3": (inception, (1, 3, 128, 128), None),
    "unet": (UNet, (2, 3, 32, 32), None),
    "gpt": (GPT, (2, 12), 50),
    "vit": (vit, (2, 3, 32, 32), None),
    "r3d_18": (lambda: torchvision.models.video.r3d_18(num_classes=10), (1, 3, 8, 32, 32), None),
}


def torch_model(name):
    """The model in training mode, its normalisations with statistics that are not trivial, and an input."""
    make, shape, vocabulary = TORCH[name]
    torch.manual_seed(1)
    model = make()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            nn.init.normal_(module.running_mean, 0, 0.1)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.normal_(module.bias, 0, 0.1)
        if isinstance(module, nn.Linear) and not module.weight.any():
            nn.init.normal_(module.weight, 0, 0.1)  # a head of zeros would prove nothing
    x = torch.randn(shape) if vocabulary is None else torch.randint(0, vocabulary, shape)
    return model, x
