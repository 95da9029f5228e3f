"""An actor of Ape-X: ε-greedy actions, and transitions of n steps.

    window   n old steps │ T new steps
             ├────── T ──────┤           first steps of transitions

    params ─► T steps ─► transitions ─► priorities by Q of the actor ─► replay

The window has the n steps that follow each first step. Actor i = 0, ..., N - 1 has
ε_i = ε^(1 + 7 i / (N - 1)) with ε = 0.4 (Horgan 2018): the first actor explores, the
last actor is almost greedy.
"""

from collections import deque

import numpy as np

from dml.data.replay.n_step import transitions
from dml.models.policies.actor import Actor
from dml.strategies.actors.apex.messages import END, LEARNER, Layouts, Links
from dml.strategies.actors.apex.settings import ApexSettings
from dml.types import Params, Play, Replayed, rollout_dtype
from dml.wire.comm.buffers import TreeLayout, unpack

EPISODES = 20  # number of the last episodes in the mean return of an actor


def exploration(index: int, actors: int, epsilon: float, spread: float) -> float:
    """Return ε_i = ε^(1 + spread i / (N - 1)).

    Args:
      index: i, from 0 on.
      actors: N; the exponent of a single actor is the middle of the range.
      epsilon: ε.
      spread: Spread of the exponents; 0: all actors have ε.
    """
    share = index / (actors - 1) if actors > 1 else 0.5
    return float(epsilon ** (1 + spread * share))


def explore(
    values: np.ndarray, greedy: np.ndarray, draws: np.ndarray, epsilon: float
) -> np.ndarray:
    """Replace greedy actions by uniformly random ones where a draw is below ε.

    A draw below ε, divided by ε, is uniform in [0, 1), and selects the random action.

    Args:
      values: Action values, NxA.
      greedy: Greedy actions, N.
      draws: Uniform numbers in [0, 1), N.
      epsilon: ε.
    """
    actions = values.shape[1]
    random = np.minimum(draws * (actions / max(epsilon, 1e-30)), actions - 1)
    return np.where(draws < epsilon, random.astype(np.int64), greedy)


class Player:
    """An actor, and the last T + n steps of its environments.

    Args:
      play: Acting part of the problem.
      rank: Rank of the actor.
      epsilon: ε.
      settings: Settings of the run.

    Attributes:
      window: The steps, as one rollout.
      frames: Number of steps so far that are not resets.
      episodes: Number of episodes that have ended.
    """

    def __init__(self, play: Play, rank: int, epsilon: float, settings: ApexSettings):
        self.play, self.epsilon, self.settings = play, epsilon, settings
        self.actor = Actor(play, settings.seed, rank)
        dtype = rollout_dtype(
            play.environment, play.copies, settings.n_step + play.length
        )
        self.window = np.zeros(1, dtype)[0]
        self.window["actor"] = rank
        self.window["resets"] = True  # steps before the first episode
        self.window["observations"][-1] = self.actor.observations
        self.last_returns = deque[float](maxlen=EPISODES)
        self.frames = self.episodes = 0

    def transitions(self, params: Params, version: int) -> np.ndarray:
        """Play T steps with params of a version; return the complete transitions."""
        settings, window, length = self.settings, self.window, self.play.length
        for name in window.dtype.names:
            if window[name].ndim:
                kept = len(window[name]) - length
                window[name][:kept] = window[name][length:].copy()
        for t in range(settings.n_step, settings.n_step + length):
            draws = self.actor.draws()
            greedy, values = self.play.act(params, self.actor.observations, draws)
            actions = explore(values, greedy, draws, self.epsilon)
            self.actor.step(window, t, actions, values, version)
        self.frames += int((~window["resets"][settings.n_step :]).sum())
        self.episodes += len(self.actor.returns)
        self.last_returns.extend(self.actor.returns)
        self.actor.returns.clear()
        return transitions(window, settings.n_step, settings.discount, self.play.dtype)


class Acting:
    """Play until the learner or the replay ends the run.

    Args:
      links: Messages.
      layouts: Dtypes of the messages.
      player: Environments and window of this actor.
      replay: Rank that receives the transitions.
      like: Layout of the params.
      settings: Settings of the run.
    """

    def __init__(
        self,
        links: Links,
        layouts: Layouts,
        player: Player,
        replay: int,
        like: TreeLayout,
        settings: ApexSettings,
    ):
        self.links, self.layouts, self.player = links, layouts, player
        self.replay, self.like, self.settings = replay, like, settings
        self.uncredited, self.stopped = 0, False
        self.version = self.reported = 0
        self.params: Params = None

    def run(self) -> None:
        """Send transitions until the run ends."""
        player, settings, block = self.player, self.settings, 0
        while not self.stopped:
            if block % settings.pull_every == 0:
                self.pull()
            if not self.stopped:
                self.links.comm.platform.work(1)
                self.send(player.transitions(self.params, self.version))
            block += 1
        while self.uncredited:
            self.receive_credit()
        self.links.send(self.layouts.insert, self.replay, END)
        self.links.send(self.layouts.report, LEARNER, END)
        self.links.close()

    def pull(self) -> None:
        """Report to the learner, and receive its params."""
        player = self.player
        self.links.send(
            self.layouts.report,
            LEARNER,
            player.frames - self.reported,
            episodes=player.episodes,
            mean_return=np.mean(player.last_returns) if player.last_returns else 0.0,
        )
        self.reported = player.frames
        answer = self.links.receive(self.layouts.params, LEARNER)
        if answer["count"] == END:
            self.stopped = True
            return
        self.version = int(answer["count"])
        self.params = unpack(answer["params"], self.like)

    def send(self, records: np.ndarray) -> None:
        """Send transitions and their priorities; first wait for a credit if needed."""
        while self.uncredited == self.settings.window:
            self.receive_credit()
        self.uncredited += 1
        self.links.send(
            self.layouts.insert,
            self.replay,
            len(records),
            records=records,
            priorities=self.priorities(records),
        )

    def priorities(self, records: np.ndarray) -> np.ndarray:
        """Return the errors of transitions by the params of this actor.

        Transitions are padded to the length of a message, so that the function is
        compiled once.
        """
        padded = np.zeros(self.layouts.insert["records"].shape, records.dtype)
        padded[: len(records)] = records
        weights = np.ones(len(padded), np.float32)
        batch = Replayed(padded, weights, self.params)
        errors = self.player.play.errors
        assert errors is not None
        return errors(self.params, batch)[: len(records)]

    def receive_credit(self) -> None:
        credit = self.links.receive(self.layouts.credit, self.replay)
        self.uncredited -= 1
        self.stopped |= bool(credit["count"] == END)
