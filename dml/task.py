"""A task: a model, the examples that train it, and held-out ones."""

from functools import partial
from typing import NamedTuple

import jax

from dml.data.minibatches import take
from dml.evaluation.scores import evaluate
from dml.models.model_problem import model_problem
from dml.types import Batch, Examples, Model, Params, Problem


class Task(NamedTuple):
    """A model, the examples that train it, and held-out ones."""

    model: Model
    training: Batch | Examples
    held_out: Batch

    def problem(self, seed: int = 0, params: Params = None) -> Problem:
        """Return the problem, from a random start or from params."""
        data = self.training
        return model_problem(
            self.model,
            self.model.init(jax.random.key(seed)) if params is None else params,
            examples=data.count if isinstance(data, Examples) else len(data.targets),
            take=partial(take, data),
            evaluate=partial(evaluate, self.model, self.held_out),
        )
