"""The rollout that a learner of SEED assembles from the messages of an actor.

observations ─► begin │ act ─► add │ act ─► add │ ... T times: complete
                        actions  outcome
"""

import numpy as np

from dml.types import Play


def report_dtype(play: Play) -> np.dtype:
    """Return the dtype of an actor's message: the outcome of a step of its copies."""
    copies = play.copies
    return np.dtype(
        [
            ("observations", np.float32, (copies, *play.environment.shape)),
            ("rewards", np.float32, (copies,)),
            ("terminated", np.bool_, (copies,)),
            ("truncated", np.bool_, (copies,)),
        ],
        align=True,
    )


class Assembly:
    """The rollout of one actor, which the learner assembles.

    Attributes:
      record: The rollout.
      t: Number of its steps that have actions.
      steps: Number of steps of the actor in earlier rollouts.
      number: Number of the rollout.
      observations: Observations of the next step, NxO.
      ended: Whether the last step ended an episode, N.
    """

    def __init__(self, play: Play) -> None:
        self.length, self.dtype = play.length, play.dtype
        self.ended = np.zeros(play.copies, np.bool_)
        self.t, self.steps, self.number = 0, 0, -1
        self.observations = np.empty(0)

    def begin(self, actor: int) -> None:
        """Begin the next rollout."""
        self.bytes = np.zeros(self.dtype.itemsize, np.uint8)
        self.record = self.bytes.view(self.dtype)[0]
        self.steps += self.t
        self.t, self.number = 0, self.number + 1
        self.record["actor"], self.record["number"] = actor, self.number
        self.record["observations"][0] = self.observations

    def act(self, actions: np.ndarray, logits: np.ndarray, version: int) -> None:
        """Write the actions of the next step."""
        record, t = self.record, self.t
        record["actions"][t], record["logits"][t] = actions, logits
        record["versions"][t], record["resets"][t] = version, self.ended
        self.t += 1

    def add(self, report: np.ndarray) -> bool:
        """Write the outcome of a step; return whether the rollout is complete."""
        self.observations = report["observations"]
        if not self.t:  # the actor has reset its environments
            return False
        for name in ("rewards", "terminated", "truncated"):
            self.record[name][self.t - 1] = report[name]
        self.record["observations"][self.t] = self.observations
        self.ended = report["terminated"] | report["truncated"]
        return self.t == self.length
