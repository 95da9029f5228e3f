"""A separate cache folder for each test of the data package."""

import pytest


@pytest.fixture(autouse=True)
def cached(tmp_path, monkeypatch):
    monkeypatch.setenv("DML_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"
