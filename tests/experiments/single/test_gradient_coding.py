"""The single file of gradient coding has the bits and words of the strategy.

On virtual ranks a gradient takes random seconds, much longer than a message: the same
terms are late in both.
"""

from functools import partial

import numpy as np
import pytest

from dml.metrics.timer import Timer
from dml.sim.delays import delay_distribution, step_seconds
from dml.strategies.gradient_coding import gradient_coding as strategy
from dml.types import Problem, Rows
from dml.wire.comm import Delayed
from dml.wire.plans.codes.decoding import make_plan
from dml.wire.server.first_terms import HEADER
from experiments.single import gradient_coding
from tests.experiments.single.proof import broken, ran

D, STEPS, RATE = gradient_coding.D, 12, gradient_coding.RATE
BATCH = gradient_coding.BATCH
CODES = {
    "uncoded:0": ("repetition", 0),
    "repetition:1": ("repetition", 1),
    "repetition:2": ("repetition", 2),
    "random:1": ("random", 1),
    "random:2": ("random", 2),
}
CASES = [
    *(("uncoded:0", n) for n in (1, 2, 3, 4)),
    *[("repetition:1", 2), ("repetition:1", 4), ("repetition:2", 3)],
    *[("random:1", 2), ("random:1", 3), ("random:1", 4), ("random:2", 4)],
]


def slowed(comm, worker):
    """Return a communicator whose computations take random seconds."""
    draws = delay_distribution("shifted_exponential:1,1")
    return Delayed(comm, step_seconds(draws, 5, worker))


def single(code, n, module=gradient_coding):
    """Return the results of the master, and words of all ranks, workers first."""
    name, s = CODES[code]
    B = getattr(module, name)(n, s)

    def program(comm):
        w, gradient = np.zeros(D, np.float32), partial(module.gradient, B.shape[1])
        if comm.rank:
            delayed = slowed(comm, comm.rank - 1)
            copies = float(make_plan(code, n).code.copies)
            module.work(
                comm, B, w, gradient, STEPS, lambda t: delayed.platform.work(copies)
            )
            return None, comm.bytes_sent // 4 - comm.messages_sent
        losses, unused = module.master(comm, B, w, STEPS)
        return (w.tobytes(), [float(x) for x in losses], unused), comm.bytes_sent // 4

    master, *workers = [result for result, _ in ran(program, n + 1)]
    return [*workers, master]


class Descent:
    """Gradient descent in NumPy."""

    def __init__(self, values):
        self.values = values.copy()

    def update(self, at, grads, share=1.0):
        self.values[at] -= RATE * grads


def modular(code, n):
    """Return what `single` returns, of the strategy."""

    def gradient(table, indices):
        t, first = divmod(int(indices[0]), BATCH)
        inputs = np.float32(np.random.default_rng(t).standard_normal((BATCH, D)))
        own = inputs[first : first + len(indices)]
        errors = own @ (table[0] - 1)
        grads = own.T @ errors / np.float32(len(own))
        return 0.5 * np.mean(errors**2), Rows(slice(0, 1), grads[None])

    task = Problem(np.zeros((1, D), np.float32), STEPS * BATCH, gradient, dict)
    batches = np.arange(STEPS * BATCH).reshape(STEPS, BATCH)

    def program(comm):
        delayed = slowed(comm, comm.rank) if comm.rank < n else comm
        how = {"comm": delayed, "timer": Timer(comm.Wtime), "code": code}
        steps = [*strategy(task, batches, Descent, **how)]
        if comm.rank < n:
            return None, comm.bytes_sent // 4 - HEADER * comm.messages_sent
        unused = sum(step.measures["unused_terms"] for step in steps)
        losses = [step.loss for step in steps]
        return (steps[-1].params().tobytes(), losses, unused), comm.bytes_sent // 4

    return [result for result, _ in ran(program, n + 1)]


@pytest.mark.parametrize("code, n", CASES)
def test_bits_and_words_are_those_of_the_strategy(code, n):
    *workers, ((w, losses, _), words) = single(code, n)
    *wanted, ((all_w, all_losses, _), all_words) = modular(code, n)
    assert w == all_w
    assert losses == pytest.approx(all_losses, rel=1e-6)
    assert (workers, words) == (wanted, all_words)
    assert words == STEPS * n * (D + 1)


def test_late_terms_are_not_sent_or_not_used():
    *workers, ((_, _, unused), _) = single("random:1", 4)
    sent = sum(words for _, words in workers) // (D + 1)
    assert sent < 4 * STEPS  # some are not sent
    assert unused == sent - 3 * STEPS


def test_codes_are_those_of_dml():
    for code, n in CASES:
        name, s = CODES[code]
        B = getattr(gradient_coding, name)(n, s)
        assert np.array_equal(B, make_plan(code, n).code.coefficients)


def test_repetition_has_the_bits_of_one_process(capsys, monkeypatch):
    monkeypatch.setattr(gradient_coding, "SLEEP", 0.0)
    for size in (2, 5):
        ran(gradient_coding.main, size)
        _, _, *lines = capsys.readouterr().out.splitlines()
        equal = {line.split()[0]: line.split()[-2] for line in lines}
        assert equal["uncoded"] == equal["repetition"] == "True"
    for size in (1, 50):
        with pytest.raises(SystemExit, match=f"expected 2 to 49 ranks, got {size};"):
            ran(gradient_coding.main, size)


@pytest.mark.parametrize(
    "code, n, old, new",
    [
        ("uncoded:0", 4, "return sum(terms[w] for w in first)", "return terms[0]"),
        ("repetition:1", 4, "g, loss) *", "g, loss) * 2 *"),
        ("random:1", 4, "sum(B[worker, part] * grad", "sum(grad"),
        ("random:1", 4, "weights(B, workers) @ rows)", "rows.sum(axis=0))"),
    ],
)
def test_a_broken_line_changes_the_results(code, n, old, new, tmp_path):
    mutant = single(code, n, broken(tmp_path, gradient_coding, (old, new)))
    assert mutant[-1][0][0] != modular(code, n)[-1][0][0]


def test_a_late_term_that_is_sent_is_counted(tmp_path):
    old, new = "if not arriving.Test():", "if True:"
    mutant = single("random:1", 4, broken(tmp_path, gradient_coding, (old, new)))
    assert mutant != modular("random:1", 4)
