"""One little corpus, and every way of training on it, for virtual and real ranks."""

import hashlib
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np

from dml import sim
from dml.data.cooccurrence import RECORD
from dml.metrics.timer import Timer
from dml.models.glove import glove
from dml.strategies.glove.hogwild import hogwild
from dml.strategies.glove.minibatch import minibatch
from dml.strategies.glove.operation import operation
from dml.strategies.glove.rotation import rotation
from dml.strategies.glove.serial import serial
from dml.strategies.glove.server import server
from dml.strategies.glove.synchronous import synchronous
from dml.strategies.glove.tiling import Order, by_row, by_word, tiled
from dml.strategies.server.roles import roles
from dml.wire.messages import ALLREDUCE, Metered
from dml.wire.messages.consistency import Choice, consistency
from dml.wire.rotation import rounds

WORDS, DIM, BLOCKS, ROWS, RATE = 90, 24, 8, 4, 0.05
BSP = consistency("bsp", Choice(), 1)
HOSTS = sim.Uniform(host=2, eager=0)


def corpus(count=1500, words=WORDS, seed=0):
    """Make records whose words are as uneven as those of a language."""
    draws = np.random.default_rng(seed)
    found = np.empty(count, RECORD)
    found["word"] = (draws.zipf(1.2, count) - 1) % words + 1
    found["context"] = (draws.zipf(1.2, count) - 1) % words + 1
    found["value"] = draws.random(count) * 20 + 0.1
    return found


def order(tables, blocks=BLOCKS, seed=0, rows=ROWS):
    cells = [cell for one in rounds(blocks, tables) for task in one for cell in task]
    return Order(cells, blocks, tables, rows, seed, 10.0, 0.75)


class Ended(NamedTuple):
    """What a rank has after its last epoch."""

    losses: tuple[float, ...]
    state: object  # by word; None where it was not collected
    words: tuple[int, ...]  # sent, by epoch


def steps(comm, how, state, found, blocks, rate=RATE, batch=200, allreduce="ring", **k):
    """Begin one of the WAYS on a state whose rows lie as the tiles' do."""
    who = roles(comm.size, colocated=comm.size == 1)
    timer = Timer()
    wire = {"comm": comm, "allreduce": ALLREDUCE[allreduce], "batch": batch}
    among = {"comm": comm, "blocks": blocks}
    gather, reduce = (lambda *_: False), (lambda *_: True)
    ways = {
        "serial": partial(serial),
        "hogwild": partial(hogwild, comm=comm),
        "travel": partial(rotation, travel=True, **among),
        "stay": partial(rotation, travel=False, **among),
        "minibatch": partial(minibatch, batch=batch),
        "operation": partial(operation, **wire),
        "sparse": partial(synchronous, dense=gather, **wire),
        "dense": partial(synchronous, dense=reduce, **wire),
        "server": partial(server, comm=comm, batch=batch, roles=who, rule=BSP),
    }
    return ways[how](state, found, rate, timer, **k)


WAYS = (
    *("serial", "hogwild", "travel", "stay"),
    *("minibatch", "operation", "sparse", "dense", "server"),
)


def train(comm, how, tables=2, epochs=3, start=None, records=None, **k):
    """Train for some epochs; start is a state by word, and the epochs behind it."""
    comm = Metered(comm)
    found, blocks = tiled(
        comm, corpus() if records is None else records, WORDS, order(tables)
    )
    state, behind = start or (glove(WORDS, DIM, tables).init(1), 0)
    state = by_row(state, blocks)
    going = steps(comm, how, state, found, blocks, epoch=behind, **k)
    taken = list(islice(going, epochs))
    assert [step.number - behind for step in taken] == list(range(1, epochs + 1))
    state = taken[-1].params()
    return Ended(
        tuple(step.loss for step in taken),
        state and by_word(state, blocks),
        tuple(step.words_sent for step in taken),
    )


def digest(ended):
    """Name the bits of losses and state."""
    parts = [np.array(ended.losses).tobytes(), *(x.tobytes() for x in ended.state)]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def on_ranks(size, how, network=None, seed=0, **k):
    """Train on virtual ranks; return what each has in the end."""
    found = sim.run(lambda comm: train(comm, how, **k), size, network, seed)
    assert all(one.losses == found[0].losses for one in found)
    return found
