"""The learner of Ape-X: an update per batch, and params on request of actors.

    Batch k ─► priorities ─► Request k + 2 ─► gradient ─► update ─► Batch k + 1 ...

The request is sent before the gradient is computed, and the replay samples meanwhile.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.actors.apex.messages import END, NO_RANK, Layouts, Links, remaining
from dml.strategies.actors.apex.settings import ApexSettings, Roles
from dml.types import Problem, Replayed, Step
from dml.wire.comm.buffers import layout, pack, unpack


class Learner:
    """Parameters, target network, and reports of actors.

    Args:
      problem: Problem with `play.errors`.
      parameters: Parameters, and the state of the update.
      links: Messages.
      layouts: Dtypes of the messages.
      roles: Roles of ranks.
      settings: Settings of the run.
      timer: Measures the phases.
      version: Number of updates of an earlier run.
    """

    def __init__(
        self,
        problem: Problem,
        parameters: Any,
        links: Links,
        layouts: Layouts,
        *,
        roles: Roles,
        settings: ApexSettings,
        timer: Timer,
        version: int = 0,
    ):
        self.problem, self.parameters = problem, parameters
        self.links, self.layouts = links, layouts
        self.settings, self.timer = settings, timer
        self.like = layout(problem.params)
        self.packed = np.empty(self.like.length, np.float32)
        self.packed_version = -1
        self.replays = range(1, roles.actors.start)
        self.actors, self.last_actor = set(roles.actors), roles.actors[-1]
        self.updates, self.frames = version, 0
        self.episodes: dict[int, int] = {}  # by actor
        self.mean_return: float | None = None  # of the last actor
        self.sizes: dict[int, int] = {}  # of the buffers by replay
        self.losses: list[float] = []  # of the updates of a Step
        self.lags: list[np.ndarray] = []  # of the transitions of these updates
        self.copy_target()

    def run(self, batches: Iterable[Any]) -> Iterator[Step]:
        """Update once per item of batches; yield a Step per `report_every` updates."""
        first = max(1, self.settings.prefetch // len(self.replays))
        for replay in self.replays:
            for _ in range(first):
                self.links.send(self.layouts.request, replay, 0)
        try:
            for _ in batches:
                self.learn(self.next_batch())
                if self.updates % self.settings.report_every == 0:
                    yield self.step()
        except GeneratorExit:  # the caller needs no further Steps
            self.losses.clear()
        with self.timer("wait"):
            self.finish()
        if self.losses:
            yield self.step()

    def next_batch(self) -> int:
        """Answer reports of actors until a batch arrives; return its sender."""
        with self.timer("wait"):
            while (source := self.links.wait(self.actors)) not in self.replays:
                remaining(self.actors)
                if source != NO_RANK:
                    self.answer(source)
        return source

    def learn(self, replay: int) -> None:
        """Update by the batch of a replay; request another batch."""
        layouts, links, settings = self.layouts, self.links, self.settings
        with self.timer("wait"):
            batch = links.receive(layouts.batch, replay)
        params, play = self.parameters.collect(), self.problem.play
        replayed = Replayed(batch["records"], batch["weights"], self.target)
        assert play and play.errors
        with self.timer("gradient"):
            priorities = play.errors(params, replayed)
            links.send(
                layouts.request,
                replay,
                settings.batch,
                keys=batch["keys"],
                priorities=priorities,
            )
            loss, grads = self.problem.gradient(params, replayed)
        with self.timer("update"):
            self.parameters.apply(grads)
        links.comm.platform.work(1)
        self.losses.append(float(loss))
        self.lags.append(self.updates - batch["records"]["version"])
        self.sizes[replay] = int(batch["size"])
        self.updates += 1
        if self.updates % settings.target_every == 0:
            self.copy_target()

    def copy_target(self) -> None:
        """Make the target network a copy of the params."""
        self.target = self.parameters.put(unpack(self.pack(), self.like))

    def pack(self) -> np.ndarray:
        """Return the params as a vector."""
        if self.packed_version != self.updates:
            pack(self.parameters.collect(), self.packed)
            self.packed_version = self.updates
        return self.packed

    def answer(self, actor: int) -> None:
        """Receive a report; send the params."""
        report = self.links.receive(self.layouts.report, actor)
        if report["count"] == END:
            self.actors.discard(actor)
            return
        self.frames += int(report["count"])
        self.episodes[actor] = int(report["episodes"])
        if actor == self.last_actor and report["episodes"]:
            self.mean_return = float(report["mean_return"])
        self.links.send(self.layouts.params, actor, self.updates, params=self.pack())

    def finish(self) -> None:
        """Stop replays and actors; discard batches that are in transit."""
        for replay in self.replays:
            self.links.send(self.layouts.request, replay, END)
        open_replays = set(self.replays)
        while open_replays or self.actors:
            source = self.links.wait(self.actors)
            if source in self.replays:
                batch = self.links.receive(self.layouts.batch, source)
                if batch["count"] == END:
                    open_replays.discard(source)
            elif source != NO_RANK:
                report = self.links.receive(self.layouts.report, source)
                if report["count"] == END:
                    self.actors.discard(source)
                else:
                    self.links.send(self.layouts.params, source, END)
        self.links.close()

    def step(self) -> Step:
        """Return the Step of the updates since the last Step."""
        losses, lags = np.array(self.losses), np.stack(self.lags)
        measures = {
            "frames": self.frames,
            "episodes": sum(self.episodes.values()),
            "replay_size": sum(self.sizes.values()),
            "lag_mean": float(lags.mean()),
            "lag_max": float(lags.max()),
        }
        if self.mean_return is not None:
            measures["mean_return"] = self.mean_return
        self.losses, self.lags, self.frames = [], [], 0
        return Step(
            number=self.updates,
            loss=float(losses.mean()),
            params=self.parameters.collect,
            examples=lags.size,
            seconds=self.timer.lap(),
            words_sent=0,
            measures=measures,
            state=self.parameters.state,
        )
