"""Parity: ways that train alike are equal up to rounding, and faults have causes."""

import jax
import numpy as np
import pytest

import dml
from dml import parity
from dml.problems import Entry, find_problem
from dml.update.dense import make

ROWS = np.random.default_rng(0).standard_normal((48, 6)).astype(np.float32)
ON_RANKS = {"3 ranks": parity.WAYS["3 ranks"]}


def problem(loss):
    model = dml.Model(None, loss, None)
    params = {"a": np.ones((6, 2), np.float32), "b": np.zeros(2, np.float32)}
    return dml.model_problem(
        model, params, examples=48, take=ROWS.__getitem__, evaluate=lambda params: {}
    )


def squares(params, rows):
    return ((rows @ params["a"] + params["b"] - 1) ** 2).sum(axis=1)


def lines(made, strategy="", ranks=3):
    """Return what is reported of a problem, with the ways on ranks."""
    entry = Entry(lambda: made, 48, make("sgd", 0.1))
    return list(parity.report(entry, strategy, ranks))


def causes(found):
    return [line for line, _ in found if line.startswith("cause")]


@pytest.fixture(autouse=True)
def on_ranks(monkeypatch):
    monkeypatch.setattr(parity, "WAYS", ON_RANKS)


def test_a_mean_over_examples_differs_by_rounding():
    found = lines(problem(lambda params, rows: squares(params, rows).mean()))
    assert [wrong for _, wrong in found] == [False]
    assert "rounding, at most" in found[0][0] or "equal bits" in found[0][0]


@pytest.mark.parametrize(
    "loss, cause",
    [
        (
            lambda params, rows: (
                squares(params, rows) * (rows[:, 0] > 0.5) / (rows[:, 0] > 0.5).sum()
            ).sum(),
            "the loss is not a mean over examples",
        ),
        (
            lambda params, rows: (
                squares(params, rows)
                * jax.random.bernoulli(jax.random.key(0), 0.5, (len(rows),))
            ).mean(),
            "the loss depends on the order of the examples",
        ),
    ],
)
def test_a_loss_that_is_no_mean_is_named(loss, cause):
    found = lines(problem(loss))
    assert "DIFFERS at update 1: a by " in found[0][0]
    assert "norm of its gradient" in found[0][0]
    (said,) = causes(found)
    assert cause in " ".join(said.split())


def test_a_loss_with_a_state_is_named():
    made = problem(lambda params, rows: squares(params, rows).mean())
    calls = []

    def gradient(params, rows):
        calls.append(1)
        loss, grads = made.gradient(params, rows)
        return loss * len(calls), grads

    (said,) = causes(lines(made._replace(gradient=gradient)))
    assert "changes from call to call" in " ".join(said.split())


def strategy(divide=lambda sums, comm: sums / comm.size, replicas=True, summed=True):
    """Return a strategy that divides a sum over ranks."""

    def train(problem, batches, update, *, comm, timer):
        params, state = problem.params, update.init(problem.params)
        for number, batch in enumerate(batches, 1):
            rows = np.array_split(batch, comm.size)[comm.rank]
            loss, grads = problem.gradient(params, problem.take(rows))

            def over_ranks(leaf):
                total = np.array(leaf)
                if summed:
                    dml.allreduce(comm, total, algorithm="star")
                return divide(total, comm)

            grads = jax.tree.map(over_ranks, grads)
            loss = over_ranks(np.array([loss]))[0]
            change, state = update.update(grads, state, params)
            params = jax.tree.map(np.add, params, change)
            yield dml.Step(
                *(
                    number,
                    float(loss),
                    lambda now=params: now,
                    len(batch),
                    timer.lap(),
                    0,
                ),
                replicas=replicas,
            )

    return train


@pytest.mark.parametrize(
    "train, cause",
    [
        (strategy(), ""),
        (
            strategy(lambda sums, comm: sums),
            "all gradients are 3 times the serial ones",
        ),
        (
            strategy(lambda one, comm: one, replicas=False, summed=False),
            "the update of rank 0 uses its own examples alone",
        ),
        (
            strategy(lambda one, comm: one, summed=False),
            "the parameters of rank 1 differ from those of rank 0",
        ),
        (strategy(lambda sums, comm: np.sign(sums)), "not found by the probes"),
    ],
)
def test_a_fault_of_a_strategy_is_named(monkeypatch, train, cause):
    monkeypatch.setitem(parity.WAYS, "mine", parity.Way(train, ranks=3))
    monkeypatch.delitem(parity.WAYS, "3 ranks")
    found = lines(problem(lambda params, rows: squares(params, rows).mean()))
    assert [wrong for _, wrong in found] == ([True] * 2 if cause else [False])
    assert all(cause in " ".join(said.split()) for said in causes(found))


def test_bad_input_is_refused(capsys):
    for argv, message in [
        (["mlp", "--batch=5"], "expected --batch of at least 6"),
        (["svm"], "expected a tree of parameters in the problem svm"),
        (["no such"], "got 'no such'"),
    ]:
        assert parity.main(argv) == 2
        said = capsys.readouterr().err
        assert message in said and said.count("\n") == 1


def test_stages_need_layers():
    made = find_problem("mlp").make()
    assert parity.has_layers(made)
    assert not parity.has_layers(made._replace(model=None))
