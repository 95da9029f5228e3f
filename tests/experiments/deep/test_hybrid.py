"""Every mesh learns the same, and one that cannot be is refused before any is tried."""

import hybrid
import pytest

from dml.types import BadInput
from tests.experiments.run_folder import read_summary

SMALL = "--steps=1 --batch=2 --microbatches=2 --blocks=1 --width=8 --heads=2"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DML_DATA", str(tmp_path / "cache"))


def main(folder, *more):
    (folder / "text.txt").write_text("what one part gives, the next one takes. " * 99)
    argv = f"{SMALL} --length=8 --vocabulary=300 --corpus={folder}/text.txt".split()
    return hybrid.main(["hybrid.py", f"--out={folder}/out", *argv, *more])


def test_a_mesh_learns_what_one_device_does(tmp_path):
    (summary,) = main(tmp_path)
    assert summary["verdict"] == "equal"
    assert read_summary(tmp_path / "out")["loss"] == summary["loss"]


def test_what_cannot_be_divided_is_refused_before_any_training(tmp_path):
    with pytest.raises(BadInput, match="3 layers and 9 parts"):
        main(tmp_path, "--pipeline=interleaved", "--rounds=9")
    rows = tmp_path / "out/metrics.jsonl"
    assert not rows.exists() or not rows.read_text()
