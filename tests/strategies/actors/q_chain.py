"""Q-learning of a table on the chain of `tabular`, in NumPy: nothing is compiled."""

from functools import partial

import numpy as np

from dml.environments import draws
from dml.types import Play, Problem, Rows, transition_dtype
from dml.update.table import table
from tests.strategies.actors.tabular import CHAIN, STATES

UPDATE = partial(table, "sgd", rate=0.5)


def act(params, observations, numbers):
    values = params[observations[:, 0].astype(int)]
    return values.argmax(1), values


def differences(params, batch):
    records = batch.records
    first, last = records["observations"][:, :, 0].astype(int).T
    bootstrap = records["discount"] * batch.target[last].max(1)
    return records["reward"] + bootstrap - params[first, records["action"]], first


def errors(params, batch):
    return np.abs(differences(params, batch)[0])


def gradient(params, batch):
    delta, first = differences(params, batch)
    grads = np.zeros_like(params)
    changes = -batch.weights * delta / np.float32(len(delta))
    np.add.at(grads, (first, batch.records["action"]), changes)
    return float(np.mean(batch.weights * delta**2)) / 2, Rows(np.arange(STATES), grads)


def problem(copies=4, length=8):
    play = Play(
        CHAIN, copies, length, transition_dtype(CHAIN), act, draws.uniform, errors
    )
    start = np.zeros((STATES, 2), np.float32)
    return Problem(start, 0, gradient, lambda params: {}, play=play)
