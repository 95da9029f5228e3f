import counts

SOURCE = """
from typing import NamedTuple
from dml import b


class Pair(NamedTuple):
    x: int


def draw(values):
    if values.strategy in ("ring", "gossip"):
        return 1
    match values.strategy:
        case "gossip":
            return "kfac"
"""


def test_counts_of_a_checkout(tmp_path):
    for name, text in {
        "dml/__init__.py": "",
        "dml/a.py": "",
        "dml/b.py": "from dml.a import x\n",
        "dml/strategies/gossip.py": "",
        "experiments/linear.py": SOURCE,
        "tests/test_a.py": "\n\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = counts.counts_of(tmp_path)
    assert found["dml: files"] == 4
    assert found["tests: lines"] == 2
    assert found["functions"] == found["functions named draw"] == 1
    assert found["functions of at most 5 lines"] == "0%"
    assert found["NamedTuples"] == 1
    assert found["comparisons with a module of strategies"] == 2
    assert found["files with the word kfac"] == 1
    # dml, dml.b and, by it, dml.a
    assert found["experiments/linear.py: modules it imports"] == 3
