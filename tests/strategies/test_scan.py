"""One compiled program of all updates, compared with serial."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from dml.strategies.scan import scan
from dml.strategies.serial import serial
from dml.types import BadInput
from tests.strategies.small import BATCH, apart, train

CLOSE = 3e-6  # four updates of 0.01: XLA fuses other operations


def product(weights, params):
    return {"product": jnp.vdot(weights, params["embed"][0])}


def test_a_program_of_all_updates_is_serial():
    plain = train(serial, drawn=4 * BATCH)
    for workers in (1, 4):
        found = train(scan, drawn=4 * BATCH, every=2, workers=workers)
        assert [step.number for step in found] == [2, 4]
        for step, (one, two) in zip(found, (plain[:2], plain[2:]), strict=True):
            assert step.loss == pytest.approx((one.loss + two.loss) / 2, rel=1e-5)
            assert apart(step.params, two.params) < CLOSE


def test_measures_are_of_the_params_of_their_step():
    weights = np.arange(12, dtype=np.float32)
    found = train(scan, drawn=3 * BATCH, measure=Partial(product, weights))
    values = [step.measures["product"] for step in found]
    wanted = [float(weights @ step.params["embed"][0]) for step in found]
    assert values == pytest.approx(wanted, rel=1e-5) and len(set(values)) == 3


@pytest.mark.parametrize("drawn, every", [(3 * BATCH + 1, 1), (3 * BATCH, 2)])
def test_minibatches_that_no_loop_can_take_are_refused(drawn, every):
    with pytest.raises(BadInput, match="expected minibatches of one length"):
        train(scan, drawn=drawn, every=every)
