"""BERT (Devlin 2019): a transformer that predicts masked words of a text.

python experiments/bert.py                                     Wikipedia's 106 articles
mpirun -n 2 python experiments/bert.py --strategy=mesh         gradients summed by XLA
mpirun -n 4 python experiments/bert.py --bucket_mb=1       buckets, sent in the backward
python experiments/bert.py --size=large --dtype=bfloat16 --remat --steps=100000

Cost: 1200 steps of 64 x 32 tokens, 0.7 M parameters: 98 s on 2 cores, of which the
first run of a configuration spends 10 s on compilation and tokenization.
Result: perplexity 281 on held-out text (vocabulary of 2048 tokens), 14.1 % of the
masked tokens correct; with --steps=9000 43 and 31 %, and "the united ___" gives
"states" with a probability of 97 %.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lab import flags
import jax
from studies.deep import text as deep_text

from dml.data.text.tokens import Tokens
from dml.data.text.windows import masked_windows
from dml.evaluation import masked_tokens as blanks
from dml.types import Batch, Examples, Model, Params

CONTEXTS = 4  # held-out windows that a sentence is prepended to
FLAGS = deep_text.define("bert", "WordPiece", 32, batch=64, steps=1200, decay=0.01)
FLAGS.text("blank", None, "Sentence with ___ to predict after training.")


def windows(known: Tokens, length: int, seed: int) -> tuple[Examples, Batch]:
    """Divide the text into windows; raise BadInput if --blank does not fit in them."""
    training, held_out = masked_windows(known, length, seed)
    if FLAGS.blank:
        blanks.insert_sentence(known.tokenizer, FLAGS.blank, held_out.inputs[:1])
    return training, held_out


def show(
    network: Model, known: Tokens, held_out: Batch, path: Path, params: Params
) -> Mapping[str, Any]:
    """Predict the masked words of sentences, prepended to held-out windows."""
    assert network.scores
    scores = partial(jax.jit(network.scores), params)
    contexts_NxL = held_out.inputs[:CONTEXTS]
    fits = partial(
        blanks.is_short_enough, known.tokenizer, length=contexts_NxL.shape[1]
    )
    sentences = [FLAGS.blank] if FLAGS.blank else [*filter(fits, blanks.SENTENCES)]
    predictions = blanks.fill(known.tokenizer, scores, sentences, contexts_NxL)
    sys.stdout.write("\n".join(blanks.lines(predictions)) + "\n")
    blanks.draw(path / "blanks", predictions)
    return {}


BERT = deep_text.Kind("bert", False, "wordpiece", windows, show)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train with the parsed flags; return the summaries of this process's ranks."""
    return deep_text.run(FLAGS, argv, BERT)


if __name__ == "__main__":
    flags.run(main)
