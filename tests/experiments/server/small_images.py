"""The digits for tests of experiments: a linear model, which compiles at once."""

from functools import cache

import jax
from studies.server.problems import PROBLEMS, classifier

from dml.data.images.digits import CLASSES, FEATURES, digits
from dml.models.networks.logistic import logistic


@cache
def small(seed, l1):
    model = logistic(FEATURES, CLASSES)
    return classifier(model, model.init(jax.random.key(seed)), *digits())


def put(monkeypatch):
    """Let every experiment learn this where it asks for digits."""
    monkeypatch.setitem(PROBLEMS, "digits", PROBLEMS["digits"]._replace(make=small))
