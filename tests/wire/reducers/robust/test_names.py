"""Names of robust reducers, and the lines that refuse wrong ones."""

import pytest

from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE
from dml.wire.reducers import names
from dml.wire.reducers.makers import RULES
from dml.wire.reducers.robust.mixing import MIXING
from dml.wire.reducers.robust.slices import EXCHANGES


def test_every_robust_name_has_a_rule():
    assert list(names.ROBUST) == list(RULES)
    assert list(names.MIXING) == list(MIXING)
    assert list(names.EXCHANGES) == list(EXCHANGES)


def test_arguments_and_suffixes_are_read():
    choice = names.parse("centred_clipping:2,0.5@gather+nnm+momentum")
    assert choice == ("centred_clipping", (2, 0.5), "gather", ("nnm", "momentum"))
    assert names.parse("krum") == ("krum", (1,), "", ())


def test_the_least_number_of_terms_is_that_of_rule_and_mixing():
    expected = {"krum:2": 7, "krum:2+bucketing": 13, "bulyan:1": 7, "mean:0": 1}
    for name, least in expected.items():
        assert names.reducer(name, ALLREDUCE["ring"]).least_terms == least


@pytest.mark.parametrize(
    "text, words",
    (
        ("krum:-1", r"expected krum\[:F\], got"),
        ("krum:1.5", r"expected krum\[:F\], got"),
        ("krum:1,2", r"expected krum\[:F\], got"),
        ("centred_clipping:1,0", r"expected centred_clipping\[:F\[,RADIUS\]\], got"),
        ("centred_clipping:1,nan", r"expected centred_clipping\[:F\[,RADIUS\]\], got"),
        ("krum:1+feedback", r"expected krum with \+nnm"),
        ("krum:1+nnm+nnm", "each at most once"),
        ("krum:1@ring", "a transport of scatter, gather"),
        ("median:1+", r"expected median with \+nnm"),
        ("medians:1", "expected a reducer of exact"),
        ("qsgd:4+nnm", r"expected qsgd with \+feedback"),
        ("exact+momentum", r"expected exact with \+feedback"),
    ),
)
def test_wrong_names_are_refused_in_one_line(text, words):
    with pytest.raises(BadInput, match=words):
        names.parse(text)


def test_momentum_and_codes_are_no_means_of_parameters():
    for text in ("exact", "order_free:64", "krum:1+nnm", "./mine.py:make"):
        assert names.is_mean(text)
    for text in ("top_k:0.1+feedback", "median:1+momentum", "vote"):
        assert not names.is_mean(text)
