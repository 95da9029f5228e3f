"""Layers of networks as matrix products, with their sizes for one example.

A convolution is a product with one row for each output pixel and one column for each
element of a filter; its gradient has factors, too, with many rows.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from dml.models.layers.blocks import SIZES
from dml.models.networks import alexnet
from dml.wire.costs.factors import ProductSizes

CLASSES, CLASSES_22K = 1000, 21841  # of ImageNet, and of all of its images
IMAGE = 224  # height and width of an image
VGG19 = ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512))  # convolutions, maps
TOKENS = 128  # of an example of BERT
MASKED = 20  # tokens that BERT predicts, 15 %
VOCABULARY = 30522


class Layer(NamedTuple):
    """A layer with one kernel.

    Attributes:
      name: Name of the layer.
      kind: dense or convolution; table: rows that are looked up, and a product of two
        layers, whose gradient is summed.
      rows: Number of rows of the product for one example.
      inputs: Number of columns of the input.
      outputs: Number of columns of the output.
    """

    name: str
    kind: str
    rows: int
    inputs: int
    outputs: int

    def sizes(self, examples: int) -> ProductSizes:
        """Return the sizes of the gradient's product for the examples of a worker."""
        return ProductSizes(self.rows * examples, self.inputs, self.outputs)


class Network(NamedTuple):
    """The layers of a network in order, and the examples of a worker."""

    layers: tuple[Layer, ...]
    examples: int

    @property
    def parameters(self) -> int:
        """Return the number of elements of all kernels."""
        return sum(layer.inputs * layer.outputs for layer in self.layers)


def alexnet_layers(unit: int = 32) -> Iterator[Layer]:
    """Yield the eight layers of AlexNet, with both towers.

    Args:
      unit: Number that is multiplied by all widths; 32 in AlexNet.
    """
    sizes = alexnet.AlexNetSizes(unit, 11, 4)
    shape = (IMAGE, IMAGE, 3)
    filters = alexnet.network_layers(shape, CLASSES, sizes, alexnet.PUBLISHED)
    for number, one in enumerate(filters, 1):
        height, width, maps = one.input_shape
        dense = one.padding == "VALID"
        pixels = 1 if dense else -(-height // one.stride) * -(-width // one.stride)
        read = maps if one.reads_both else maps // alexnet.TOWERS
        yield Layer(
            f"layer_{number}",
            "dense" if dense else "convolution",
            pixels,
            one.kernel[0] * one.kernel[1] * read,
            one.outputs,
        )


def vgg19_layers(classes: int = CLASSES) -> Iterator[Layer]:
    """Yield the layers of VGG-19 (Simonyan 2014): convolutions 3x3, three dense."""
    side, maps = IMAGE, 3
    for group, (count, width) in enumerate(VGG19, 1):
        for number in range(1, count + 1):
            name = f"conv{group}_{number}"
            yield Layer(name, "convolution", side * side, 9 * maps, width)
            maps = width
        side //= 2
    for name, inputs, outputs in (
        ("fc6", side * side * maps, 4096),
        ("fc7", 4096, 4096),
        ("fc8", 4096, classes),
    ):
        yield Layer(name, "dense", 1, inputs, outputs)


def bert_layers(size: str) -> Iterator[Layer]:
    """Yield the layers of BERT as in `models.networks.transformer`.

    Args:
      size: A key of SIZES["bert"].
    """
    blocks, width, _ = SIZES["bert"][size]
    for block in range(blocks):
        for part, inputs, outputs in (
            ("qkv", width, 3 * width),
            ("out", width, width),
            ("up", width, 4 * width),
            ("down", 4 * width, width),
        ):
            yield Layer(f"block_{block}/{part}", "dense", TOKENS, inputs, outputs)
    yield Layer("head/dense", "dense", MASKED, width, width)
    yield Layer("embed/tokens", "table", MASKED, width, VOCABULARY)


def network(layers: Callable[[], Iterator[Layer]], examples: int) -> Network:
    return Network(tuple(layers()), examples)


NETWORKS: dict[str, Network] = {
    "alexnet": network(alexnet_layers, 128),
    "vgg19": network(vgg19_layers, 32),
    "vgg19_22k": network(lambda: vgg19_layers(CLASSES_22K), 32),
    "bert_base": network(lambda: bert_layers("base"), 32),
    "bert_large": network(lambda: bert_layers("large"), 8),
}
