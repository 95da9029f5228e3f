"""The table of collectives: results, bits, messages, words and seconds."""

from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.conformance.comparisons import check_order, check_results, conform
from dml.conformance.known_results import Case, cases, lengths
from dml.sim.networks.named import network
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE, COLLECTIVES
from dml.wire.collectives.hierarchical import hierarchical_allreduce
from dml.wire.collectives.rings.torus import torus, torus_allreduce
from dml.wire.collectives.steps import pat
from dml.wire.collectives.steps.swing import swing, swing_allreduce
from dml.wire.collectives.steps.trivance import trivance, trivance_allreduce
from dml.wire.collectives.table import AUTO, Algorithm
from dml.wire.collectives.transposes.two_steps import two_step_all_to_all, two_steps
from dml.wire.collectives.trees.circulant import CIRCULANT_TREES
from dml.wire.comm import Metered
from dml.wire.costs.allreduce import Job, hierarchical_seconds
from dml.wire.plans.schedules import nested, words_sent
from dml.wire.plans.topology import SEGMENT, SMALL, STAGE, chunks, levels
from tests.wire import test_algorithms as books
from tests.wire.collectives.copied import copies
from tests.wire.comm import orders

FEW = (1, 2, 3, 5, 8, 9)
EVEN = 5040  # words, a multiple of all sizes
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 27)
NETWORK = sim.Uniform(books.ALPHA, books.BETA, books.GAMMA, host=1)
FURTHER = sorted(ALLREDUCE.keys() - {*orders.BASIC, *AUTO})


def sending(collective):
    """Return the names of the algorithms that send messages."""
    table = COLLECTIVES[collective].items()
    return sorted(name for name, own in table if own.schedule)


GATHERS = sending("all_gather")


@pytest.mark.parametrize("name", FURTHER)
def test_sums_of_integers_are_exact_and_bits_are_those_of_the_order(name):
    for size in SIZES:
        exact = [Case(size, n, "int64", "sum") for n in lengths(size)]
        check_results(ALLREDUCE[name], sim.run, exact)
        if order := orders.FURTHER.get(name):  # that of a double tree is its schedule
            check_order(ALLREDUCE[name], sim.run, size, order)


@pytest.mark.parametrize("name", FURTHER)
def test_further_all_reduces_conform(name):
    conform(ALLREDUCE[name], sim.run, 5, all_pairs=False)
    unbuffered = partial(sim.run, network=sim.Uniform(eager=0, host=1), seed=1)
    check_results(ALLREDUCE[name], unbuffered, cases(6, (7, 1011), False))
    check_results(ALLREDUCE[name], sim.run, [Case(3, SEGMENT + 11, "float32", "sum")])


def agree(algorithm, job, words, exact):
    """Compare a run with the schedule, the words and the formula."""
    start, end, sent = books.running(algorithm.function, job, NETWORK)
    rounds = list(algorithm.schedule(job.size, job.length, job.itemsize))
    assert books.messages(rounds, job.size) == sent
    assert words_sent(rounds, job.itemsize) == words
    found = sim.evaluate(rounds, NETWORK, job.size, start)
    np.testing.assert_allclose(found.clocks, end, rtol=1e-12, atol=0)
    took = end.max() - start.max()
    formula = algorithm.seconds(job, books.RATES) if job.size > 1 else 0.0
    assert took <= formula * (1 + 1e-9)
    if exact:
        assert took == pytest.approx(formula, rel=1e-9, abs=0)


def folds(algorithm, size):
    return 0 if algorithm.any_size else size - (1 << (size.bit_length() - 1))


def words(name, size, n):
    """Words of all ranks by the textbook."""
    if name == "one_shot":
        return size * (size - 1) * n
    if name == "multiplying":
        places = max(k for k in range(1, size + 1) if orders.three_smooth(k))
        sent, left = 0, places
        for members in (4, 3, 2):
            while left % members == 0:
                sent, left = sent + members - 1, left // members
        return (2 * (size - places) + places * sent) * n
    if name == "bine":
        return books.total("butterfly", Job(size, n))
    return 2 * (size - 1) * n  # a folded rank sends as much as it saves


@pytest.mark.parametrize("name", FURTHER)
def test_messages_words_and_seconds_of_an_all_reduce_are_those_predicted(name):
    algorithm = COLLECTIVES["allreduce"][name]
    for size in FEW:
        for length in (0, size - 1, 1, EVEN):
            equal = length == EVEN and not EVEN % (size - folds(algorithm, size))
            agree(
                algorithm,
                Job(size, length, registered=False),
                words(name, size, length),
                equal and name != "double_tree",  # whose formula is an upper bound
            )


@pytest.mark.parametrize("name", GATHERS)
def test_all_gathers_and_reduce_scatters_are_right_and_as_predicted(name):
    gather, scatter = (COLLECTIVES[of][name] for of in ("all_gather", "reduce_scatter"))
    for size in SIZES:
        for length in (0, size + 1, EVEN):
            right_chunks(gather.function, scatter.function, size, length)
            if size not in FEW:
                continue
            extra = folds(gather, size)
            parts = [part.stop - part.start for part in chunks(length, size)]
            # a folded rank sends its chunk, and receives all elements
            folded = sum(parts[1 : 2 * extra : 2]) + extra * length
            words = (size - extra - 1) * length + folded
            job = Job(size, length, registered=False)
            exact = not length % size and not extra
            for algorithm in (gather, scatter):
                agree(algorithm, job, words, exact)


def test_messages_of_pat_have_a_bounded_number_of_chunks(monkeypatch):
    monkeypatch.setattr(pat, "MOST", 3)
    assert [len(behind) for _, behind in pat.messages(13)] == [1, 2, 3, 3, 3]
    right_chunks(pat.pat_all_gather, pat.pat_reduce_scatter, 13, 40)
    job = Job(13, 26, registered=False)
    for name in ("all_gather", "reduce_scatter"):
        agree(COLLECTIVES[name]["pat"], job, 12 * 26, True)


def right_chunks(gather, scatter, size, length):
    parts = chunks(length, size)
    want = np.repeat(np.arange(size), [part.stop - part.start for part in parts])

    def program(comm):
        ramp = np.arange(length)
        part = scatter(comm, ramp * (comm.rank + 1))
        assert np.array_equal(part, ramp[parts[comm.rank]] * size * (size + 1) // 2)
        buffer = np.full(length, -1)
        buffer[parts[comm.rank]] = comm.rank
        gather(comm, buffer)
        assert np.array_equal(buffer, want)

    sim.run(program, size)


@pytest.mark.parametrize("sides", [(4, 4), (2, 8), (4, 2, 2)])
def test_swing_on_a_torus_exchanges_along_one_dimension(sides):
    rounds = list(swing(16, 16, sides=sides))
    for entry in rounds:
        source, dest = (np.unravel_index(r, sides) for r in (entry.source, entry.dest))
        moved = [np.any(a != b) for a, b in zip(source, dest, strict=True)]
        assert sum(moved) == 1
    allreduce = partial(swing_allreduce, sides=sides)
    check_results(allreduce, sim.run, [Case(16, n, "int32", "sum") for n in (3, 97)])


@pytest.mark.parametrize("sides", [(2, 3, 3), (3, 6), (1, 18)])
@pytest.mark.parametrize(
    "function, schedule", [(torus_allreduce, torus), (trivance_allreduce, trivance)]
)
def test_dimensions_of_a_torus_are_reduced_one_after_another(function, schedule, sides):
    allreduce = partial(function, sides=sides)
    for length in (5, 18, 5041):
        check_results(allreduce, sim.run, [Case(18, length, "int64", "sum")])
        _, _, sent = books.running(
            allreduce, Job(18, length, registered=False), NETWORK
        )
        rounds = list(schedule(18, length, sides=sides))
        assert books.messages(rounds, 18) == sent
        assert words_sent(rounds) == 2 * 17 * length
    with pytest.raises(BadInput, match="sides with product 4, got"):
        sim.run(lambda comm: function(comm, np.zeros(4), sides=(3, 2)), 4)


@pytest.mark.parametrize("group", [(2, 2), (2, 3), (5, 2), (4, 0), (2, 2, 2)])
def test_a_hierarchical_all_reduce_has_any_number_of_levels(group):
    """Bits, messages, words and seconds are those of one level across another one."""
    allreduce = partial(hierarchical_allreduce, group=group)
    for size in (1, 5, 16):
        first, *further = levels(range(size), group)
        members = [level.members for level in (first, *further)]
        order = books_of_levels(members)
        across = partial(sim.run, network=sim.Uniform(host=1))
        check_order(allreduce, across, size, order)
        for length in (0, 7, EVEN):
            job = Job(size, length, groups=first.sizes, hosts=False)
            job = job._replace(further=tuple((one.sizes, False) for one in further))
            found = Algorithm(allreduce, nested(members), hierarchical_seconds)
            words = 2 * (size - 1) * length
            equal = all(len(set(level.sizes)) == 1 for level in (first, *further))
            agree(found, job, words, equal and length == EVEN)


def books_of_levels(members):
    order = orders.ring
    for groups in reversed(members):
        order = partial(orders.hierarchical, groups=groups, outside=order, hosts=False)
    return order


def test_levels_share_memory_where_their_members_are_on_one_host():
    """Pairs of a host, pairs of pairs, hosts: two of three levels send no messages."""
    net = network("hosts:4x4", 16)

    def program(comm):
        comm = Metered(comm)
        buffer = np.arange(996) * (comm.rank + 1)
        hierarchical_allreduce(comm, buffer, np.add, (2, 0))
        assert np.array_equal(buffer, np.arange(996) * 136)
        return comm.bytes_sent // buffer.itemsize

    assert sum(sim.run(program, 16, net)) == 2 * 3 * 996
    assert [level.hosts for level in levels(net.hosts(16), (2, 0, 4))] == [1, 1, 0]


def binomial_words(size, n):
    return (size - 1) * n


def scatter_words(size, n):
    """A rank's chunk is sent once for every bit of its number, then to all others."""
    parts = [part.stop - part.start for part in chunks(n, size)]
    sent = sum(parts[rank] * rank.bit_count() for rank in range(size))
    return sent + (size - 1) * n


@pytest.mark.parametrize("name", sending("broadcast"))
def test_broadcasts_and_reductions_are_right_and_as_predicted(name):
    copy, add = (COLLECTIVES[of][name] for of in ("broadcast", "reduce"))
    count = scatter_words if name == "scatter_gather" else binomial_words
    for size in SIZES:
        for length in (0, size + 1, EVEN):
            roots = {0, size // 2, size - 1}
            for root in roots if length < 99 else ():
                right_root(copy.function, add.function, size, root, length)
            if size in FEW:
                exact = length == EVEN and name != "double_tree"
                for algorithm in (copy, add):
                    job = Job(size, length, registered=False)
                    agree(algorithm, job, count(size, length), exact)
    assert name == "binomial" or long_pieces(copy, add)


@pytest.mark.parametrize("size", [*range(2, 34), 100, 257])
def test_pieces_on_a_circulant_graph_take_the_least_number_of_rounds(size):
    steps = (size - 1).bit_length()
    for pieces in (1, 2, steps, steps + 1, 2 * steps + 3):
        has = np.zeros((size, pieces), int)
        has[0] = 1
        rounds = CIRCULANT_TREES.plan(size, pieces)
        assert len(rounds) == pieces - 1 + steps
        for source, dest, piece, number, _ in rounds:
            assert len({*source.tolist()}) == len({*dest.tolist()}) == len(source)
            assert has[source, piece].all() and (number == 1).all()
            np.add.at(has, (dest, piece), 1)
        assert (has == 1).all()


def right_root(copy, add, size, root, length):
    def program(comm):
        ramp = np.arange(length)
        buffer = ramp * (comm.rank + 1)
        add(comm, buffer, np.add, root)
        if comm.rank == root:
            assert np.array_equal(buffer, ramp * size * (size + 1) // 2)
        buffer = ramp + 1000 * comm.rank
        copy(comm, buffer, root)
        assert np.array_equal(buffer, ramp + 1000 * root)

    sim.run(program, size, sim.Uniform(eager=0))


def long_pieces(copy, add):
    """Several pieces take at most the predicted seconds and have the right result."""
    right_root(copy.function, add.function, 5, 2, 100_003)
    for algorithm in (copy, add):
        job = Job(5, 100_003, registered=False)
        start, end, sent = books.running(algorithm.function, job, NETWORK)
        assert books.messages(list(algorithm.schedule(5, 100_003)), 5) == sent
        took = end.max() - start.max()
        formula = algorithm.seconds(job, books.RATES)
        assert 0.7 * formula < took <= formula * (1 + 1e-9)
    return True


@pytest.mark.parametrize("name", sending("scan"))
def test_scans_keep_the_order_of_ranks_and_take_what_is_predicted(name):
    """The sign of the last operand, the magnitude of the first: not commutative."""
    full, exclusive = (COLLECTIVES[of][name] for of in ("scan", "exclusive_scan"))
    for size in SIZES:
        for length in (0, 1, 97):
            right_scans(full.function, exclusive.function, size, length)
        if size not in FEW:
            continue
        distances = [1 << k for k in range((size - 1).bit_length())]
        sent = [size - 1] if name == "chain" else [size - d for d in distances]
        for algorithm in (full, exclusive):
            job = Job(size, EVEN, registered=False)
            agree(algorithm, job, sum(sent) * EVEN, True)


def right_scans(full, exclusive, size, length):
    rng = np.random.default_rng(length)
    rows = rng.standard_normal((size, length)) + 0.1

    def program(comm):
        rank, own = comm.rank, rows[comm.rank].copy()
        full(comm, own, np.copysign)
        assert np.array_equal(own, np.copysign(rows[0], rows[rank]))
        own = rows[rank].copy()
        exclusive(comm, own, np.copysign)
        want = np.copysign(rows[0], rows[max(rank, 1) - 1])
        assert np.array_equal(own, want)
        both = [rows[rank].copy(), rows[rank].copy()]
        full(comm, both[0])
        exclusive(comm, both[1])
        np.testing.assert_allclose(both[0], rows[: rank + 1].sum(0))
        np.testing.assert_allclose(both[1], rows[: max(rank, 1)].sum(0))

    sim.run(program, size, sim.Uniform(eager=0))


@pytest.mark.parametrize("size", SIZES)
def test_copies_in_shared_memory_are_right(size):
    sim.run(copies, size)


@pytest.mark.parametrize("name", ("broadcast", "all_gather", "all_to_all"))
def test_copies_in_shared_memory_send_nothing_and_take_their_barriers(name):
    """Virtual ranks copy in no time, so that barriers remain."""
    algorithm, size = COLLECTIVES[name]["shared"], 4
    long, stages = 3 * STAGE // 4, 1 if name == "all_gather" else 3
    for length, registered, barriers in (
        (0, True, 0),
        (SMALL // 4, True, 1),
        (long, True, 2),
        (long, False, stages),
    ):
        job = Job(size, length, registered=registered)
        network = NETWORK._replace(host=0)
        start, end, sent = books.running(algorithm.function, job, network)
        assert not any(sent)
        want = barriers * 2 * books.ALPHA
        assert end.max() - start.max() == pytest.approx(want, rel=1e-9, abs=0)
        assert algorithm.seconds(job, books.RATES) == pytest.approx(want)


@pytest.mark.parametrize("name", sending("all_to_all"))
def test_all_to_alls_transpose_and_take_what_is_predicted(name):
    algorithm = COLLECTIVES["all_to_all"][name]
    for size in SIZES:
        for part in (0, 1, 7):

            def program(comm, size=size, part=part):
                ranks = np.arange(size)
                sent = np.repeat(100 * comm.rank + ranks, part)
                algorithm.function(comm, sent)
                assert np.array_equal(sent, np.repeat(100 * ranks + comm.rank, part))

            sim.run(program, size, sim.Uniform(eager=0))
            moved = travels(name, size)
            if size in FEW:
                job = Job(size, size * part, registered=False)
                agree(algorithm, job, moved * size * part, True)


def travels(name, size):
    """Return the number of parts that a rank sends: the digits of their distances."""
    if name.startswith("bruck"):
        radix = 4 if name == "bruck_4" else 2
        digits = [rank // radix**k % radix for rank in range(size) for k in range(5)]
        return np.count_nonzero(digits)
    if name == "two_step":
        width = min(g for g in range(1, size + 1) if size % g == 0 and g * g >= size)
        return (width - 1) * size // width + (size // width - 1) * width
    return size - 1


def test_groups_of_an_all_to_all_may_be_given():
    """Messages between groups of 2 are those between ranks of one place."""
    rounds = list(two_steps(6, 12, group=2))
    across = [entry for entry in rounds if np.any(entry.source // 2 != entry.dest // 2)]
    assert len(rounds) == 1 + 2
    for entry in across:
        assert np.array_equal(entry.source % 2, entry.dest % 2)
        assert set(entry.nbytes) == {2 * 2 * 4}

    def program(comm):
        sent = 10 * comm.rank + np.arange(6)
        two_step_all_to_all(comm, sent, group=2)
        assert np.array_equal(sent, 10 * np.arange(6) + comm.rank)

    sim.run(program, 6)


def test_an_all_to_all_of_unequal_parts_is_refused():
    def program(comm):
        with pytest.raises(BadInput, match=f"rank {comm.rank}: expected 3 parts of"):
            COLLECTIVES["all_to_all"]["pairwise"].function(comm, np.zeros(7))

    sim.run(program, 3)
