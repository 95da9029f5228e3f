"""Sizes of transformers, and a table of published models."""

from typing import NamedTuple


class Shape(NamedTuple):
    """Sizes of a transformer; a block has attention and a feed-forward layer."""

    layers: int  # number of blocks
    width: int  # units of the residual stream
    heads: int  # heads of queries
    feed_forward: int  # hidden units of a feed-forward layer, or of an expert
    vocabulary: int  # number of token types
    sequence: int  # tokens of an example
    kv_heads: int = 0  # heads of keys and values; 0: as many as `heads`
    gated: bool = False  # three feed-forward matrices instead of two
    experts: int = 1  # feed-forward layers of a block
    top_k: int = 1  # experts that a token visits
    head_width: int = 0  # units of a head; 0: width / heads
    causal: bool = True  # attention to earlier tokens only

    @property
    def queries(self) -> int:
        """Units of the queries of a token."""
        return self.heads * (self.head_width or self.width // self.heads)

    @property
    def keys(self) -> int:
        """Units of the keys of a token, and of the values."""
        return self.queries * (self.kv_heads or self.heads) // self.heads

    @property
    def attention(self) -> int:
        """Parameters of the attention of a block."""
        return 2 * self.width * (self.queries + self.keys)

    @property
    def expert(self) -> int:
        """Parameters of one feed-forward layer."""
        return (3 if self.gated else 2) * self.width * self.feed_forward

    @property
    def parameters(self) -> int:
        """Parameters without norms and biases; the head is the embedding."""
        block = self.attention + self.experts * self.expert
        return self.layers * block + self.vocabulary * self.width

    @property
    def active(self) -> int:
        """Parameters that a token uses."""
        block = self.attention + self.top_k * self.expert
        return self.layers * block + self.vocabulary * self.width

    def flops(self, tokens: float) -> float:
        """Return the flops of a training step, without recomputation.

        6 for each active parameter and token, and 12 for each unit of the queries,
        layer and earlier token; half of them if attention is causal.
        """
        scores = 12 * self.layers * self.queries * self.sequence
        return tokens * (6 * self.active + scores * (0.5 if self.causal else 1.0))


def gpt(layers: int, width: int, heads: int, vocabulary: int = 51200) -> Shape:
    """Return a GPT of 2,048 tokens; a feed-forward layer has 4 times the width."""
    return Shape(layers, width, heads, 4 * width, vocabulary, 2048)


def llama(
    layers: int,
    width: int,
    heads: int,
    hidden: int,
    *,
    kv_heads: int = 0,
    vocabulary: int = 32000,
    sequence: int = 4096,
) -> Shape:
    """Return a LLaMA: a gated feed-forward layer, and grouped queries."""
    return Shape(
        layers, width, heads, hidden, vocabulary, sequence, kv_heads, gated=True
    )


LLAMA3 = {"kv_heads": 8, "vocabulary": 128256, "sequence": 8192}
MODELS = {
    "gpt2_xl": Shape(48, 1600, 25, 6400, 50304, 1024),
    "gpt3_13b": gpt(40, 5120, 40),
    "gpt3_175b": gpt(96, 12288, 96),
    "turing_530b": gpt(105, 20480, 128),
    "gpt_1t": gpt(128, 25600, 160),
    "bloom_176b": gpt(70, 14336, 112, 250880),
    "bert_large": Shape(24, 1024, 16, 4096, 30522, 512, causal=False),
    "llama2_7b": llama(32, 4096, 32, 11008),
    "llama2_13b": llama(40, 5120, 40, 13824),
    "llama2_70b": llama(80, 8192, 64, 28672, kv_heads=8),
    "llama3_8b": llama(32, 4096, 32, 14336, **LLAMA3),
    "llama3_70b": llama(80, 8192, 64, 28672, **LLAMA3),
    "llama3_405b": llama(126, 16384, 128, 53248, **LLAMA3),
    "mixtral_8x7b": llama(32, 4096, 32, 14336, kv_heads=8)._replace(experts=8, top_k=2),
    "mixtral_8x22b": llama(56, 6144, 48, 16384, kv_heads=8, vocabulary=32768)._replace(
        experts=8, top_k=2
    ),
}
