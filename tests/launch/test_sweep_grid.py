"""What a sweep's flags mean: values, grids, draws, and the names of cells."""

import csv
import io
import math

import pytest
import sweep_grid
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_grid import Cell

from dml.types import BadInput

KNOWN = {"lr": False, "seed": False, "lost": True, "text": False}


def swept(*argv):
    return sweep_grid.parse_flags(argv, KNOWN, "x.py")


@settings(max_examples=40)
@given(st.lists(st.text(), min_size=1))
def test_quoted_as_csv_any_text_is_a_value(texts):
    row = io.StringIO(newline="")
    csv.writer(row, quoting=csv.QUOTE_ALL).writerow(texts)
    once = list(dict.fromkeys(texts))
    assert sweep_grid.parse_values("text", row.getvalue()) == once


@pytest.mark.parametrize(
    "argv, values",
    [
        (['--text="0,1,10","0",$HOME a'], {"text": ["0,1,10", "0", "$HOME a"]}),
        (['--text="",x,,x'], {"text": ["", "x"]}),
        (["--text=a=b", "--lr=1"], {"text": ["a=b"], "lr": ["1"]}),
        (["--text=@list"], {"text": ["0,1,10", '"quoted" $HOME']}),  # a value a line
        (['--text="@list"'], {"text": ["@list"]}),
        (["--lost"], {"lost": ["true"]}),
        (["--nolost"], {"lost": ["false"]}),
        (["--lost=true,false"], {"lost": ["true", "false"]}),
    ],
)
def test_arguments_are_values(tmp_path, monkeypatch, argv, values):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list").write_text('0,1,10\n\n"quoted" $HOME\n')
    assert swept(*argv) == values


@pytest.mark.parametrize(
    "argument, says",
    [
        ("--lrr=1", "expected a flag of x.py, got --lrr; did you mean --lr?"),
        ("--nolr", "expected a flag of x.py, got --nolr; did you mean --lr?"),
        ("--zzz=1", "expected a flag of x.py, got --zzz; its --help lists them"),
        ("--lr", "expected --flag=values, got '--lr'"),
        ("0.1", "expected --flag=values, got '0.1'"),
        ("--lr=", "expected values in --lr=, got none; pass --lr=<a,b>"),
        ("--lr=@/dev/null", "got none; pass --lr=<a,b>"),
        ("--lr=@/no/file", "expected values in --lr=@/no/file, got .*No such file"),
        ('--lr="a"b', "expected values in --lr=\"a\"b, got ',' expected"),
    ],
)
def test_what_is_no_value_is_one_line(argument, says):
    with pytest.raises(BadInput, match=says.replace("?", "\\?")) as error:
        swept(argument)
    assert "\n" not in str(error.value)


def test_names_are_stable_and_hang_on_the_cell_alone():
    cell = Cell(2, {"seed": "0", "text": "a b/c", "lr": "0.1"})
    name = sweep_grid.folder_name("experiments/x.py", cell)
    assert name == "n=2,lr=0.1,text=a_b_c,seed=0-67b0d8c30c"
    turned = Cell(2, dict(reversed(cell.flags.items())))
    assert sweep_grid.folder_name("x.py", turned) == name


def test_cells_that_differ_anywhere_have_different_names():
    texts = ["a b", "a_b", "a/b", "", ".", "x" * 1000, "x" * 1001, "ä"]
    cells = [Cell(n, {"text": text}) for text in texts for n in (None, 1)]
    cells += [Cell(None, {"lr": "1"}), Cell(None, {})]
    names = {sweep_grid.folder_name("x.py", cell) for cell in cells}
    assert len(names) == len(cells)
    assert all(len(name.encode()) < 200 and "/" not in name for name in names)
    assert sweep_grid.folder_name("y.py", cells[0]) not in names


def test_labels_have_the_values_that_differ():
    cells = sweep_grid.grid([1, 2], {"lr": ["5"], "text": ["b", "a\nc"]})
    labels = ["n=1 text=b", "n=1 text=a c", "n=2 text=b", "n=2 text=a c"]
    assert sweep_grid.labels(cells) == labels  # the last flag the fastest
    assert sweep_grid.labels(cells[:1]) == ["run"]


def draws(count=400, seed=0, **flags):
    cells = sweep_grid.random_cells(
        [1, 2], {k: [v] for k, v in flags.items()}, count, seed
    )
    return {flag: [float(cell.flags[flag]) for cell in cells] for flag in flags}


def test_draws_fill_their_ranges():
    found = draws(a="0.5..1.5", b="1e-4..1:log", c="3..5", d="1..1000:log")
    assert min(found["a"]) >= 0.5 and max(found["a"]) <= 1.5
    assert min(found["b"]) >= 1e-4 and max(found["b"]) <= 1
    # 400 draws: their mean is within 5 of its standard errors
    assert sum(found["a"]) / 400 == pytest.approx(1, abs=5 * 0.29 / 20)
    tens = [math.log10(b) for b in found["b"]]
    assert sum(tens) / 400 == pytest.approx(-2, abs=5 * 4 * 0.29 / 20)
    assert set(found["c"]) == {3, 4, 5}
    assert all(d == int(d) and 1 <= d <= 1000 for d in found["d"])
    assert sum(d <= 31 for d in found["d"]) == pytest.approx(200, abs=50)


def test_whole_numbers_are_written_whole():
    (cell,) = sweep_grid.random_cells([None], {"a": ["2..2"], "b": ["2.0..2"]}, 1, 0)
    assert cell.flags == {"a": "2", "b": "2.0"}


def test_more_draws_keep_the_first_and_another_seed_has_others():
    few, many, other = (draws(*how, a="0..1.0")["a"] for how in ((3,), (6,), (3, 1)))
    assert many[:3] == few
    assert len({*many, *other}) == 9


def test_lists_and_ranks_are_drawn_from():
    cells = sweep_grid.random_cells([1, 2], {"text": ["a", "b"], "lr": ["0..1"]}, 99, 0)
    assert {(cell.ranks, *cell.flags.values()) for cell in cells} == {
        (n, text, lr) for n in (1, 2) for text in "ab" for lr in "01"
    }


@pytest.mark.parametrize(
    "values, says",
    [
        *(
            ([text], f"expected low..high.*got --a={text}")
            for text in ("2..1", "0..1:log", "-1..1:log")
        ),
        (["5", "0..1"], "got the range 0..1; pass the range as"),
    ],
)
def test_an_impossible_range_is_one_line(values, says):
    with pytest.raises(BadInput, match=says):
        sweep_grid.random_cells([None], {"a": values}, 1, 0)
    with pytest.raises(BadInput, match="got the range .*; add --random"):
        sweep_grid.grid([None], {"a": values})


def test_seeds_count_from_the_one_that_is_given():
    assert sweep_grid.seeds({}, 3) == ["0", "1", "2"]
    assert sweep_grid.seeds({"seed": ["7"]}, 2) == ["7", "8"]
    assert sweep_grid.seeds({"seed": ["7", "3"]}, 1) == ["7", "3"]
    with pytest.raises(
        BadInput, match="expected one integer in --seed with --repeat=2"
    ):
        sweep_grid.seeds({"seed": ["7", "3"]}, 2)


@pytest.mark.parametrize("text", ["0", "1,x", "-1", "1.5"])
def test_ranks_are_counted(text):
    with pytest.raises(BadInput, match="expected numbers of ranks in --n, got"):
        sweep_grid.rank_counts(text)
    assert sweep_grid.rank_counts("1,2,8") == [1, 2, 8]
