"""GloVe (Pennington 2014): word vectors from counts of co-occurrence.

    L = ½ Σ_ij w(N_ij) (⟨v_i, u_j⟩ + b_i + c_j - log N_ij)²
    w(x) = min((x/x_max)^α, 1)

N_ij is the number of times that word j is near word i; a record is (i, j, N_ij). Words
have vectors v and biases b, contexts u and c. Words and contexts have one table each,
and the tables are summed at the end. Alternatively they share one table; records of a
word with itself are then omitted.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dml.types import Embeddings, Model, identity


class Records(NamedTuple):
    """A batch of records: rows of words and contexts, log counts, weights."""

    words: Any  # rows of the table
    contexts: Any  # rows of the table; with two tables they follow the rows of words
    logs: Any  # logarithms of the counts
    weights: Any  # weights w(N) in the loss


def glove(words: int, dim: int, tables: int = 2) -> Model:
    """Return the model; its `init` takes a seed.

    Batches are Records of NumPy or JAX arrays.

    Args:
      words: Number of words.
      dim: Length of a vector.
      tables: Number of tables, 1 or 2.
    """

    def start(seed: int) -> Embeddings:
        draws = np.random.default_rng(seed).random((tables * words, dim + 1))
        small = ((draws - 0.5) / dim).astype(np.float32)
        squares = np.ones_like(small)  # so that AdaGrad starts at the full rate
        return Embeddings(small[:, :dim], small[:, dim], squares[:, 1:], squares[:, 0])

    def loss(params: Embeddings, batch: Records) -> Any:
        errors = log_errors(params, batch)
        return 0.5 * (batch.weights * errors**2).mean()

    def metrics(params: Embeddings, batch: Records) -> dict[str, Any]:
        return {"error": abs(log_errors(params, batch)).mean()}

    return Model(start, loss, metrics)


def log_errors(
    params: Embeddings, batch: Records, total: Callable[[Any], Any] = identity
) -> Any:
    """Return the predicted minus the actual logarithm of each record's count.

    Args:
      params: The parameters.
      batch: The records.
      total: Inner products over some columns -> inner products over all columns.
    """
    words_BxD = params.vectors_TxD[batch.words]
    contexts_BxD = params.vectors_TxD[batch.contexts]
    products = total((words_BxD * contexts_BxD).sum(axis=1))
    biases = params.biases_T
    return products + biases[batch.words] + biases[batch.contexts] - batch.logs


def weight(counts: np.ndarray, x_max: float, alpha: float) -> np.ndarray:
    """Return w(counts), the weight of each record in the loss."""
    return np.minimum((counts / np.float32(x_max)) ** np.float32(alpha), np.float32(1))
