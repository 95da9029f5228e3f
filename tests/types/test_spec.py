"""Calls as text: arguments by signatures, forms, and the lines that refuse others."""

from typing import Annotated

import pytest

from dml.types import BadInput, spec
from dml.types.ranges import Count, Number, Range


def both(scale: Number, shape: Annotated[float, Range(1, 9, above=True)]):
    return "both", scale, shape


def sides(*side: Count, size: int = 0):
    return "sides", side, size


def some(q: Count | None = None, ranks: Count = 2):
    return "some", q, ranks


def widths(data: str, *width: Count):
    return "widths", data, width


def file(path: str):
    if path == "missing":
        raise FileNotFoundError("no such file")
    return "file", path


TABLE = {
    "both": both,
    "sides": sides,
    "some": some,
    "widths": widths,
    "file": file,
    "nothing": lambda: ("nothing",),
}


@pytest.mark.parametrize(
    "text, expected",
    [
        ("both:1,1.5", ("both", 1.0, 1.5)),
        ("both:.5,2.", ("both", 0.5, 2.0)),
        ("both:1e-3,+2E0", ("both", 1e-3, 2.0)),
        ("sides", ("sides", (), 7)),
        ("sides:4", ("sides", (4,), 7)),
        ("sides:4x2x1", ("sides", (4, 2, 1), 7)),
        ("some", ("some", None, 2)),
        ("some:3", ("some", 3, 2)),
        ("some:3x1", ("some", 3, 1)),
        ("widths:digits", ("widths", "digits", ())),
        ("widths:digits,8,4", ("widths", "digits", (8, 4))),
        ("file:a,b:c", ("file", "a,b:c")),
        ("nothing", ("nothing",)),
    ],
)
def test_a_text_is_the_call_of_its_function(text, expected):
    own = {"size": 7} if text.startswith("sides") else {}
    assert spec.call(text, TABLE, "a shape", **own) == expected


def test_types_are_those_of_the_signature():
    _, scale, shape = spec.call("both:1,2", TABLE, "a shape")
    assert (type(scale), type(shape)) == (float, float)
    assert type(spec.call("some:3", TABLE, "a shape")[1]) is int


def test_forms_show_names_separators_and_optional_arguments():
    assert spec.forms(TABLE) == (
        "both:SCALE,SHAPE, sides[:SIDEx...], some[:Q[xRANKS]], "
        "widths:DATA[,WIDTH,...], file:PATH, nothing"
    )


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "expected a shape of both:SCALE,SHAPE, .*, nothing, got ''; pass one"),
        ("Both:1,2", "expected a shape of both:.*got 'Both:1,2'; pass one of them"),
        ("both", "expected both:SCALE,SHAPE, got 'both': .* 0 instead of 2; correct"),
        ("both:", "arguments is 1 instead of 2"),
        ("both:1", "arguments is 1 instead of 2"),
        ("both:1,2,3", "arguments is 3 instead of 2"),
        ("both:1,1", "SHAPE is '1' instead of a number above 1 to 9; correct"),
        ("both:-1,2", "SCALE is '-1' instead of a number from 0"),
        ("both:nan,2", "SCALE is 'nan'"),
        ("both:inf,2", "SCALE is 'inf'"),
        ("both:1_0,2", "SCALE is '1_0'"),
        ("both: 1,2", "SCALE is ' 1'"),
        ("both:0x1,2", "SCALE is '0x1'"),
        ("sides:", r"expected sides\[:SIDEx...\], got 'sides:': SIDE is ''"),
        ("sides:4x", "SIDE is ''"),
        ("sides:4,4", "SIDE is '4,4' instead of a whole number from 1 to 1000000"),
        ("sides:4x0", "SIDE is '0'"),
        ("sides:4.0", "SIDE is '4.0'"),
        ("sides:²", "SIDE is '²'"),
        ("sides:+4", "SIDE is '.4'"),
        ("sides:" + "9" * 5000, "SIDE is '9999"),
        ("some:1x2x3", "arguments is 3 instead of 0 to 2"),
        ("widths", "expected widths:DATA.*arguments is 0 instead of 1 or more"),
        ("widths:digits,x", "WIDTH is 'x'"),
        ("file:", "expected file:PATH, got 'file:': PATH is ''"),
        ("file:missing", "expected file:PATH, got 'file:missing': no such file; corr"),
        ("nothing:", "expected nothing, got 'nothing:': .* 1 instead of 0"),
        ("nothing:1", "expected nothing, got 'nothing:1': .* 1 instead of 0"),
    ],
)
def test_other_texts_are_refused_in_one_line(text, message):
    with pytest.raises(BadInput, match=f"(?s)^.*{message}") as error:
        spec.call(text, TABLE, "a shape")
    line = str(error.value)
    assert line.startswith("expected ") and "\n" not in line and len(line) < 300


def test_the_error_of_a_function_keeps_its_own_words():
    def refusing(n: Count):
        raise BadInput(f"expected an even number, got {n}; pass 2")

    with pytest.raises(BadInput, match="^expected an even number, got 3; pass 2$"):
        spec.call("odd:3", {"odd": refusing}, "a number")


def test_arguments_without_a_name():
    assert spec.apply("3x4", sides, "sides such as 32x32") == ("sides", (3, 4), 0)
    with pytest.raises(BadInput, match="^expected sides such as 32x32, got '3y': SIDE"):
        spec.apply("3y", sides, "sides such as 32x32")
