"""The algorithms of rl.py, by name."""

from collections.abc import Mapping

from lab import flags

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


def settings(values: flags.FlagValues) -> Settings:
    """Return the settings by flags; 0 or empty: the default of the environment."""
    known = ALGORITHMS[values.algorithm].settings
    names = "copies", "length", "lr", "optimizer"
    changed = {name: values[name].value for name in names if values[name].value}
    if values.widths:
        changed["widths"] = tuple(flags.integers(values, "widths"))
    return known.get(values.environment, Settings())._replace(**changed)
