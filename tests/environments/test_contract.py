"""Every built-in environment keeps the contract of `dml.types.acting`."""

import re
from pathlib import Path

import numpy as np
import pytest

from dml import compiled
from dml.environments import catch, draws
from dml.environments.named import ENVIRONMENTS, find
from dml.types import BadInput
from dml.wire.plans import splitmix
from tests.environments.play import STEPS, chooser, trajectory

NAMES = list(ENVIRONMENTS)


@pytest.mark.parametrize("name", NAMES)
def test_a_trajectory_does_not_depend_on_the_other_copies(name):
    environment = find(name)
    choose = chooser(environment.actions)
    seeds = [3, 900, 17, 4, 5, 6, 7, 8, 9, 10, 11]
    together = trajectory(environment, seeds, choose)
    for groups in ([[3], [900]], [[17, 900, 3]]):
        for group in groups:
            apart = trajectory(environment, group, choose)
            for one, other in zip(apart, together, strict=True):
                for n, seed in enumerate(group):
                    assert one[:, n].tobytes() == other[:, seeds.index(seed)].tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_a_step_after_an_end_only_resets(name):
    environment = find(name)
    seeds = range(20)
    seen, rewards, terminated, truncated = trajectory(
        environment, seeds, chooser(environment.actions)
    )
    assert seen.shape == (STEPS + 1, 20, *environment.shape)
    assert seen.dtype == rewards.dtype == np.float32
    ends = terminated | truncated
    assert ends.any()
    resets = np.zeros_like(ends)
    resets[1:] = ends[:-1]
    assert not (rewards[resets].any() or ends[resets].any())
    # the reset ignores its action
    choose = chooser(environment.actions)

    def other(seed, t):
        return 0 if resets[t, seed] else choose(seed, t)

    again = trajectory(environment, seeds, other)
    assert again[0].tobytes() == seen.tobytes()
    assert again[1].tobytes() == rewards.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_reset_starts_the_first_episode_again(name):
    environment = find(name)
    copies = environment.make([1, 2, 3])
    first = copies.reset().copy()
    for _ in range(30):
        copies.step(np.zeros(3, int))
    assert copies.reset().tobytes() == first.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_actions_that_do_not_exist_are_refused(name):
    copies = find(name).make([1, 2])
    copies.reset()
    for wrong in (-1, find(name).actions):
        with pytest.raises(BadInput, match="expected actions of 0 to"):
            copies.step(np.array([0, wrong]))


@pytest.mark.parametrize(
    "name, message",
    [
        ("cartpol", "an environment of cartpole.*got 'cartpol'; pass cartpole"),
        ("xyz", "got 'xyz'; correct the name"),
        ("no_such_module_x:make", "expected a Python file or an installed module"),
    ],
)
def test_names_that_do_not_exist_are_refused_in_a_line(name, message):
    with pytest.raises(BadInput, match=message) as error:
        find(name)
    assert "\n" not in str(error.value)


def test_an_own_environment_is_found_in_a_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from dml.environments.catch import CATCH\n"
        "def make():\n    return CATCH._replace(name='mine')\n"
        "def wrong():\n    return 3\n"
    )
    assert find(f"{file}:make").name == "mine"
    with pytest.raises(BadInput, match="expected an Environment from .* got an int"):
        find(f"{file}:wrong")


def test_the_python_of_the_chapter_runs_and_its_environment_keeps_the_contract(
    tmp_path,
):
    page = Path(__file__).parents[2] / "docs/environments.md"
    chapter, _, _ = page.read_text().partition("## From knobs to the code")
    first, mine = re.findall(r"```python\n(.*?)```", chapter, re.DOTALL)
    exec(first, {"print": lambda *values: None})
    (tmp_path / "mine.py").write_text(mine)
    environment = find(f"{tmp_path / 'mine.py'}:walk")
    seeds = range(20)
    seen, rewards, terminated, truncated = trajectory(
        environment, seeds, chooser(environment.actions)
    )
    assert seen.shape == (STEPS + 1, 20, 1) and rewards.dtype == np.float32
    ends = terminated | truncated
    assert ends.any() and not ends[1:][ends[:-1]].any()
    assert not (rewards[1:][ends[:-1]].any() or seen[2:][ends[:-1]].any())
    assert (abs(seen[1:, :, 0][terminated]) == 3).all()


@pytest.mark.parametrize("name", ["cartpole", "catch"])
def test_episodes_and_seeds_have_different_first_states(name):
    environment = find(name)
    seen, _, terminated, _ = trajectory(environment, [5, 6, 7, 8, 5], lambda seed, t: 0)
    copy, step = np.nonzero(terminated[:-1].T)
    of_episodes = {
        tuple(seen[t + 2, n]) for n, t in zip(copy, step, strict=True) if not n
    }
    assert len(of_episodes) >= 4  # Catch has 5 first states
    assert len({tuple(row) for row in seen[0]}) in (3, 4)
    assert seen[:, 0].tobytes() == seen[:, 4].tobytes()


def test_the_source_hash_of_a_kernel_covers_the_random_numbers():
    name = catch.step.py_func.__qualname__
    assert name.endswith(f".{compiled.source_hash(draws, catch)}")
    sources = set()
    compiled.add_callees(draws, sources)
    assert {draws, splitmix} <= sources
