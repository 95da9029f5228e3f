"""A cache of its own for each test of data."""

import pytest


@pytest.fixture(autouse=True)
def cached(tmp_path, monkeypatch):
    monkeypatch.setenv("DML_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"
