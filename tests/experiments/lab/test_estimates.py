"""Estimates of long virtual runs: their messages are those that are sent."""

import numpy as np
import pytest
from lab import estimates

from dml import sim
from dml.wire.collectives import ALLREDUCE
from dml.wire.collectives.hierarchical import hierarchical_allreduce
from dml.wire.comm import Metered

SENT = ("star", "tree", "butterfly", "halving_doubling", "ring")


@pytest.mark.parametrize("name", SENT)
@pytest.mark.parametrize("size", (1, 2, 5, 8))
def test_the_messages_of_an_allreduce_are_estimated(name, size):
    def program(comm):
        comm, buffer = Metered(comm), np.zeros(size)
        ALLREDUCE[name](comm, buffer)
        return comm.messages_sent, estimates.allreduce_messages(comm, name, buffer)

    found = sim.run(program, size)
    assert {each for _, each in found} == {sum(sent for sent, _ in found)}


def test_the_messages_of_groups_are_estimated():
    def program(comm):
        comm, buffer = Metered(comm), np.zeros(8)
        hierarchical_allreduce(comm, buffer, group=(4, 2))
        before = comm.messages_sent
        hierarchical_allreduce(comm, buffer, group=(4, 2))
        sent = comm.messages_sent - before
        return sent, estimates.allreduce_messages(comm, "hierarchical", buffer, (4, 2))

    found = sim.run(program, 16, sim.Uniform(host=1))
    assert {each for _, each in found} == {sum(sent for sent, _ in found)}


@pytest.mark.parametrize(("messages", "lines"), ((10**5, 0), (10**7, 1)))
def test_a_long_virtual_run_prints_one_line(messages, lines, capsys):
    sim.run(lambda comm: estimates.warn(comm, "ring", messages, "ring"), 3)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == lines
    assert all("ring on 3 virtual ranks: about 10,000,000" in line for line in printed)
