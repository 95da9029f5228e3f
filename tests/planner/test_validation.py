"""Published runs: rows are read, refused and judged; errors are pinned."""

import csv

import numpy as np
import pytest
from studies.plan.validation import DATA, path_of

from dml.planner import calibration, fitting, published, validation
from dml.planner.physics import TYPICAL, Constants, Physics
from dml.types import BadInput

ROWS = published.read(DATA)
PARSED, REFUSED = published.parse(ROWS)
CALIBRATION = calibration.load()
JUDGED = validation.judge(PARSED, CALIBRATION)


def row(**changes):
    first = next(r for r in ROWS if r["id"] == "6")
    return dict(first) | changes


def test_each_row_is_predicted_or_refused():
    assert len(PARSED) + len(REFUSED) == len(ROWS) == 632
    complete = [r for r in ROWS if r["complete"] == "1"]
    assert len(complete) == 397
    ids = {r["id"] for r in complete}
    assert not [r.reason for r in REFUSED if r.id in ids]


def test_long_examples_of_bert_are_padded_to_a_multiple_of_64():
    """With 512 computed tokens, V100 would be faster than its peak."""
    bert = [p for p in PARSED if "BERT" in p.row["model"] and p.row["seq"] == "512"]
    assert {float(p.runs.sequence) for p in bert} == {288}
    long = next(p for p in bert if p.device == "v100")
    flops = long.runs.flops * 512 / 288
    assert long.seconds < flops / long.runs.linear_peak / long.runs.devices
    rate = float(long.row["tokens_per_s_per_device"]) * long.runs.devices
    assert long.seconds == pytest.approx(long.runs.batch * 512 / rate)


@pytest.mark.parametrize("model, text, count", [
    ("Qwen 7B", "not in the script", 151936),
    ("Llama-3.1 405B", "", 128256),
    ("Bloom 176B", "of 8 tensor ranks: 250880", 250880),
    ("unheard of", "", 32000),
])  # fmt: skip
def test_a_vocabulary_that_is_not_stated_is_that_of_the_family(model, text, count):
    assert published.vocabulary(row(model=model, vocab=text)) == count


@pytest.mark.parametrize("change, reason", [
    ({"complete": "0"}, "marked incomplete"),
    ({"layers": "many"}, "no layers: many"),
    ({"micro_batch": ""}, "no micro batch: empty"),
    ({"heads": "0"}, "no heads: 0"),
    ({"dp": "-4"}, "no data: -4"),
    ({"device": "abacus"}, "unknown device: abacus"),
    ({"precision": "posit"}, "unknown precision: posit"),
    ({"dp": "31"}, "992 devices of the mesh are not 1024"),
    ({"tflops_per_device": "", "hfu_pct": ""}, "no result"),
    ({"s_per_step": "0.001"}, "faster than the peak of its devices"),
])  # fmt: skip
def test_reasons(change, reason):
    assert published.parse_row(row(**change)) == reason


def test_seconds_from_every_column():
    """Row 6: 76 billion parameters, 140 Tflop/s with recomputation, by its formula."""
    from_rate = published.parse_row(row())
    assert isinstance(from_rate, published.Published)
    tokens, layers, width = 1792 * 2048, 60, 10240
    flops = 96 * tokens * layers * width**2 * (1 + 2048 / (6 * width)) + (
        6 * tokens * width * 51200
    )
    assert from_rate.seconds == pytest.approx(flops / (140e12 * 1024), rel=1e-3)
    seconds = published.parse_row(row(s_per_step="16"))
    assert seconds.seconds == 16  # type: ignore[union-attr]
    tokens_row = published.parse_row(row(tokens_per_s_per_device="224"))
    assert tokens_row.seconds == 16  # type: ignore[union-attr]
    examples = published.parse_row(row(seqs_per_s="112"))
    assert examples.seconds == 16  # type: ignore[union-attr]


def test_a_file_without_columns_is_refused(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("id,model\n1,gpt\n")
    with pytest.raises(BadInput, match="without complete, layers"):
        published.read(path)
    with pytest.raises(BadInput, match="expected a CSV file or published"):
        path_of(str(tmp_path / "no.csv"))


def test_short_rows_are_read(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(",".join(ROWS[0]) + "\n1,1,GPT\n")
    parsed, refused = published.parse(published.read(path))
    assert not parsed and refused[0] == ("1", "not stated", "no layers: empty")


def test_any_text_in_any_cell_is_predicted_or_refused():
    """A row with one cell replaced gives finite seconds or a reason."""
    texts = ("", "0", "1", "x", "1e9", "-1", "3.5", "not stated")
    for name in published.COLUMNS:
        for text in texts:
            found = published.parse_row(row(**{name: text}))
            if isinstance(found, published.Published):
                (judged,) = validation.judge([found], CALIBRATION)
                assert np.isfinite([judged.seconds, judged.memory]).all(), (name, text)
            else:
                assert found


def test_halves_do_not_depend_on_order_or_id():
    again, _ = published.parse([dict(r) | {"id": "x"} for r in reversed(ROWS)])
    assert [p.fitted for p in again] == [p.fitted for p in reversed(PARSED)]
    kept = fitting.DIGITS
    digests = {published.digest(p.row)[:kept] for p in PARSED if p.fitted}
    assert digests == set(CALIBRATION.rows)


def test_errors_of_rows_that_were_not_fitted():
    """Pinned, so that a change of the formulas is seen."""
    table = {r["source"]: r for r in validation.by_source(JUDGED, REFUSED)}
    whole = table["all"]
    assert whole["rows"] + whole["fitted"] == len(PARSED) - sum(
        p.failed and not p.fitted for p in PARSED
    )
    assert whole["median_error"] < 0.05 < 0.08 < whole["null_median_error"]
    assert whole["p90_error"] < 0.14 < 0.27 < whole["null_p90_error"]
    assert 0.75 < whole["coverage_80"] < 0.95
    for name, most in {
        "VIA-Research/vTrain": 0.02,
        "InternLM/InternEvo": 0.05,
        "NVIDIA/DeepLearningExamples": 0.05,
        "mosaicml/llm-foundry": 0.05,
        "bigscience-workshop/bigscience": 0.06,
    }.items():
        assert table[name]["median_error"] < most
        assert table[name]["median_error"] < table[name]["null_median_error"]


def test_memory_of_published_runs():
    found = validation.memory_summary(JUDGED)
    assert found["memory_median_error"] < 0.08
    assert (found["oom_rows"], found["oom_found"]) == (4, 3)
    assert found["fits_refused"] <= 1


def test_sweeps_of_meshes():
    found = {(r["model"], r["batch"]): r for r in validation.sweeps(JUDGED)}
    for sweep in (
        ("GPT 175B", "1536"),
        ("BLOOM candidate 181B", "2048"),
        ("BLOOM candidate 181B", "2016"),
    ):
        assert found[sweep]["kendall_tau"] >= 0.7
        assert found[sweep]["regret"] < 0.03


def test_rows_of_a_second_file_are_all_held_out(tmp_path):
    path = tmp_path / "second.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ROWS[0].keys())
        writer.writeheader()
        for number, text in enumerate(ROWS):
            writer.writerow(dict(text) | {"id": number, "notes": text["notes"] + " 2"})
    parsed, _ = published.parse(published.read(path))
    assert all(j.held_out for j in validation.judge(parsed, CALIBRATION))


def test_null_model_is_exact_for_one_row():
    single = [p for p in PARSED if p.source == "NVIDIA/JAX-Toolbox"][:1]
    judged = validation.judge(single, CALIBRATION)
    assert judged[0].null_error == pytest.approx(0)


def test_kendall():
    assert validation.kendall([1, 2, 3], [4, 5, 6]) == 1
    assert validation.kendall([1, 2, 3], [6, 5, 4]) == -1
    assert validation.kendall([1, 2, 3], [1, 3, 2]) == pytest.approx(1 / 3)
    assert np.isnan(validation.kendall([1], [1]))


def test_fit_finds_the_constants_of_exact_rows():
    rng = np.random.default_rng(0)
    columns = rng.uniform(0.1, 1.0, (200, 2))
    columns /= columns @ np.array([[1.5], [1.2]])  # relative to the seconds
    pair = fitting.fit_pair(columns, TYPICAL, 2.0)
    assert pair == pytest.approx((1.5, 1.2), rel=0.01)
    prior = Constants(1.7, 1.1)
    assert fitting.fit_pair(columns[:0], prior, 2.0) == pytest.approx(prior)


def test_search_improves_and_keeps_bounds():
    """One pass over the coefficients lowers the loss."""
    rows = [p for p in PARSED if p.fitted and not p.failed][::6]
    table = fitting.data(rows)
    start = fitting.loss(table, Physics())
    bounds = fitting.BOUNDS
    found = fitting.search(
        Physics(), lambda p: fitting.loss(table, p), bounds, rounds=1, step=1.4
    )
    assert fitting.loss(table, found) < start
    for name, (low, high) in bounds.items():
        assert low <= getattr(found, name) <= high


def test_saved_numbers_are_read_again(tmp_path):
    path = tmp_path / "calibration.json"
    calibration.save(CALIBRATION, path)
    assert calibration.load(path) == CALIBRATION


def test_unknown_networks_and_precisions_use_the_next_kind():
    exact, known = calibration.lookup(CALIBRATION, "A100-80GB SXM", "bf16")
    assert known and exact == CALIBRATION.constants["A100-80GB SXM | bf16"]
    other, known = calibration.lookup(CALIBRATION, "A100-80GB SXM (9 Gb/s)", "bf16")
    assert not known
    assert other == CALIBRATION.constants["A100-80GB SXM | any network"]
    assert calibration.lookup(CALIBRATION, "abacus", "bf16") == (TYPICAL, False)
