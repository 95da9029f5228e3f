"""The models whose memory is asked for: real shapes, and what the lecture says."""

from typing import NamedTuple

from dml.models.transformer import SIZES, Shape


class Known(NamedTuple):
    """A model, and how many examples of its length a step of its training takes."""

    shape: Shape
    causal: bool
    batch: int
    billions: float | None = None  # of parameters, in the lecture
    gigabytes: float | None = None  # that they take in training, in the lecture


TOKENS = {"tiny": 2048, "mini": 2048, "small": 50257, "medium": 50257}
LENGTHS = {"tiny": 64, "mini": 64, "small": 1024, "medium": 1024}

MODELS = {
    "bert-large": Known(Shape(30522, 512, 24, 1024, 16), False, 256, 0.32, 5.12),
    "gpt2": Known(Shape(50257, 1024, 48, 1600, 25), True, 512, 1.5, 24),
    "turing": Known(Shape(50257, 1024, 78, 4256, 28), True, 512, 17.2, 275),
    "gpt3": Known(Shape(50257, 2048, 96, 12288, 96), True, 1536, 175, 2800),
} | {
    f"gpt-{name}": Known(Shape(TOKENS[name], LENGTHS[name], *size), True, 512)
    for name, size in SIZES["gpt"].items()
}
LECTURE = [name for name, known in MODELS.items() if known.billions]
