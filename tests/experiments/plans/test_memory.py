import memory
import pytest
from studies.memory import compilation as memory_compiled
from studies.memory import search as memory_search
from studies.memory.report import TABLES
from studies.memory.search import LECTURE, MODELS

from dml.models.memory import fullest_device, parameters, step_bytes
from dml.models.networks.transformer import Shape
from dml.wire.costs.allreduce import Rates
from dml.wire.costs.mesh import Machine
from tests.experiments.run_folder import check_folder, read_rows


def run(out, *argv):
    return memory.main(["memory.py", f"--out={out}", "--nocompiled", *argv])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run for Turing-NLG: its folder, its summary, its rows by table."""
    out = tmp_path_factory.mktemp("run")
    summary = run(out, "--model=turing", "--device_gb=40", "--best=100")
    rows = read_rows(out)
    tables = {name: [row for row in rows if row["table"] == name] for name in TABLES}
    return out, summary, tables


def test_sixteen_bytes_make_the_lectures_table(made):
    rows = {row["model"]: row for row in made[2]["lecture"]}
    assert list(rows) == LECTURE
    for name, row in rows.items():
        # three digits, as the lecture writes: 275.2 is 275
        assert row["sixteen_byte_gigabytes"] == pytest.approx(
            row["published_gigabytes"], rel=1e-3
        )
        assert row["gigabytes"] == 16 * parameters(*MODELS[name][:2]) / 1e9
        assert abs(row["deviation"]) < 0.05
        assert row["verdict"].startswith("agrees")


def test_the_pick_is_beaten_by_no_other_fits_and_divides(made):
    out, summary, tables = made
    shape = MODELS["turing"].shape
    assert len(tables["proposals"]) > 10
    for row in tables["proposals"]:
        assert summary["device_seconds"] <= row["device_seconds"]
        assert row["device_seconds"] == row["devices"] * row["seconds"]
        assert row["gb"] <= 40
        axes = dict(part.split(":") for part in row["mesh"].split(","))
        data, stage, tensor = (
            int(axes.get(name, 1)) for name in ("data", "stage", "tensor")
        )
        assert data * stage * tensor == row["devices"]
        assert shape.heads % tensor == shape.layers % stage == 0
        assert data * row["microbatch"] * row["microbatches"] == 512
    check_folder(out, summary, "memory.svg", "memory.png")


def small(limit):
    workload = MODELS["gpt-mini"]._replace(batch=12)
    rates = Rates(1e-6, 1e-9, 0.0)
    return memory_search.Search(workload, limit, Machine(1e12, rates, rates, 4))


def test_no_plan_of_fewer_devices_fits_and_none_that_fits_is_faster():
    search = small(30e6)
    fewest = memory_search.fewest_devices(search)
    assert fewest > 1
    for mesh in memory_search.meshes(search):
        fitting = [
            plan
            for plan in memory_search.variants(mesh)
            if fullest_device(*search.workload[:2], plan).total <= search.limit
        ]
        # the most sparing way is not overlooked
        assert bool(fitting) == memory_search.can_fit(search, mesh)
        assert not fitting or mesh.devices >= fewest
        for plan in fitting:
            assert plan.batch == 12
    plans = memory_search.candidates(search, fewest)
    times = [one.seconds.total for one in plans]
    assert times == sorted(times)


@pytest.mark.parametrize("remat, layers", ((False, 1), (True, 2)))
def test_a_compiled_step_takes_what_is_predicted(remat, layers):
    shape = Shape(64, 32, layers, 64, 2)
    case = memory_compiled.Case(8, 32, remat)
    options = memory_compiled.KEEP_BARRIERS if remat else {}
    compiled = memory_compiled.lower(shape, case).compile(compiler_options=options)
    expected = step_bytes(shape, True, 8, remat)
    found = memory_compiled.row(compiled, expected)
    assert found["arguments"] == expected.arguments
    # of buffers that XLA joins or rounds up, the formula knows nothing
    assert found["temporary_ratio"] == pytest.approx(1, abs=0.2)
