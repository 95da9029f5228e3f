"""Post-validation has the bits of clipping after a barrier, and waits less."""

import numpy as np
import pytest
from studies.pipeline.post_validation import (
    Run,
    gradient,
    leading_forwards,
    start,
    train,
)
from studies.pipeline.virtual import Stage

from dml.wire.plans.pipeline.schedules import make
from dml.wire.plans.pipeline.times import bubble_seconds

FREE, UNIT = "0,0,0", [1.0, 1.0, 1.0]
SLOW = "0.01,1e-9,0"


def run(name, scales, *, clip=1.0, k=4, m=8, network=FREE):
    schedule = make(name, k, m, 2 if name == "zb_v" else 1)
    stage = Stage(schedule, [UNIT] * schedule.parts, 1 << 10)
    return Run(stage, network, scales, clip)


# gradients that are never, always and sometimes clipped; of 3 only the sum
# over several stages exceeds the limit
NORMS = {"never": [0.1] * 5, "always": [90.0] * 4, "mixed": [0.1, 3, 0.1, 90, 3, 0.1]}


@pytest.mark.parametrize("network", [FREE, SLOW])
@pytest.mark.parametrize("norms", NORMS)
@pytest.mark.parametrize("name", ["1f1b", "zb_h1", "zb_h2", "zb_v"])
def test_params_and_state_have_the_bits_of_clipping_after_all(name, norms, network):
    job = run(name, NORMS[norms], network=network)
    _, expected, count = train("synchronous", job)
    _, found, repeated = train("post-validated", job)
    assert repeated == count == {"never": 0, "always": 4, "mixed": 3}[norms]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.params, other.params)
        for leaf, same in zip(one.state, other.state, strict=True):
            np.testing.assert_array_equal(leaf, same)


def test_the_sum_of_several_stages_exceeds_the_limit():
    job = run("zb_h2", [3.0])
    grads = [gradient(start(rank).params, rank, 0, 3.0) for rank in range(4)]
    sums = np.sqrt(np.cumsum([np.square(each).sum() for each in grads]))
    assert sums[0] < job.clip < sums[-1]
    assert leading_forwards(job.stage.schedule, 3) == [(0, 0, 3)]


@pytest.mark.parametrize("name, idle", [("zb_h1", 3), ("zb_h2", 0), ("zb_v", 0)])
def test_an_unclipped_run_has_the_bubble_of_a_run_without_flushes(name, idle):
    few, more = (run(name, [0.1] * count, m=9) for count in (3, 7))
    schedule = few.stage.schedule
    work = 3 * 9 * schedule.rounds
    seconds = train("post-validated", more)[0] - train("post-validated", few)[0]
    assert seconds == 4 * (work + idle)
    assert bubble_seconds(schedule, UNIT, 5) == idle
    waiting = train("synchronous", more)[0] - train("synchronous", few)[0]
    assert waiting == 4 * (work + 3)


def test_a_clipped_minibatch_repeats_the_leading_forwards_only():
    unclipped = train("post-validated", run("zb_h2", [0.1] * 6))[0]
    once = train("post-validated", run("zb_h2", [0.1, 0.1, 9.0, 0.1, 0.1, 0.1]))[0]
    leading = len(leading_forwards(run("zb_h2", [0.1]).stage.schedule, 0))
    assert leading == 7
    assert 0 < once - unclipped <= leading + 3
