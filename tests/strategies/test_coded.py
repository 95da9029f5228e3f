"""Coded training: any attack that the code corrects leaves no trace."""

from itertools import combinations

import numpy as np
import pytest

from dml import sim
from dml.strategies.coded import coded
from dml.strategies.serial import serial
from dml.strategies.synchronous import synchronous
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.plans.codes.coding import make_code
from dml.wire.reducers.exact import exact
from dml.wire.reducers.robust import (
    Attack,
    Byzantine,
    centred_clipping,
    estimate,
    krum,
    median,
    trimmed_mean,
)
from dml.wire.reducers.robust.attacks import ATTACKS as ATTACKS_BY_NAME
from dml.wire.reducers.robust.attacks import LABEL_FLIP, byzantine
from dml.wire.reducers.robust.coded import CodedSum
from dml.wire.reducers.robust.estimate import Estimator
from tests.strategies.small import close, same_bits, train

WORKERS = 6


def steps(size=2, *, workers=WORKERS, **options):
    """Return the steps of coded training on virtual ranks, of every rank."""

    def program(comm):
        return train(coded, comm=Metered(comm), workers=workers, **options)

    return sim.run(program, size)


def run(size=2, **options):
    return steps(size, **options)[0]


def forging(attackers, change):
    """Return the attack that changes the rows of any attackers, in place."""

    def forge(seen):
        chosen = attackers(seen.step) if callable(attackers) else attackers
        change(seen.rows, list(chosen))

    return Byzantine(Attack(forge=forge), 1)


def send_nan(rows, attackers):
    rows[attackers] = np.nan


def flip_signs(rows, attackers):
    rows[attackers] *= -1


def collude(rows, attackers):
    rows[attackers] = 1e30


def copy_another_group(rows, attackers):
    rows[attackers] = rows[[attacker - 1 for attacker in attackers]]


def change_the_last_bit(rows, attackers):
    rows.view(np.uint32)[attackers, -1:] ^= 1


def send_noise(rows, attackers):
    shape = len(attackers), rows.shape[1]
    rows[attackers] += np.random.default_rng(0).standard_normal(shape)


ATTACKS = [send_nan, flip_signs, collude, copy_another_group, change_the_last_bit]
ATTACKS += [send_noise]


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attacked_run_has_the_bits_of_the_run_without_attack(attack):
    plain = run(size=1)
    for attackers in ((4, 5), (0, 1), (2, 5)):  # one worker of each group of three
        attacked = run(byzantine=forging(attackers, attack))
        assert same_bits(attacked, plain)
        assert [step.measures["wrong_terms"] for step in attacked] == [2] * len(plain)
    assert [step.measures["wrong_terms"] for step in plain] == [0] * len(plain)


@pytest.mark.parametrize("name", sorted(set(ATTACKS_BY_NAME) - {LABEL_FLIP}))
def test_no_attack_by_name_leaves_a_trace(name):
    attacked = run(byzantine=byzantine(name, 2))
    assert same_bits(attacked, run())
    # workers 4 and 5 may copy workers 0 and 1 of their own groups
    wrong = {"copy": 0, "mimic": 1}.get(name, 2)
    assert {step.measures["wrong_terms"] for step in attacked} == {wrong}


def test_attackers_may_be_others_in_every_step():
    attack_by = forging(lambda step: [step % 6, (step % 6 + 1) % 6], collude)
    assert same_bits(run(byzantine=attack_by), run())


def test_two_colluding_attackers_of_a_group_of_five_are_outvoted():
    options = {"workers": 5, "code": "repetition:2"}
    plain = run(**options)
    for attackers in combinations(range(5), 2):
        attacked = run(byzantine=forging(attackers, collude), **options)
        assert same_bits(attacked, plain)


def test_repetition_is_synchronous_training_on_a_rank_per_group():
    def program(comm):
        star = exact(ALLREDUCE["star"])
        return train(synchronous, comm=Metered(comm), reducer=star)

    groups = sim.run(program, 3)[0]
    for size in (1, 2, 5, 9):
        ranks = steps(size, workers=9)
        assert all(same_bits(found, groups) for found in ranks)


def test_parts_are_added_in_the_order_of_groups_whoever_sent_them():
    serially = train(serial, accumulate=3)
    for attackers in ((0, 4), (1, 5), (2, 3)):
        attack_by = forging(attackers, collude)
        assert same_bits(run(workers=9, byzantine=attack_by), serially)


def test_a_group_without_a_majority_is_named():
    attack_by = forging([0, 2], send_noise)
    with pytest.raises(BadInput, match=r"2 equal terms of the workers \[0, 2, 4\] of"):
        run(byzantine=attack_by)

    # two pairs of equal terms are no majority of five
    def pairs(rows, attackers):
        rows[[0, 1]], rows[[2, 3]], rows[4] = 1, 2, 3

    with pytest.raises(BadInput, match="expected 3 equal terms.*got at most 2"):
        run(workers=5, code="repetition:2", byzantine=forging([], pairs))


def test_more_attackers_than_the_code_corrects_win_the_vote_if_they_agree():
    assert not same_bits(run(byzantine=forging([0, 2], flip_signs)), run())


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("workers, code", [(5, "cyclic:1"), (6, "cyclic:2")])
def test_a_cyclic_code_decodes_the_sum_of_all_parts(workers, code, attack):
    options = {"workers": workers, "code": code}
    faulty = int(code[-1])
    serially = train(serial, accumulate=workers)
    for attackers in list(combinations(range(workers), faulty))[::4]:
        attack_by = forging(attackers, attack)
        attacked = run(byzantine=attack_by, **options)
        close(attacked, serially)
        located = {step.measures["wrong_terms"] for step in attacked}
        assert located == {0 if attack is change_the_last_bit else faulty}


def test_errors_of_slices_do_not_cancel():
    terms = np.zeros((5, 8), np.float32)
    terms[3, 1], terms[3, 5] = 1, -1  # at the same places of both slices
    total, wrong = decode(terms, "cyclic:1", size=2)
    assert not total.any() and wrong == 1


def test_more_wrong_terms_than_a_cyclic_code_corrects_are_refused():
    attack_by = forging([0, 3], flip_signs)
    with pytest.raises(BadInput, match="at most 1 wrong terms of 5 workers, got more"):
        run(workers=5, code="cyclic:1", byzantine=attack_by)


def decode(terms, code="repetition:1", size=2, **options):
    """Return the sum that all ranks decode from the terms of all workers."""

    def program(comm):
        plan = make_code(code, len(terms))
        sums = CodedSum(comm, plan, terms.shape[1] - 1, **options)
        return sums.add_up([terms[worker] for worker in sums.terms.own], 0)

    (total, wrong), *others = sim.run(program, size)
    assert all(total.tobytes() == other.tobytes() for other, _ in others)
    return total, wrong


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_loss_after_a_gradient_is_voted_too(size):
    terms = np.tile(np.arange(20, dtype=np.float32).reshape(2, 10), (3, 1))
    expected = terms[0] + terms[1]
    for worker in range(6):
        for element in (0, 9):
            wrong = terms.copy()
            wrong[worker, element] = -1
            total, count = decode(wrong, size=size)
            assert np.array_equal(total, expected) and count == 1


def test_terms_are_compared_as_bytes():
    terms = np.zeros((3, 4), np.float32)
    terms[1:, 1] = np.nan  # also of right workers
    terms[0, 1], terms[0, 2] = np.nan, -0.0
    total, wrong = decode(terms)
    assert total.tobytes() == terms[1].tobytes() and wrong == 1


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("rule", [median(1), krum(1), trimmed_mean(2)])
def test_a_robust_rule_of_groups_tolerates_a_group_that_is_lost(rule, size):
    parts = np.random.default_rng(0).standard_normal((5, 31)).astype(np.float32)
    parts[3] = 50
    parts[:, -1] = range(5)  # losses
    terms = np.tile(parts, (3, 1))
    terms[[3, 8]], terms[4] = -1e6, np.nan  # two workers of group 3, one of group 4
    terms[[3, 8], -1] = 3
    total, wrong = decode(terms, size=size, rule=Estimator(rule))
    parts[3] = -1e6
    estimated = 5 * estimate(rule, parts[:, :-1])
    np.testing.assert_array_equal(total[:-1], estimated)
    assert total[-1] == 0 + 1 + 2 + 3 + 4 and wrong == 2
    assert np.abs(total[:-1]).max() < 30


def test_rules_that_do_not_fit_a_code_are_refused():
    with pytest.raises(BadInput, match="at least 3 groups .* for median:1, got 2"):
        run(rule=Estimator(median(1)))
    with pytest.raises(BadInput, match="cyclic code, got the rule median"):
        run(rule=Estimator(median(1)), code="cyclic:1")
    with pytest.raises(BadInput, match="last estimate, got centred_clipping"):
        run(rule=Estimator(centred_clipping(1)), workers=9)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("code", ["repetition:1", "cyclic:2"])
def test_words_are_those_of_the_formula(size, code):
    length, workers = 60, 6

    def program(comm):
        comm = Metered(comm)
        terms = np.zeros((workers // size, length), np.float32)
        sums = CodedSum(comm, make_code(code, workers), length - 1)
        sums.add_up(list(terms), 0)
        return comm.bytes_sent

    facts = workers if code == "repetition:1" else 4 * workers
    elements = workers * (size - 1) / size * length + (size - 1) * length
    expected = 4 * elements + 8 * 2 * (size - 1) * facts
    assert sum(sim.run(program, size)) == expected


def test_fewer_workers_than_ranks_are_refused():
    with pytest.raises(BadInput, match="one worker for each of 4 ranks, got 3"):
        steps(4, workers=3)
