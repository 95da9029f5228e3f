"""Small problems to be learned edge by edge, by ways that tests compare."""

import numpy as np

from dml.data.ratings import generated
from dml.data.svmlight import generate
from dml.models import completion, sparse_svm
from dml.models.factors import centred, start
from dml.strategies.sparse.workers import Sparse

MU = 1e-3


def documents(examples=200, features=90, nonzeros=6, dtype="float32", seed=3):
    """A vector of weights; feature 0 is in every example: a hub."""
    batch = generate(examples, features, nonzeros, seed)
    inputs = batch.inputs.tolil()
    inputs[:, 0] = 0.3
    batch = batch._replace(inputs=inputs.tocsr())
    data = sparse_svm.documents(batch, MU, dtype)
    return Sparse(sparse_svm, data, np.zeros(features, dtype))


def ratings(count=300, dtype="float32", seed=3):
    """A table of rows."""
    training, held_out = centred(*generated(30, 25, count, 2, seed))
    data = completion.of_ratings(training, 0.02, 0.02, dtype)
    return Sparse(completion, data, start(55, 4, seed).astype(dtype))


PROBLEMS = {"documents": documents, "ratings": ratings}
RATES = {"documents": 0.3, "ratings": 0.05}
