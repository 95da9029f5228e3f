import numpy as np

from dml.wire.plans.splitmix import GOLDEN, mix

# the first outputs of Vigna's reference program for the seed 1234567
PUBLISHED = [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_the_outputs_are_those_of_the_reference_program():
    states = np.uint64(1234567) + GOLDEN * np.arange(1, 4, dtype=np.uint64)
    assert mix(states).tolist() == PUBLISHED
