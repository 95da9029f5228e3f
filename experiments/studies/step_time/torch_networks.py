"""PyTorch references of the networks; modules have the names of the JAX params.

`forward` returns the loss of a batch, as DistributedDataParallel expects.
"""

from typing import Any

import jax
import numpy as np
import torch
from torch import nn
from torch.nn import functional

from dml.models.networks.transformer import Shape


class Embed(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.empty(shape.vocabulary, shape.width))
        self.positions = nn.Parameter(torch.empty(shape.length, shape.width))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = self.positions[: tokens.shape[1]]
        return functional.embedding(tokens, self.tokens) + positions


class Block(nn.Module):
    def __init__(self, shape: Shape, causal: bool) -> None:
        super().__init__()
        width, self.heads, self.causal = shape.width, shape.heads, causal
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        count, length, width = stream.shape
        heads = (count, length, self.heads, 3, width // self.heads)
        qkv = self.qkv(self.norm_1(stream)).view(heads).permute(3, 0, 2, 1, 4)
        mixed = functional.scaled_dot_product_attention(*qkv, is_causal=self.causal)
        stream = stream + self.out(mixed.transpose(1, 2).reshape(stream.shape))
        hidden = functional.gelu(self.up(self.norm_2(stream)), approximate="tanh")
        return stream + self.down(hidden)


class Head(nn.Module):
    def __init__(self, shape: Shape, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.norm = nn.LayerNorm(shape.width)
        if not causal:
            self.dense = nn.Linear(shape.width, shape.width)
            self.dense_norm = nn.LayerNorm(shape.width)
            self.bias = nn.Parameter(torch.empty(shape.vocabulary))

    def forward(self, stream: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        stream = self.norm(stream)
        if self.causal:
            return functional.linear(stream, table)
        stream = functional.gelu(self.dense(stream), approximate="tanh")
        return functional.linear(self.dense_norm(stream), table, self.bias)


class Transformer(nn.Module):
    """GPT (causal) or BERT, as in dml.models.networks.transformer."""

    def __init__(self, shape: Shape, causal: bool) -> None:
        super().__init__()
        self.embed = Embed(shape)
        self.blocks = [f"block_{number}" for number in range(shape.layers)]
        for name in self.blocks:
            self.add_module(name, Block(shape, causal))
        self.head = Head(shape, causal)
        self.causal = causal

    def forward(self, tokens: torch.Tensor, targets: Any) -> torch.Tensor:
        stream = self.embed(tokens)
        for name in self.blocks:
            stream = self.get_submodule(name)(stream)
        if not self.causal:
            positions, targets = targets  # of the masked tokens
            index = positions.long()[:, :, None].expand(-1, -1, stream.shape[-1])
            stream = stream.gather(1, index)
        scores = self.head(stream, self.embed.tokens).flatten(0, 1)
        return functional.cross_entropy(scores, targets.flatten().long())


class Convolutions(nn.Module):
    """The network of dml.models.networks.cnn."""

    def __init__(self, shape: tuple[int, ...], width: int = 16, classes: int = 10):
        super().__init__()
        pixels = (shape[0] // 4) * (shape[1] // 4)
        self.Conv_0 = nn.Conv2d(shape[2], width, 3, padding=1)
        self.Conv_1 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.Dense_0 = nn.Linear(pixels * 2 * width, classes)

    def forward(self, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        maps = images.permute(0, 3, 1, 2)
        for layer in (self.Conv_0, self.Conv_1):
            maps = functional.max_pool2d(functional.relu(layer(maps)), 2)
        scores = self.Dense_0(maps.permute(0, 2, 3, 1).flatten(1))
        return functional.cross_entropy(scores, targets.long())


NETWORKS = {
    "gpt": lambda shape: Transformer(shape, causal=True),
    "bert": lambda shape: Transformer(shape, causal=False),
    "cnn": Convolutions,
}


def load(network: nn.Module, params: Any) -> None:
    """Copy JAX params into a PyTorch network; check that each is copied once."""
    remaining = {id(leaf) for leaf in jax.tree.leaves(params)}
    with torch.no_grad():
        for path, weight in network.named_parameters():
            *names, last = path.split(".")
            module = params
            for name in names:
                module = module[name]
            if last == "weight":
                last = "kernel" if "kernel" in module else "scale"
            remaining.remove(id(module[last]))
            array = np.asarray(module[last])
            if last == "kernel":
                # axes: ... x inputs x outputs in JAX, outputs x inputs x ... in PyTorch
                array = np.moveaxis(array, (-1, -2), (0, 1))
            weight.copy_(torch.from_numpy(array.copy()))
    assert not remaining
