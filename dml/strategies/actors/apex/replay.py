"""A replay of Ape-X: transitions of its actors in, prioritised batches out.

                            samples
    Insert ─► buffer ─► Batch     │        ╱ ╱      between the lines nothing waits
       └─ Credit                  │      ╱ ╱
                                  │    ╱ ╱          too few samples: credits wait
                                  │  ╱ ╱            too many samples: batches wait
                                  └─────────── transitions
                                 warm-up

The ratio of samples to transitions has bounds for any relative speed of actors and
learner. With i transitions, s samples, the ratio ρ and a warm-up of w transitions, a
batch of B is sent while s + B ≤ ρ (i - w), and a credit while i ≤ w + s / ρ + slack. A
slack of B / ρ or more excludes a deadlock: if batches wait, credits are sent.

Random numbers are a function of the seed, the rank and the number of the batch.
"""

from collections import deque

import numpy as np

from dml.data.replay.buffer import ReplayBuffer
from dml.strategies.actors.apex.messages import END, LEARNER, Layouts, Links
from dml.strategies.actors.apex.settings import ApexSettings

SMALLEST = 1e-6  # added to errors, so that a transition of error 0 can be sampled


class Replay:
    """Storage of transitions for actors and learner, until all of these have ended.

    Args:
      links: Messages.
      layouts: Dtypes of the messages.
      buffer: Buffer of the transitions.
      actors: Actors that send to this rank.
      settings: Settings of the run.
    """

    def __init__(
        self,
        links: Links,
        layouts: Layouts,
        buffer: ReplayBuffer,
        actors: list[int],
        settings: ApexSettings,
    ):
        self.links, self.layouts, self.buffer = links, layouts, buffer
        self.actors, self.ratio = set(actors), settings.ratio
        self.warmup = settings.warmup // settings.replays
        self.batch, self.seed = settings.batch, settings.seed
        transitions = len(actors) * layouts.insert["records"].shape[0]
        self.slack = settings.batch / settings.ratio + transitions
        self.sampled = self.requests = self.batches = 0
        # actors without a credit, in order of inserts
        self.uncredited: deque[int] = deque()
        self.ended = False  # whether the learner has ended

    def serve(self) -> None:
        """Handle messages until the learner and all actors have ended."""
        while self.actors or not self.ended:
            source = self.links.wait(self.actors)
            if source == LEARNER:
                self.receive_request()
            elif source >= 0:
                self.receive_insert(source)
            while self.requests and self.may_sample():
                self.send_batch()
            while self.uncredited and (self.ended or self.may_insert()):
                self.send_credit(self.uncredited.popleft())
        self.links.close()

    def receive_request(self) -> None:
        """Set the priorities of a batch; count the request for another batch."""
        request = self.links.receive(self.layouts.request, LEARNER)
        if request["count"] == END:
            self.ended, self.requests = True, 0
            self.links.send(self.layouts.batch, LEARNER, END)
            return
        count = request["count"]
        keys, priorities = request["keys"][:count], request["priorities"][:count]
        self.buffer.set_priorities(keys, priorities + SMALLEST)
        self.requests += 1

    def receive_insert(self, actor: int) -> None:
        """Add transitions and queue their credit, or remove an actor that has ended."""
        insert = self.links.receive(self.layouts.insert, actor)
        count = insert["count"]
        if count == END:
            self.actors.discard(actor)
            return
        priorities = insert["priorities"][:count] + SMALLEST
        self.buffer.insert(insert["records"][:count], priorities)
        self.uncredited.append(actor)

    def may_sample(self) -> bool:
        """Return whether a batch may be sent."""
        inserted = self.buffer.inserted - self.warmup
        return self.sampled + self.batch <= self.ratio * inserted

    def may_insert(self) -> bool:
        """Return whether a credit may be sent."""
        inserted = self.buffer.inserted - self.warmup
        return inserted <= self.sampled / self.ratio + self.slack

    def send_batch(self) -> None:
        key = np.array([self.seed, self.links.comm.rank], np.uint64)
        random = np.random.Philox(key=key, counter=[0, self.batches, 0, 0])
        keys, records, weights = self.buffer.sample(random.random_raw(self.batch))
        self.requests, self.batches = self.requests - 1, self.batches + 1
        self.sampled += self.batch
        self.links.send(
            self.layouts.batch,
            LEARNER,
            self.batch,
            size=len(self.buffer),
            keys=keys,
            records=records,
            weights=weights,
        )

    def send_credit(self, actor: int) -> None:
        self.links.send(self.layouts.credit, actor, END if self.ended else 1)
