"""Messages of one size, received in the order of arrival."""

import numpy as np
import pytest

from dml import sim
from dml.strategies.actors.arrivals import Arrivals
from dml.types import BadInput
from dml.wire.comm.tags import Tag


@pytest.mark.parametrize("nbytes", [0, 7, 9])
def test_a_message_of_another_length_is_refused(nbytes):
    def program(comm):
        if comm.rank:
            comm.Send(np.zeros(nbytes, np.uint8), 0, Tag.ROLLOUT)
        else:
            Arrivals(comm, 8, Tag.ROLLOUT).next(wait=True)

    with pytest.raises(
        BadInput, match="messages of 8 bytes from actors, got .* rank 1"
    ):
        sim.run(program, 2)
