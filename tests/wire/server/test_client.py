"""Messages of a client: key lists, masks, order of keys; and its errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from dml.types import BadInput
from dml.wire.server.consistency import Choice, consistency
from tests.wire.server.served import run_servers, table


def test_known_keys_are_not_sent_again():
    def work(client, comm):
        draws = np.random.default_rng(0)
        lists = [draws.permutation(50)[:20].astype(np.int32) for _ in range(3)]
        for k in range(30):
            keys = lists[k % 3]
            client.pull(keys)
            client.push(keys, np.full((20, 2), k, np.float32))
        return client.outbox.keys_sent, client.outbox.keys_known, comm.bytes_sent

    results = {}
    for known in (0, 1, 2, 3, 64):
        ((counts,), servers) = run_servers(work, 1, 2, rows=50, width=2, known=known)
        results[known] = counts, table(servers).tobytes()
    assert len({bits for _, bits in results.values()}) == 1
    keys = 30 * 2 * 20  # of pulls and pushes
    assert results[0][0][:2] == (keys, 0)
    # the servers store the list of a pull until its push
    assert results[1][0][:2] == (keys // 2, keys // 2)
    assert results[3][0][:2] == (3 * 20, keys - 3 * 20)
    assert results[3][0][2] < results[1][0][2] < results[0][0][2]


@settings(max_examples=25)
@given(some.integers(1, 3), some.integers(1, 40), some.integers(0, 10**6))
def test_keys_without_values_cost_a_bit_each(servers, keys, seed):
    draws = np.random.default_rng(seed)
    chosen = draws.permutation(40)[:keys].astype(np.int32)
    has = draws.random(keys) < 0.4
    values = draws.integers(1, 9, (int(has.sum()), 2)).astype(np.float32)

    def work(client, comm):
        client.pull(chosen)
        before = comm.bytes_sent
        client.push(chosen, values, has=has)
        return comm.bytes_sent - before

    (sent,), found = run_servers(work, 1, servers, rows=40, width=2)
    total = np.zeros((40, 2), np.float32)
    total[chosen[has]] = values
    assert np.array_equal(table(found), total)
    assert sent <= servers * (64 + 8) + 8 * (keys // 64) + values.nbytes


@pytest.mark.parametrize("rows", [8, 20_000])
def test_gradients_of_any_kind_and_order_go_as_float32(rows):
    def work(client, comm):
        values = np.asfortranarray(np.arange(2.0 * rows).reshape(rows, 2))
        client.push(slice(0, rows), values)
        client.push(np.arange(rows)[::-1].astype(np.int32), values[::-1])
        return client.pull(slice(0, rows))

    ((found,), _) = run_servers(work, 1, 2, rows=rows, width=2)
    assert (found == 2 * np.arange(2 * rows).reshape(rows, 2)).all()


def test_aggregated_pushes_count_their_clocks():
    def work(client, comm):
        for _ in range(3):
            client.end_clock()
            client.push(slice(0, 8), np.ones((8, 1), np.float32), ends_clock=True)
        return client.clock

    clocks, (server,) = run_servers(work, 2, rule=consistency("bsp", Choice(), 2))
    assert clocks == [6, 6]
    assert (server.clock, server.version) == (6, 3)
    assert (server.shard.values == 6).all()


def push(keys, count, width=1):
    return lambda client: client.push(keys, np.ones((count, width), np.float32))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda client: client.pull(np.array([3, 8])), "keys of 0 to 7, got 8"),
        (lambda client: client.pull(np.array([-1])), "keys of 0 to 7, got -1"),
        (lambda client: client.pull(slice(2, 9)), "keys of 0 to 7, got 8"),
        (push(np.array([1, 2]), 3), r"values of shape \(2, 1\), got \(3, 1\)"),
        (push(slice(0, 2), 2, 2), r"values of shape \(2, 1\), got \(2, 2\)"),
    ],
)
def test_bad_keys_and_lengths_are_one_line(call, message):
    with pytest.raises(BadInput, match=f"rank 0: expected {message}"):
        run_servers(lambda client, comm: call(client), 1)


@pytest.mark.parametrize(
    "name, choice, flag",
    [
        ("softsync", Choice(softsync=5), "softsync"),
        ("backup", Choice(backup=4), "backup"),
        ("backup", Choice(backup=-1), "backup"),
        ("ssp", Choice(staleness=-1), "staleness"),
    ],
)
def test_consistencies_refuse_numbers_that_make_no_sense(name, choice, flag):
    with pytest.raises(BadInput, match=f"expected .*{flag} of"):
        consistency(name, choice, 4)


def test_consistencies_gather_and_damp_as_in_their_papers():
    damped = Choice(staleness=0, softsync=2, staleness_scaled=True)
    assert consistency("softsync", damped, 5).aggregation_count == 2  # ⌊λ/n⌋
    assert not consistency("ssp", damped, 5).staleness_scaled  # nothing is stale
    assert consistency("ssp", damped._replace(staleness=1), 5).staleness_scaled
