"""Hybrid in a process of its own, since its devices are counted once and for all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.strategies.hybrid_main import CHECKS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def said():
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.strategies.hybrid_main"],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_on_eight_devices(said, name):
    assert f"{name}: ok\n" in said, said
