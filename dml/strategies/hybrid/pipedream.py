"""PipeDream (Narayanan 2019): a pipeline that never drains; stages update at once.

    stage 0   0 1 . . 0 0 2 1 1 3 2 2 4 3 3 ...    a number: a minibatch's forward,
    stage 1   . 0 0 0 1 1 1 2 2 2 3 3 3 4 4 ...    numbers: its backward, then an update

A backward uses the weights that its forward has used: stage k keeps K - k versions, the
last K - 1 - k updates old (its staleness). No bubble but at the ends of the run; the
gradient of minibatch n is that of other weights at each stage.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from dml.data.feed import feed
from dml.metrics.timer import Timer
from dml.strategies.hybrid.flow import flowing
from dml.strategies.hybrid.parts import Part, holding
from dml.strategies.hybrid.programs import Pipeline, divided, everywhere, nbytes
from dml.strategies.hybrid.sums import shared
from dml.types import BadInput, Batch, Examples, Params, Step, Tensor, nothing
from dml.update.dense import Optimizer
from dml.wire.mesh.axes import FED, WHOLE


def pipedream(
    model: Tensor,
    params: Params,
    data: Batch | Examples,
    batches: Iterable[np.ndarray],
    optimizer: Optimizer,
    timer: Timer,
    *,
    axes: Mesh,
    pipeline: Pipeline,
    clip: float = 0.0,
    state: Any = None,
    ahead: int = 2,
    work: Callable[[float], object] = nothing,
) -> Iterator[Step]:
    """Train as hybrid does, a minibatch after another without waiting for updates.

    A Step comes when the loss of its minibatch is known; its params are what stages
    have by then, those of the last one are final.
    """
    mine = divided(model, params, axes, pipeline)
    fits(mine, pipeline, clip)
    held = holding(mine, params, axes, lambda tree: tree)
    kept = holding(mine, params, axes, optimizer.init)
    begin, play, windows = flowing(model, held, kept, pipeline, optimizer)
    now = held.hold(params)
    state = kept.hold(optimizer.init(params) if state is None else state)
    fed = feed(data, batches, lambda index: [index], ahead=ahead)
    queue = Queue(timer.waits("input", fed), axes)
    flow, window, number, step = None, 0, 0, None
    while queue.total is None or window < queue.total + axes.shape["stage"] - 1:
        row = windows.row(window, None)
        queue.fetch(int(windows.touched(row).max()))
        row = windows.row(window, queue.total)
        given = queue.laid(windows.touched(row))
        with timer("gradient"):
            if flow is None:
                flow = begin(now, state, given)
            laid = jax.tree.map(lambda one: everywhere(one, axes, WHOLE), row)
            found = play(flow, laid, given)
            flow, now, state, loss = jax.block_until_ready(found)
            work(1)
        window += 1
        if windows.ends(row):
            if step:
                yield step
            number += 1
            step = Step(
                *(number, float(jax.device_get(loss.addressable_data(0)))),
                partial(held.collect, now),
                queue.examples,
                timer.lap(),
                0,
                measures={"bytes_held": nbytes((flow, now, state))},
                state=partial(kept.collect, state),
            )
    if step:
        last = partial(held.collect, now), partial(kept.collect, state)
        yield step._replace(params=last[0], state=last[1])


def fits(parts: Sequence[Part], pipeline: Pipeline, clip: float) -> None:
    """Refuse what updates at each stage by itself cannot do."""
    both = shared(parts)
    if both:
        raise BadInput(
            "expected stages with params of their own for pipedream, got "
            f"{', '.join(both)} on two of them; pass --pipeline=1f1b"
        )
    if clip:
        raise BadInput(
            f"expected no clip with pipedream, whose stages never have all gradients "
            f"at once, got {clip}; pass --clip=0"
        )
    if pipeline.microbatches > 1:
        raise BadInput(
            "expected whole minibatches with pipedream, got microbatches="
            f"{pipeline.microbatches}; pass --microbatches=1 and a smaller --batch"
        )


class Queue:
    """The minibatches on their way, and how many there are once that is known."""

    def __init__(self, fed: Iterator[Any], axes: Mesh) -> None:
        self.fed, self.axes = fed, axes
        self.known: dict[int, Batch] = {}
        self.fetched, self.examples = 0, 0
        self.total: int | None = None

    def fetch(self, number: int) -> None:
        """Have this minibatch, and all before it; or know that there are fewer."""
        while self.total is None and self.fetched <= number:
            count, parts = next(self.fed, (0, None))
            if parts is None:
                self.total = self.fetched
                return
            replicas = self.axes.shape["data"]
            if count % replicas or self.examples not in (0, count):
                raise BadInput(
                    f"expected minibatches of one size that {replicas} replicas share "
                    f"equally, got {count} examples after {self.examples}; pass another"
                    " --batch, and --steps in place of --epochs"
                )
            self.known[self.fetched], self.examples = parts[0], count
            self.fetched += 1

    def laid(self, numbers: np.ndarray) -> Batch:
        """Give the devices as many minibatches as are ever alive, each in its place."""
        places = self.axes.shape["stage"] + 1
        for old in [n for n in self.known if n < self.fetched - places]:
            del self.known[old]
        some = {n % places: self.known[n] for n in numbers.tolist()}
        any_of = next(iter(self.known.values()))
        row = [some.get(place, any_of) for place in range(places)]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *row)
        return jax.tree.map(lambda leaf: everywhere(leaf, self.axes, FED), stacked)
