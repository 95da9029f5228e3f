"""The algorithms of rl.py, by name."""

from collections.abc import Mapping, Sequence

from lab import flags, readers

from studies.rl import by_actors, by_replay, by_servers, traffic
from studies.rl.contract import Algorithm
from studies.rl.settings import EPISODES, REPLAY, ROLLOUTS, Settings

ALGORITHMS: Mapping[str, Algorithm] = {
    "a3c": Algorithm(by_servers.problem, by_servers.train, EPISODES),
    "impala": Algorithm(
        by_actors.problem, by_actors.train, ROLLOUTS, True, traffic.impala_words
    ),
    "seed": Algorithm(
        by_actors.problem, by_actors.train, ROLLOUTS, True, traffic.seed_words
    ),
    "apex": Algorithm(by_replay.problem, by_replay.train, REPLAY, True),
}

RESUMABLE = [name for name, known in ALGORITHMS.items() if known.resumes]
READERS: Mapping[str, Sequence[str]] = {  # algorithms, by flag that others do not read
    **dict.fromkeys(("correction", "lag", "learners", "shards"), ("impala", "seed")),
    **dict.fromkeys(("allreduce", "reduce"), ("impala", "seed")),
    "length": ("impala", "seed", "apex"),
    **dict.fromkeys(("servers", "consistency", "staleness"), ("a3c",)),
    "batch": ("impala", "seed", "apex"),
    "inference": ("seed",),
    "replays": ("apex",),
    **dict.fromkeys(("resume", "save_every"), RESUMABLE),
}


def check(values: flags.FlagValues) -> None:
    """Raise BadInput if a flag is passed that the algorithm does not read."""
    readers.check(values, "algorithm", READERS)
    readers.check_consistency(values)


def settings(values: flags.FlagValues) -> Settings:
    """Return the settings by flags; 0 or empty: the default of the environment."""
    check(values)
    known = ALGORITHMS[values.algorithm].settings
    names = "copies", "length", "lr", "optimizer"
    changed = {name: values[name].value for name in names if values[name].value}
    if values.widths:
        changed["widths"] = tuple(flags.integers(values, "widths"))
    return known.get(values.environment, Settings())._replace(**changed)
