"""GloVe (Pennington 2014), word vectors from counts of co-occurrence.

    L = ½ Σ_ij w(N_ij) (⟨v_i, u_j⟩ + b_i + c_j - log N_ij)²
    w(x) = min((x/x_max)^α, 1)

Words and contexts have a table each, added up at the end; or one table serves as both,
as the lecture writes it, and a word does not meet itself.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dml.types import Embeddings, Model, itself


class Records(NamedTuple):
    """A batch: which row meets which, the logarithms of their counts, the weights."""

    words: Any  # rows of the table
    contexts: Any  # rows of the table: those of contexts come after all words
    logs: Any
    weights: Any


def glove(words: int, dim: int, tables: int = 2) -> Model:
    """Return the model of a number of words; one table or two.

    Batches are Records of NumPy or JAX arrays; init takes a seed.
    """

    def start(seed: int) -> Embeddings:
        draws = np.random.default_rng(seed).random((tables * words, dim + 1))
        small = ((draws - 0.5) / dim).astype(np.float32)
        squares = np.ones_like(small)  # AdaGrad starts at the learning rate itself
        return Embeddings(small[:, :dim], small[:, dim], squares[:, 1:], squares[:, 0])

    def loss(params: Embeddings, batch: Records) -> Any:
        missed = misses(params, batch)
        return 0.5 * (batch.weights * missed**2).mean()

    def metrics(params: Embeddings, batch: Records) -> dict[str, Any]:
        return {"error": abs(misses(params, batch)).mean()}

    return Model(start, loss, metrics)


def misses(
    params: Embeddings, batch: Records, total: Callable[[Any], Any] = itself
) -> Any:
    """Return the difference of each record's product and its logarithm.

    Args:
      total: of inner products over some columns -> those over all columns.
    """
    words_BxD = params.vectors_TxD[batch.words]
    contexts_BxD = params.vectors_TxD[batch.contexts]
    products = total((words_BxD * contexts_BxD).sum(axis=1))
    biases = params.biases_T
    return products + biases[batch.words] + biases[batch.contexts] - batch.logs


def weight(counts: np.ndarray, x_max: float, alpha: float) -> np.ndarray:
    """Return how much each count's record matters: 1 from x_max on."""
    return np.minimum((counts / np.float32(x_max)) ** np.float32(alpha), np.float32(1))
