import random

import pipeline
import pytest
from lab import compiling
from studies.pipeline import virtual as pipeline_virtual
from studies.pipeline.tables import TABLES, TRANSFORMER
from studies.pipeline.virtual import CUTS, Layers, completion_time, speed_up

from dml.models import layer_costs
from dml.wire.plans.pipeline import facts
from dml.wire.plans.pipeline.schedules import SCHEDULES, make
from dml.wire.plans.pipeline.stages import imbalance
from tests.commands import COMPILED, PYTHON, command
from tests.experiments.run_folder import check_folder, read_rows, read_summary

FREE = "0,0,0"
TICK = 2.0**-10  # sums of it are exact
EQUAL = Layers([3 * TICK] * 16, 1 << 20, FREE)  # a backward is two forwards
SIZES = [(1, 1), (2, 1), (2, 32), (4, 3), (4, 8), (8, 4), (8, 32)]


@pytest.mark.parametrize("stages, microbatches", SIZES)
def test_equal_stages_on_a_free_network_take_the_seconds_of_the_formula(
    stages, microbatches
):
    formula = stages * microbatches / (microbatches + stages - 1)
    for name in ("gpipe", "1f1b", "pipedream"):
        assert speed_up(make(name, stages, microbatches), EQUAL) == formula
    for name, rounds in (("zb_h1", 1), ("zb_h2", 1), ("zb_v", 2)):
        # 16 layers are divided exactly, so times are those of the ticks
        schedule = make(name, stages, microbatches, rounds)
        found = speed_up(schedule, EQUAL)
        assert found == pytest.approx(facts.speed_up(schedule), rel=1e-12)


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("stages, microbatches", SIZES)
def test_rounds_shrink_the_bubble_as_in_the_schedule(stages, microbatches, rounds):
    schedule = make("interleaved", stages, microbatches, rounds)
    found, formula = speed_up(schedule, EQUAL), facts.speed_up(schedule)
    if microbatches % stages and rounds > 1:
        # nobody waits for the ticks that a last group of fewer leaves idle
        assert formula <= found < stages
        assert (found > formula) == (microbatches > 1)
    else:
        assert found == pytest.approx(formula, rel=1e-12)  # sums of floats


@pytest.mark.parametrize("nbytes", [1 << 10, 1 << 20])  # buffered, and not
def test_messages_travel_while_stages_compute(nbytes):
    takes = TICK / 4
    slow = EQUAL._replace(nbytes=nbytes, network=f"{takes / 2},{takes / 2 / nbytes},0")
    for stages, microbatches in SIZES:
        schedule = make("gpipe", stages, microbatches)
        seconds = [3 * TICK] * stages
        free = completion_time(schedule, seconds, EQUAL)
        # only the first forward and the last backward are waited for
        expected = pytest.approx(free + 2 * (stages - 1) * takes, rel=1e-9)
        assert completion_time(schedule, seconds, slow) == expected


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("cut", CUTS)
def test_uneven_stages_lose_what_the_slowest_of_them_takes(cut, seed):
    draw = random.Random(seed)
    seconds = [draw.expovariate(1) for _ in range(20)]
    for stages, microbatches in SIZES[1:]:
        found = speed_up(
            make("gpipe", stages, microbatches), EQUAL._replace(seconds=seconds), cut
        )
        off = imbalance(seconds, CUTS[cut](seconds, stages))
        slow = (microbatches - 1) * off + stages  # in means of a stage
        assert found == pytest.approx(stages * microbatches / slow)
        formula = stages * microbatches / (microbatches + stages - 1)
        near = 1 + 1e-9  # sums of floats
        assert formula / off / near <= found <= stages / off * near


# tests/strategies/hybrid_main.py compares the gradients of zb_h1 and zb_h2.
MEASURED = """
import sys
import pipeline
from studies.pipeline import measured
del measured.SCHEDULES["zb_h1"], measured.SCHEDULES["zb_h2"]
pipeline.main(sys.argv)
"""
ARGV = [f"--layer_seconds={','.join(['0.003'] * 16)}", f"--network={FREE}"]
ARGV += ["--measured="]  # the README's command races, small


def test_a_run_shows_tables_and_pictures(tmp_path, capsys):
    summary = pipeline.main(["pipeline.py", *ARGV, f"--out={tmp_path}"])
    check_folder(tmp_path, summary, "schedules.svg", "schedules.png")
    shown = capsys.readouterr().out
    for stages, row in TRANSFORMER.items():
        for count in row:
            formula = stages * count / (count + stages - 1)
            assert summary[f"speed_up_{stages}_{count}"] == pytest.approx(formula)
    assert read_summary(tmp_path)["found_as_published"] == "6 of 9"
    assert summary["bubble_1f1b"] == summary["bubble_gpipe"] == pytest.approx(3 / 11)
    assert summary["bubble_interleaved"] == pytest.approx(3 / 19)
    rows = read_rows(tmp_path)
    assert {row["table"] for row in rows} == {*TABLES} - {"measured"}
    found = {row["schedule"]: row for row in rows if row["table"] == "schedules"}
    assert found["gpipe"]["in_flight"] == [8] * 4
    assert found["1f1b"]["in_flight"] == [4, 3, 2, 1]
    assert found["pipedream"]["staleness"] == [3, 2, 1, 0]
    assert not any(found["interleaved"]["staleness"])
    assert found["zb_h1"]["in_flight"] == [4] * 4
    assert summary["speed_up_zb_h1"] == pytest.approx(4 * 24 / 27)
    assert summary["run_bubble_1f1b"] == 3 and summary["run_bubble_zb_h1"] == 1
    assert summary["run_bubble_zb_h2"] == summary["run_bubble_zb_v"] == 0
    for name in ("h1_bubble", "h2_bubble", "v_bubble", "post_validation"):
        assert read_summary(tmp_path)[f"verdict_{name}"] == "holds"
    for name in SCHEDULES:
        assert f"\n{name}: {found[name]['bubble']:.1%} bubble\nstage 0" in shown


def test_one_block_is_measured_for_all(monkeypatch):
    def counted(layers, params, batch, repeats):
        return layer_costs.flops(layers, params, batch)  # nothing is compiled

    monkeypatch.setattr(compiling, "enable_cache", lambda: None)
    monkeypatch.setattr(layer_costs, "seconds", counted)
    embed, *blocks, head = pipeline_virtual.measured_seconds((8, 4, 5, 8, 2), 2)
    assert len(blocks) == 5 and len(set(blocks)) == 1
    # products of 2 x 4 places with 12 x 8 x 8 numbers, once forward and twice backward
    assert blocks[0] > 3 * 2 * 8 * 12 * 64 > head > 3 * 2 * 8 * 64 > embed


def test_stages_on_real_devices_are_measured(tmp_path):
    sizes = ["--blocks=6", "--few=2", "--width=16", "--length=8", "--vocabulary=32"]
    sizes += ["--heads=2", "--stages=2", "--rounds=1", "--microbatches=2"]
    seconds = ",".join(["1"] * 8)
    options = [f"--layer_seconds={seconds}", "--measured=2", f"--out={tmp_path}"]
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # compiles in half of the time
    run = command(PYTHON, "-c", MEASURED, *sizes, *options, **quick, **COMPILED)
    run.check_returncode()
    rows = [row for row in read_rows(tmp_path) if row["table"] == "measured"]
    assert {row["schedule"] for row in rows} == {"gpipe", "1f1b", "zb_v"}
    # XLA fuses two programs otherwise than one: rounding of float32
    assert all(row["difference"] < 4e-6 for row in rows)
    assert read_summary(tmp_path)["verdict_same_gradients"] == "holds"
    assert all(row["milliseconds"] > 0 for row in rows)
    ratios = {row["schedule"]: row["of_gpipe"] for row in rows}
    assert ratios["gpipe"] == 1 and all(ratio > 0 for ratio in ratios.values())
    assert len(set(ratios.values())) == len(ratios)  # each has its own timings
