"""Every built-in environment keeps the contract of `dml.types.acting`."""

import numpy as np
import pytest

from dml.environments.named import ENVIRONMENTS, find
from dml.types import BadInput
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
    with pytest.raises(BadInput, match="expected a Environment from .* got a int"):
        find(f"{file}:wrong")
