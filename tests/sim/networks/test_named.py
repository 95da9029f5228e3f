"""From a text to a network: every form, the smallest that fits, every refusal."""

import subprocess
import sys

import pytest

from dml.sim.networks.dragonfly import Dragonfly
from dml.sim.networks.fabric import Rates
from dml.sim.networks.fat_tree import FatTree
from dml.sim.networks.hosts import Hosts
from dml.sim.networks.named import NETWORKS, network, texts
from dml.sim.networks.slim_fly import SlimFly
from dml.sim.networks.torus import Torus
from dml.sim.networks.uniform import Uniform
from dml.types import BadInput

FAST = Rates(1e-7, 1e-10, 1e-11, hop=1e-8, link=1e-10)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-6,2e-9,3e-10", Uniform(1e-6, 2e-9, 3e-10)),
        ("0,.5,1", Uniform(0.0, 0.5, 1.0)),
        ("uniform:1e-6,2e-9,3e-10", Uniform(1e-6, 2e-9, 3e-10)),
        ("uniform@1e-6,2e-9,3e-10", Uniform(1e-6, 2e-9, 3e-10)),
        ("uniform", Uniform()),
        ("hosts:16x8", Hosts(16, 8)),
        ("hosts", Hosts(2, 8)),
        ("ring", Torus((9,))),
        ("ring:12", Torus((12,))),
        ("torus:16x16", Torus((16, 16))),
        ("torus:3x4x5x6", Torus((3, 4, 5, 6))),
        ("fat_tree:16", FatTree(16)),
        ("dragonfly:4", Dragonfly(4)),
        ("slim_fly:11", SlimFly(11)),
        ("slim_fly:5x2", SlimFly(5, 2)),
        ("torus:8x8@1e-7,1e-10,1e-11", Torus((8, 8), FAST)),
        ("fat_tree@1e-7,1e-10,1e-11", FatTree(4, FAST)),
        ("hosts:3x4@1e-7,1e-10,1e-11", Hosts(3, 4, FAST, (1e-7 / 5, 1e-10 / 10))),
    ],
)
def test_a_text_is_its_network(text, expected):
    assert network(text, 9) == expected
    assert type(network(text, 9)) is type(expected)
    if "@" not in text and isinstance(expected, Hosts):
        assert network(text, 9).inside == pytest.approx(expected.inside, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "smaller"),
    [
        ("fat_tree", lambda made: FatTree(made.k - 2)),
        ("dragonfly", lambda made: Dragonfly(made.h - 1)),
        ("hosts", lambda made: Hosts(made.number - 1, made.ranks)),
        ("ring", lambda made: Torus((made.dims[0] - 1,))),
    ],
)
def test_a_name_alone_is_the_smallest_that_fits(name, smaller):
    for size in (1, 2, 16, 17, 100, 1000, 65536, 1 << 20):
        made = network(name, size)
        assert made.capacity >= size > smaller(made).capacity


def test_a_torus_alone_is_nearly_a_cube():
    sizes = 1, 7, 8, 3, 421, 1000, 65536, 1 << 20
    assert [network("torus", size).dims for size in sizes] == [
        *((1, 1, 1), (2, 2, 2), (2, 2, 2), (1, 2, 2), (6, 8, 9)),
        *((10, 10, 10), (32, 32, 64), (64, 128, 128)),
    ]


def test_a_slim_fly_alone_is_the_smallest_that_fits():
    found = [network("slim_fly", size).q for size in (1, 54, 55, 200, 201, 10_000)]
    assert found == [3, 3, 4, 5, 7, 19]


def test_a_graph_comes_from_its_file(tmp_path):
    path = tmp_path / "a,b:c"
    path.write_text("0 1\n1 2\n")
    assert network(f"graph:{path}", 3).capacity == 3
    made = network(f"graph:{path},4@1e-7,1e-10,1e-11", 12)
    assert made.capacity == 12 and made.rates == FAST


@pytest.mark.parametrize(
    "text",
    [
        *("", "torsu", "torus:", "Torus:4", ":", "@", "@1,1,1"),
        *("torus:4x", "torus:0x4", "torus:4x-4", "torus:4.5", "torus:4,4"),
        *("torus:4x4@1e-6", "torus:4x4@1,2,x", "torus:4x4@1,2,-3", "torus@1,2,nan"),
        *("torus@", "torus:4x4@1,2,3,4", "torus:4x4@inf,1,1"),
        *("torus:1x1x1x1x1x1x1x1x99", "torus:99999999999999999999"),
        *("ring:4x4", "ring:x", "hosts:4", "hosts:0x4", "hosts:2x2x2"),
        *("fat_tree:5", "fat_tree:0", "fat_tree:4x4", "fat_tree:²", "fat_tree:k"),
        *("dragonfly:0", "dragonfly:-1", "dragonfly:2x2"),
        *("slim_fly:6", "slim_fly:15", "slim_fly:0", "slim_fly:5x0", "slim_fly:5x5x5"),
        *("graph", "graph:", "graph:missing", "graph:missing,0"),
        *("1e-6,1e-9", "1e-6,1e-9,x", "-1,1,1", "1,1,nan", "uniform:1,1"),
        *("uniform:1,1,1@1,1,1", "fat_tree:2000", "slim_fly:5x9999999"),
    ],
)
def test_a_bad_text_is_refused_in_one_line_with_what_to_do(text):
    with pytest.raises(BadInput) as error:
        network(text, 1)
    message = str(error.value)
    assert message.startswith("expected ") and "\n" not in message
    assert ", got " in message and "; " in message
    if text == "torsu":
        assert all(name in message for name in NETWORKS)


@pytest.mark.parametrize(
    ("text", "size", "why"),
    [
        ("torus:2x2", 99, "expected 1 to 4 .* got 99; pass a larger"),
        ("fat_tree:2", 99, "expected 1 to 2 .* got 99; pass a larger"),
        ("slim_fly:3x1", 99, "expected 1 to 18 .* got 99; pass a larger"),
        ("ring:3", 99, "expected 1 to 3 .* got 99; pass a larger"),
        ("slim_fly", 200_000, "expected 1 to 177674 .* got 200000; pass"),
        ("slim_fly:15", 4, "got q=15; the nearest are 11, 13, 16, 17"),
        ("torus:4096x4097", 1, "expected at most 16777216 ranks"),
        ("torus", 0, "at least 1 rank, got 0"),
        ("uniform", 0, "at least 1 rank, got 0"),
    ],
)
def test_a_network_that_does_not_fit_is_refused(text, size, why):
    with pytest.raises(BadInput, match=why):
        network(text, size)


def test_networks_with_rates_are_separated_by_commas_and_semicolons():
    rates = "1e-6,1e-9,0"
    several = [
        rates,
        "torus",
        f"torus@{rates}",
        f"hosts:2x4@{rates}",
        f"uniform:{rates}",
        "fat_tree:4",
    ]
    assert texts(",".join([*several, "torsu"])) == [*several[:-1], "fat_tree:4,torsu"]
    assert texts(",".join(several)) == texts(";".join(several)) == several
    assert texts(f"graph:a,2,ring;{rates}") == ["graph:a,2", "ring", rates]


def test_the_virtual_world_does_not_load_the_networks_that_it_does_not_use():
    code = "import sys, dml.sim; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
