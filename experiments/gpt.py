"""GPT-2 (Radford 2019): a transformer that predicts the next token of a text.

python experiments/gpt.py                                     Wikipedia's 106 articles
mpirun -n 2 python experiments/gpt.py --strategy=mesh         gradients summed by XLA
python experiments/gpt.py --dropout=0.1                       equal masks for any p
mpirun -n 4 python experiments/gpt.py --bucket_mb=1        buckets, sent in the backward
mpirun -n 4 python experiments/gpt.py --strategy=local --local_every=8
python experiments/gpt.py --experts=8 --choices=2              mixture of experts
python experiments/gpt.py --simulate=4 --strategy=hybrid --mesh=data:2,sequence:2

`mpirun -n 2 python experiments/step_time.py --peer=torch` compares a step with torch
DDP.

Cost: 3000 steps of 8 x 64 tokens, 0.7 M parameters: 94 s on 2 cores.
Result: perplexity 104 on held-out text (vocabulary of 2048 tokens), 15.8 % of the
tokens correct; the continuation has invented words in plausible order.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lab import flags
import jax
import numpy as np
from studies.deep import text as deep_text

from dml.data.text.tokens import Tokens
from dml.data.text.windows import causal_windows
from dml.evaluation import samples
from dml.figures import token_loss
from dml.types import Batch, Model, Params

FLAGS = deep_text.define("gpt", "BPE", 64, batch=8, steps=3000, decay=0.1)
FLAGS.text("prompt", "The history of", "Prompt to continue after training.")
FLAGS.integer("sample", 40, "Number of tokens of the continuation.", 1)


def show(
    network: Model, known: Tokens, held_out: Batch, path: Path, params: Params
) -> Mapping[str, Any]:
    """Continue the prompt; draw the loss of each token of a held-out text."""
    assert network.scores
    scores = partial(jax.jit(network.scores), params)
    continuation = samples.continuation(
        known.tokenizer,
        scores,
        FLAGS.prompt,
        held_out.inputs.shape[1],
        count=FLAGS.sample,
        seed=FLAGS.seed,
    )
    sys.stdout.write("\n".join(samples.lines(continuation)) + "\n")
    targets = held_out.targets[0]
    bits = token_loss.bits(np.asarray(scores(held_out.inputs[:1])[0]), targets)
    token_loss.draw(path / "surprise", token_loss.words(known.tokenizer, targets), bits)
    return {}


GPT = deep_text.Kind(
    "gpt", True, "bpe", lambda t, length, _: causal_windows(t.ids, length), show
)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train with the parsed flags; return the summaries of this process's ranks."""
    return deep_text.run(FLAGS, argv, GPT)


if __name__ == "__main__":
    flags.run(main)
