"""BERT (Devlin 2019): a network that fills in the words that a text lacks.

python experiments/bert.py                                     Wikipedia's 106 articles
mpirun -n 2 python experiments/bert.py --strategy=mesh         XLA moves gradients
mpirun -n 4 python experiments/bert.py --bucket_mb=1           sent while more come
python experiments/bert.py --size=large --dtype=bfloat16 --remat --steps=100000

Cost: 1200 steps of 64 x 32 tokens, 0.7 M parameters: 98 s on 2 cores, 10 of them before
the first step where nothing is compiled and no text is cut into tokens yet.
Result: a perplexity of 281 on held-out text (2048 tokens), 14.1 % of masked tokens
right; after --steps=9000 43 and 31 %: "the united ___" are states, at 97 %.
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

from dml.data.language import masked
from dml.data.tokens import Tokens, tokens
from dml.metrics import blanks
from dml.models.tensor import tensor_transformer
from dml.models.transformer import SIZES, Shape, transformer
from dml.types import Model, Params, Tensor

AROUND = 4  # windows
FLAGS = flags.define(*deep_flags.SHARED)
deep_flags.define(
    *(FLAGS, deep_ways.STRATEGIES),
    **{"batch": 64, "steps": 1200, "optimizer": "adamw", "lr": 2e-3, "decay": 0.01},
    clip=1.0,
    bucket_mb=1.0,
)
text = partial(flags.text, flag_values=FLAGS)
integer = partial(flags.integer, lower_bound=1, flag_values=FLAGS)
text("corpus", "enwiki", "Text: names, files or folders, separated by commas.")
integer("vocabulary", 2048, "Tokens of WordPiece, trained on the corpus.")
integer("length", 32, "Tokens of an example.")
flags.choice("size", "tiny", list(SIZES["bert"]), "Network.", flag_values=FLAGS)
text("blank", None, "A sentence with ___ to fill in at the end.")


@cache  # virtual ranks share it
def task(size: str, length: int, corpus: str, vocabulary: int, seed: int, **how: Any):
    """Return the network and its masked windows of text."""
    known = tokens(corpus, "wordpiece", vocabulary)
    training, held_out = masked(known, length, seed)
    shape = Shape(known.tokenizer.get_vocab_size(), length, *SIZES["bert"][size])
    network = transformer(shape, causal=False, **how)
    finish = partial(show, network, known, held_out.inputs[:AROUND])

    def cut(size: int, sequence: bool) -> Tensor:
        return tensor_transformer(shape, False, size, how["dtype"], sequence)

    return deep.Task(network, training, held_out, "tokens", length, finish, cut)


def show(
    network: Model, known: Tokens, around_NxL: Any, path: Path, params: Params
) -> Mapping[str, Any]:
    """Fill in the blanks of sentences, which stand where a held-out text begins."""
    sentences = [FLAGS.blank] if FLAGS.blank else blanks.SENTENCES
    assert network.scores
    scores = partial(jax.jit(network.scores), params)
    found = blanks.fill(known.tokenizer, scores, sentences, around_NxL)
    sys.stdout.write("\n".join(blanks.lines(found)) + "\n")
    blanks.draw(path / "blanks", found)
    return {}


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train as the flags say; return the summaries of the ranks of this process."""
    return deep.run(
        *(FLAGS, argv, "bert"),
        lambda: task(
            *(FLAGS.size, FLAGS.length, FLAGS.corpus, FLAGS.vocabulary, FLAGS.seed),
            dtype=FLAGS.dtype,
            remat=FLAGS.remat,
        ),
    )


if __name__ == "__main__":
    flags.run(main)
