"""The digits for tests of experiments: a linear model, which compiles at once."""

from functools import cache

import jax
from server_problems import PROBLEMS

from dml.data.digits import CLASSES, FEATURES, digits
from dml.models.logistic import logistic
from dml.strategies.server.dense import problem


@cache
def small(seed, l1):
    model = logistic(FEATURES, CLASSES)
    return problem(model, model.init(jax.random.key(seed)), *digits())


def put(monkeypatch):
    """Let every experiment learn this where it asks for digits."""
    monkeypatch.setitem(PROBLEMS, "digits", PROBLEMS["digits"]._replace(make=small))
