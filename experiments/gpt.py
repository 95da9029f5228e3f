"""GPT-2 (Radford 2019): a network that goes on with a text, a token after another.

python experiments/gpt.py                                     Wikipedia's 106 articles
mpirun -n 2 python experiments/gpt.py --strategy=mesh         XLA moves gradients
mpirun -n 4 python experiments/gpt.py --bucket_mb=1           sent while more come
mpirun -n 4 python experiments/gpt.py --strategy=local --local_every=8

Cost: 3000 steps of 8 x 64 tokens, 0.7 M parameters: 94 s on 2 cores.
Result: a perplexity of 104 on held-out text (2048 tokens), 15.8 % of tokens right; its
words are made up, its grammar begins.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import deep
import deep_flags
import deep_ways
import flags
import jax
import numpy as np

from dml.data.language import causal
from dml.data.tokens import Tokens, tokens
from dml.metrics import samples, surprise
from dml.models.tensor import tensor_transformer
from dml.models.transformer import SIZES, Shape, transformer
from dml.types import Batch, Model, Params, Tensor

FLAGS = flags.define(*deep_flags.SHARED)
deep_flags.define(
    *(FLAGS, deep_ways.STRATEGIES),
    **{"batch": 8, "steps": 3000, "optimizer": "adamw", "lr": 2e-3, "decay": 0.1},
    clip=1.0,
    bucket_mb=1.0,
)
text = partial(flags.text, flag_values=FLAGS)
integer = partial(flags.integer, lower_bound=1, flag_values=FLAGS)
text("corpus", "enwiki", "Text: names, files or folders, separated by commas.")
integer("vocabulary", 2048, "Tokens of BPE, trained on the corpus.")
integer("length", 64, "Tokens of an example.")
flags.choice("size", "tiny", list(SIZES["gpt"]), "Network.", flag_values=FLAGS)
text("prompt", "The history of", "Beginning of a text to go on with at the end.")
integer("sample", 40, "Tokens to go on with.")


@cache  # virtual ranks share it
def task(size: str, length: int, corpus: str, vocabulary: int, **how: Any) -> deep.Task:
    """Return the network and its windows of text."""
    known = tokens(corpus, "bpe", vocabulary)
    training, held_out = causal(known.ids, length)
    shape = Shape(known.tokenizer.get_vocab_size(), length, *SIZES["gpt"][size])
    network = transformer(shape, causal=True, **how)
    finish = partial(show, network, known, held_out)

    def cut(size: int, sequence: bool) -> Tensor:
        return tensor_transformer(shape, True, size, how["dtype"], sequence)

    return deep.Task(network, training, held_out, "tokens", length, finish, cut)


def show(
    network: Model, known: Tokens, held_out: Batch, path: Path, params: Params
) -> Mapping[str, Any]:
    """Go on with the prompt, and colour a held-out text by what surprises."""
    assert network.scores
    scores = partial(jax.jit(network.scores), params)
    length = held_out.inputs.shape[1]
    said = samples.going_on(
        *(known.tokenizer, scores, FLAGS.prompt, length),
        count=FLAGS.sample,
        seed=FLAGS.seed,
    )
    sys.stdout.write("\n".join(samples.lines(said)) + "\n")
    targets = held_out.targets[0]
    bits = surprise.bits(np.asarray(scores(held_out.inputs[:1])[0]), targets)
    surprise.draw(path / "surprise", surprise.words(known.tokenizer, targets), bits)
    return {}


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train as the flags say; return the summaries of the ranks of this process."""
    return deep.run(
        *(FLAGS, argv, "gpt"),
        lambda: task(
            *(FLAGS.size, FLAGS.length, FLAGS.corpus, FLAGS.vocabulary),
            dtype=FLAGS.dtype,
            remat=FLAGS.remat,
        ),
    )


if __name__ == "__main__":
    flags.run(main)
