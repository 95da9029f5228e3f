"""Flags and task of gpt.py and bert.py, which train transformers on text."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from lab import flags, readers

from dml import extend
from dml.data.text.tokens import Tokens, tokens
from dml.data.text.windows import with_keys
from dml.models.layers.experts import Mixture, capacity
from dml.models.networks.tensor_transformer import tensor_transformer
from dml.models.networks.transformer import SIZES, Shape, transformer
from dml.types import Batch, Examples, Model, Params
from studies.deep import flags as deep_flags
from studies.deep import training as deep

MODELS = {"transformer": transformer}
# Flags of the network of --model=transformer.
NETWORK = ("size", "dropout", "experts", "choices", "capacity", "balance_weight")


class Kind(NamedTuple):
    """A kind of transformer.

    name: key of SIZES.
    causal: whether attention is masked.
    subwords: key of tokens.TOKENIZERS.
    windows: tokens, length, seed -> training and held-out examples.
    show: model, tokens, held-out examples, folder, params -> entries of the summary.
    """

    name: str
    causal: bool
    subwords: str
    windows: Callable[[Tokens, int, int], tuple[Examples, Batch]]
    show: Callable[[Model, Tokens, Batch, Path, Params], Mapping[str, Any]]


def define(name: str, subwords: str, length: int, **defaults: Any) -> flags.FlagValues:
    """Define the flags.

    Args:
        name: key of SIZES.
        subwords: name of the tokenizer in the help.
        length: default of --length.
        defaults: defaults of batch, steps and decay.
    """
    shared = {"optimizer": "adamw", "lr": 2e-3, "clip": 1.0, "bucket_mb": 1.0}
    values = deep_flags.define(**shared, **defaults)
    values.text(
        "corpus", "enwiki", "Text: names, files or folders, separated by commas."
    )
    values.integer(
        "vocabulary",
        2048,
        f"Number of tokens of {subwords}, which is trained on the corpus.",
        1,
    )
    values.integer("length", length, "Number of tokens per example.", 1)
    values.extensible(
        "model",
        "transformer",
        MODELS,
        extend.TEXT_MODELS,
        "Network; your own is a function of the numbers of tokens of the vocabulary "
        "and of an example.",
    )
    values.choice("size", "tiny", list(SIZES[name]), "Size of the network.")
    values.number(
        "dropout",
        0.0,
        "Probability that an element of the embedding, or of the output of attention "
        "or feed-forward, is 0 in training; 0: no dropout.",
        0,
        0.99,
    )
    values.integer(
        "experts",
        0,
        "Number of experts that replace each feed-forward layer; 0: none.",
        0,
    )
    values.integer("choices", 1, "Number of experts per token.", 1)
    values.number(
        "capacity", 1.25, "Capacity of an expert, relative to equal loads.", 0
    )
    values.number(
        "balance_weight", 0.01, "Weight of the experts' load balance in the loss.", 0
    )
    return values


def run(
    values: flags.FlagValues, argv: Sequence[str], kind: Kind
) -> list[dict[str, Any]]:
    """Train by the flags; return the summaries of the ranks of this process."""

    def make() -> deep.DeepTask:
        source = values.corpus, values.length, values.vocabulary, values.seed
        if values.model not in MODELS:
            readers.check(values, "model", dict.fromkeys(NETWORK, MODELS))
            return user_task(kind, values.model, *source, values.dtype, values.remat)
        return transformer_task(
            kind,
            values.size,
            *source,
            (values.experts, values.choices, values.capacity, values.balance_weight),
            values.dtype,
            values.remat,
            values.dropout,
        )

    return deep.run(values, argv, kind.name, make)


@cache  # shared by virtual ranks
def user_task(
    kind: Kind,
    model: str,
    corpus: str,
    length: int,
    vocabulary: int,
    seed: int,
    dtype: str,
    remat: bool,
) -> deep.DeepTask:
    """Return a network of the user and its windows of text."""
    known, training, held_out = text(kind, corpus, length, vocabulary, seed)
    make = extend.find(model, MODELS, extend.TEXT_MODELS)
    make = partial(make, **extend.accepted(make, {"dtype": dtype, "remat": remat}))
    size = known.tokenizer.get_vocab_size()
    network: Model = extend.make(model, make, Model, size, length)
    finish = (
        partial(kind.show, network, known, held_out) if network.scores else no_entries
    )
    return deep.DeepTask(network, training, held_out, "tokens", length, finish)


def text(
    kind: Kind, corpus: str, length: int, vocabulary: int, seed: int
) -> tuple[Tokens, Examples, Batch]:
    """Return the tokens of a text, and its training and held-out examples."""
    known = tokens(corpus, kind.subwords, vocabulary)
    return known, *kind.windows(known, length, seed)


def no_entries(path: Path, params: Params) -> Mapping[str, Any]:
    """Return no entries of the summary."""
    return {}


@cache  # shared by virtual ranks
def transformer_task(
    kind: Kind,
    size: str,
    corpus: str,
    length: int,
    vocabulary: int,
    seed: int,
    mixture_sizes: tuple[int, int, float, float],
    dtype: str,
    remat: bool,
    dropout: float,
) -> deep.DeepTask:
    """Return the transformer and its windows of text, by the values of flags."""
    known, training, held_out = text(kind, corpus, length, vocabulary, seed)
    shape = Shape(known.tokenizer.get_vocab_size(), length, *SIZES[kind.name][size])
    experts, *rest = mixture_sizes
    mixture = Mixture(experts, shape.width, 4 * shape.width, *rest) if experts else None
    if mixture:
        capacity(mixture, length)
    if dropout:
        training = with_keys(training, seed)
    options = {"dtype": dtype, "mixture": mixture, "dropout": dropout}
    network = transformer(shape, kind.causal, remat=remat, **options)
    finish = partial(kind.show, network, known, held_out)
    cut = partial(tensor_transformer, shape, kind.causal, **options)
    return deep.DeepTask(network, training, held_out, "tokens", length, finish, cut)
