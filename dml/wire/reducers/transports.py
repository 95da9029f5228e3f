"""Transports of codes: how the decoded terms of all ranks are summed.

    gather      every rank sends its code to all; all decode p codes
                (p-1)·c bytes per rank for a code of c bytes; 1 rounding
    scatter     rank r receives the codes of chunk r, adds them, and sends the code of
                the sum to all ranks: 2(p-1)/p·c bytes, 2 roundings
    two_level   the same inside hosts, then across hosts: as many bytes, 3 roundings
                (ZeRO++, Wang 2023)
    ring        as the ring all-reduce; a hop sends the code of a partial sum:
                2(p-1)/p·c bytes, p roundings

A rank that encodes values writes the error, values minus decoded values, to `lost`. So
the errors of all ranks are exactly what the sum lacks. All ranks, also the one that
encoded it, decode the same code of a sum, so that replicas remain equal.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np

from dml.types import BadInput, Comm
from dml.wire.collectives.all_gather_parts import all_gather_parts
from dml.wire.collectives.hierarchical import communicators
from dml.wire.collectives.rates import machine_rates
from dml.wire.collectives.ring import ring_allreduce, ring_gather
from dml.wire.comm.once import once
from dml.wire.comm.tags import Tag
from dml.wire.costs import codes as cost
from dml.wire.plans.topology import chunks, groups
from dml.wire.reducers.codecs import BadCode, Codec, decode
from dml.wire.reducers.codecs.hashing import seeds_from

Lost = np.ndarray | None
# (codec, comm, term, lost, seed) -> None. The term receives the sum over ranks; `lost`,
# which is zero, receives the part that this rank's codes lack; None: it is not needed.
Transport = Callable[[Codec, Comm, np.ndarray, Lost, int], None]


def gather(codec: Codec, comm: Comm, term: np.ndarray, lost: Lost, seed: int) -> None:
    """Sum the codes of all ranks; (p-1) rounds, (p-1)c bytes sent by each rank."""
    code = encode(codec, term, lost, seed)
    lengths = np.full(comm.size, len(code))
    term[:] = 0
    # order matters: the same on all ranks, so that replicas are equal
    codes = np.split(all_gather_parts(comm, code, lengths), comm.size)
    for source, each in enumerate(codes):
        add(codec, each, term, f"rank {source} of {comm.size}")


def scatter(codec: Codec, comm: Comm, term: np.ndarray, lost: Lost, seed: int) -> None:
    """Sum the codes of each chunk at its owner; gather the codes of the sums.

    2(p-1) rounds; the bytes of the codes of the p-1 other chunks, and p-1 times those
    of a chunk.
    """
    sum_in_stages(codec, [(comm, comm.size)], term, lost, seed)


def two_level(
    codec: Codec, comm: Comm, term: np.ndarray, lost: Lost, seed: int
) -> None:
    """Scatter inside hosts, then across hosts; gather in the opposite order.

    [0 1 2 3] [4 5 6 7]     inside: rank l of a host adds chunk l of its host
     │ │ │ │   │ │ │ │      across: host h adds part h of chunk l
    """
    inside, across, owners = communicators(comm, 0, ring_allreduce)
    hosts = len(groups(comm.platform.hosts()))
    sum_in_stages(codec, [(inside, owners), (across, hosts)], term, lost, seed)


def ring(codec: Codec, comm: Comm, term: np.ndarray, lost: Lost, seed: int) -> None:
    """Sum codes of partial sums around the ring; gather the codes of the sums.

    2(p-1) rounds; the bytes of the codes of all chunks but one, twice.
    """
    rank, size, seeds = comm.rank, comm.size, seeds_from(seed)
    right, left = (rank + 1) % size, (rank - 1) % size
    parts = chunks(len(term), size)
    for i in range(size - 1):
        part, target = parts[(rank - i) % size], parts[(rank - i - 1) % size]
        code = encode(codec, term[part], part_of(lost, part), next(seeds))
        incoming = np.empty(codec.nbytes(target.stop - target.start), np.uint8)
        comm.Sendrecv(code, right, Tag.RING, incoming, left, Tag.RING)
        add(codec, incoming, term[target], f"rank {left} of {size}")
    own = parts[right]  # rank r has the sum of chunk r+1
    code = encode(codec, term[own], part_of(lost, own), next(seeds))
    lengths = [part.stop - part.start for part in parts]
    codes = np.empty(sum(map(codec.nbytes, lengths)), np.uint8)
    edges = accumulate(map(codec.nbytes, lengths), initial=0)
    places = [slice(start, stop) for start, stop in pairwise(edges)]
    codes[places[right]] = code
    ring_gather(comm, codes, places)
    write_decoded(codec, codes, lengths, term)


TRANSPORTS: dict[str, Transport] = {
    "gather": gather,
    "scatter": scatter,
    "two_level": two_level,
    "ring": ring,
}


def chosen_transport(codec: Codec, comm: Comm, size: int) -> str:
    """Return the name of the transport with the least predicted time.

    Sparse codes are gathered: the code of a sum would drop what other ranks selected.

    Args:
      codec: The codec.
      comm: The ranks; collective at the first call.
      size: Number of elements.
    """
    if codec.sparse or comm.size == 1:
        return "gather"
    rates = machine_rates(comm)

    def choose() -> str:
        members = groups(comm.platform.hosts())
        job = cost.Job(comm.size, size, codec.nbytes, tuple(map(len, members)))
        return cost.choose(job, rates)

    return once(comm, "transport", (codec.nbytes, size), choose)


def automatic(
    codec: Codec, comm: Comm, term: np.ndarray, lost: Lost, seed: int
) -> None:
    """Sum by the transport with the least predicted time."""
    name = chosen_transport(codec, comm, len(term))
    TRANSPORTS[name](codec, comm, term, lost, seed)


Stage = tuple[Comm, int]  # a communicator, and the number of its ranks with a chunk


def sum_in_stages(
    codec: Codec, stages: Sequence[Stage], term: np.ndarray, lost: Lost, seed: int
) -> None:
    """Scatter chunks, then chunks of chunks; gather their sums in the opposite order.

    Args:
      codec: The codec.
      stages: Stages of the scatter.
      term: This rank's term, which receives the sum.
      lost: Receives this rank's errors.
      seed: Seed of this rank's codes.
    """
    code = code_of_sum(codec, stages, term, lost, seeds_from(seed))
    write_decoded(codec, code, leaves(len(term), stages), term)


def code_of_sum(
    codec: Codec,
    stages: Sequence[Stage],
    values: np.ndarray,
    lost: Lost,
    seeds: Iterator[int],
) -> np.ndarray:
    """Return the codes of the sum's leaves, concatenated; equal on all ranks."""
    if not stages:
        return encode(codec, values, lost, next(seeds))
    (comm, _), *later = stages
    parts = parts_of(len(values), stages[0])
    own = parts[comm.rank]
    for k in range(1, comm.size):
        dest, source = (comm.rank + k) % comm.size, (comm.rank - k) % comm.size
        part = parts[dest]
        code = encode(codec, values[part], part_of(lost, part), next(seeds))
        incoming = np.empty(codec.nbytes(own.stop - own.start), np.uint8)
        comm.Sendrecv(code, dest, Tag.ALL_TO_ALL, incoming, source, Tag.ALL_TO_ALL)
        add(codec, incoming, values[own], f"rank {source} of {comm.size}")
    code = code_of_sum(codec, later, values[own], part_of(lost, own), seeds)
    lengths = [
        sum(map(codec.nbytes, leaves(part.stop - part.start, later))) for part in parts
    ]
    return all_gather_parts(comm, code, np.array(lengths))


def parts_of(length: int, stage: Stage) -> tuple[slice, ...]:
    """Return the chunk of each rank of a stage; some may be empty."""
    comm, owners = stage
    none = (slice(length, length),) * (comm.size - owners)
    return (chunks(length, owners) + none)[: comm.size]


def leaves(length: int, stages: Sequence[Stage]) -> list[int]:
    """Return the lengths of the chunks of chunks after all stages."""
    lengths = [length]
    for _, owners in stages:
        lengths = [
            part.stop - part.start
            for whole in lengths
            for part in chunks(whole, owners)
        ]
    return lengths


def write_decoded(
    codec: Codec, codes: np.ndarray, lengths: Sequence[int], values: np.ndarray
) -> None:
    """Replace values by the decoded values of concatenated codes.

    Args:
      codec: The codec.
      codes: One code after another.
      lengths: Number of elements of each code.
      values: Receives the values.
    """
    values[:] = 0
    edges = accumulate(lengths, initial=0)
    code_edges = accumulate(map(codec.nbytes, lengths), initial=0)
    both = zip(pairwise(edges), pairwise(code_edges), strict=True)
    for n, ((start, stop), (code_start, code_stop)) in enumerate(both):
        code, part = codes[code_start:code_stop], values[start:stop]
        add(codec, code, part, f"the owner of chunk {n}")


def encode(codec: Codec, values: np.ndarray, lost: Lost, seed: int) -> np.ndarray:
    """Return the code of values; write the error to `lost`."""
    code = np.empty(codec.nbytes(len(values)), np.uint8)
    if len(values):
        codec.encode(values, code, seed)
    if lost is not None:
        np.subtract(values, decode(codec, code, len(values)), out=lost)
    return code


def add(codec: Codec, code: np.ndarray, total: np.ndarray, source: str) -> None:
    """Add the values of a code, which may be empty; raise BadInput for a bad code.

    Args:
      codec: The codec.
      code: The code.
      total: Receives the sum.
      source: The rank that sent the code, for the error.
    """
    try:
        if len(total):
            codec.add(code, total)
    except BadCode as error:
        raise BadInput(
            f"expected a code of {source} with {error}; start all ranks with the same "
            "reducer and model (--check of commands compares their buffers)"
        ) from error


def part_of(lost: Lost, part: slice) -> Lost:
    return None if lost is None else lost[part]
