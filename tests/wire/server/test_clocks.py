"""The clocks of a server."""

from dml.wire.server.clocks import Clocks


def test_a_clock_is_closed_by_a_worker_even_if_the_backups_are_all_that_is_left():
    clocks = Clocks(3, backups=2)
    assert not clocks.drop(0) and not clocks.drop(1)
    assert clocks.end(2, 1) and not clocks.close()
    assert clocks.closed == 1
