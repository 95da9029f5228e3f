"""Read and check the folder that a command writes."""

import json


def read_rows(folder):
    """Return the rows of metrics.jsonl."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def read_summary(folder):
    """Return the contents of summary.json."""
    return json.loads((folder / "summary.json").read_text())


def check_folder(folder, summary, *names):
    """Assert that summary.json contains the summary, and that no file is empty."""
    assert read_summary(folder).items() >= summary.items()
    for name in (*names, "config.json"):
        assert (folder / name).stat().st_size > 0
