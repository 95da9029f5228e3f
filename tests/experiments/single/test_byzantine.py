"""The single file of robust rules has the bits of dml's reducers in training."""

import numpy as np
import optax
import pytest

from dml.metrics.timer import Timer
from dml.strategies.synchronous import synchronous
from dml.types import Problem
from dml.wire.collectives import tree_allreduce
from dml.wire.collectives.all_gather_parts import all_gather_parts, gather_lengths
from dml.wire.reducers import robust
from dml.wire.reducers.robust.attacks import byzantine as attack_of
from dml.wire.reducers.robust.slices import gather
from experiments.single import byzantine
from tests.experiments.single.proof import broken, ran

N, F, D, STEPS = byzantine.N, byzantine.F, byzantine.D, 8
RULES = {
    "mean": robust.mean(),
    "median": robust.median(F),
    "trimmed_mean": robust.trimmed_mean(F),
    "krum": robust.krum(F),
}
ATTACKS = {
    "no_attack": None,
    "ipm": attack_of(f"ipm:{byzantine.EPSILON}", F),
    "alie": attack_of(f"alie:{byzantine.Z}", F),
}


def single(rule, attack, size, module=byzantine):
    """Return the weights of every rank, and its bytes."""
    module.STEPS = STEPS

    def program(comm):
        own = np.array_split(np.arange(N), size)[comm.rank]
        rule_and_attack = getattr(module, rule), getattr(module, attack)
        return module.train(*rule_and_attack, own, lambda x: module.all_gather(comm, x))

    return [(w.tobytes(), sent) for w, sent in ran(program, size)]


def modular(rule, attack, size):
    """Return what `single` returns, of `synchronous` with a robust reducer."""

    def gradient(params, batch):
        ((worker, step),) = np.asarray(batch)
        return 0.0, {"w": byzantine.gradient(np.asarray(params["w"]), worker, step)}

    def take(indices):
        return np.stack([indices % N, indices // N], axis=1)

    start = {"w": np.zeros(D, np.float32)}
    task = Problem(start, N * STEPS, gradient, dict, take)
    options = {"exchange": gather, "byzantine": ATTACKS[attack]}
    reducer = robust.robust(RULES[rule], allreduce=tree_allreduce, **options)

    def program(comm):
        how = {"comm": comm, "timer": Timer(), "reducer": reducer, "shards": N}
        batches = np.arange(N * STEPS).reshape(STEPS, N)
        update = optax.sgd(float(byzantine.ETA))
        return [*synchronous(task, batches, update, **how)][-1].params()["w"]

    return [(np.asarray(w).tobytes(), sent) for w, sent in ran(program, size)]


def more_words(comm):
    """Send what `synchronous` sends besides gradients: numbers of terms, and losses."""
    counts = np.array([len(own) for own in np.array_split(np.arange(N), comm.size)])
    for _ in range(STEPS):
        gather_lengths(comm, 1)
        all_gather_parts(comm, np.zeros(counts[comm.rank], np.float32), counts)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("rule", RULES)
def test_bits_and_words_are_those_of_the_strategy(rule, attack, size, monkeypatch):
    monkeypatch.setattr(byzantine, "STEPS", STEPS)
    more = [sent for _, sent in ran(more_words, size)]
    wanted = modular(rule, attack, size)
    for (w, sent), (other, all_sent), rest in zip(
        single(rule, attack, size), wanted, more, strict=True
    ):
        assert w == other
        assert sent == all_sent - rest


def test_main_prints_words_and_that_only_the_mean_is_not_robust(capsys):
    (_, sent), *_ = ran(byzantine.main, 3)
    first, _, *rules, equal = capsys.readouterr().out.splitlines()
    words = int(first.split(";")[1].split()[0])
    assert sent == words * 4 * byzantine.STEPS * len(RULES) * len(ATTACKS)
    assert equal == "equal bits to one process: True"
    for name, *errors in map(str.split, rules):
        assert (max(map(float, errors)) > 1) == (name == "mean")


@pytest.mark.parametrize(
    "rule, attack, old, new",
    [
        ("median", "ipm", "(len(rows) - 1) // 2,", "len(rows) // 2,"),
        ("trimmed_mean", "ipm", "[F : len(rows) - F]", "[F : len(rows) - F + 1]"),
        ("krum", "alie", "1 : len(rows) - F - 1", "1:2"),
        ("mean", "alie", "mu - Z * sigma", "mu + Z * sigma"),
        ("mean", "no_attack", "parts[(rank - i - 1) % size]", "parts[rank - i]"),
    ],
)
def test_a_broken_line_changes_the_weights(rule, attack, old, new, tmp_path):
    mutant = broken(tmp_path, byzantine, (old, new))
    ((found, _), *_), ((wanted, _), *_) = (
        single(rule, attack, 2, mutant),
        modular(rule, attack, 2),
    )
    assert found != wanted
