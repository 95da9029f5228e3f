"""Chapters: cores of single files, names of the code, exercises whose answers run."""

import re

import pytest

from docs.excerpts import CORE, core, definitions, excerpt
from tests.commands import ROOT

DOCS = ROOT / "docs"
TEXTS = {page.stem: page.read_text("utf-8") for page in sorted(DOCS.glob("*.md"))}
CHAPTERS = sorted(name for name, text in TEXTS.items() if CORE.search(text))
EXERCISED = sorted(name for name, text in TEXTS.items() if "## Exercises" in text)
SECTIONS = ["## From knobs to the code", "## Exercises", "## References"]
NAMED = re.compile(r"\[`([\w.]+)`\]\(\.\./([\w/]+\.py)\)")
SOURCE = """\
\"\"\"A picture.\"\"\"

LIMIT, STEP = 3, 2


def f(x):
    while x < LIMIT:
        x += 1
    return x


class Box:
    def open(self): ...
"""


@pytest.mark.parametrize(
    "item, lines",
    [
        ("LIMIT", "LIMIT, STEP = 3, 2"),
        ("f: while", "while x < LIMIT:\n    x += 1"),
        ("f: return", "return x"),
        ("Box", "class Box:\n    def open(self): ..."),
    ],
)
def test_an_excerpt_is_a_definition_or_a_statement(item, lines):
    assert excerpt(SOURCE, item) == lines


@pytest.mark.parametrize("item", ["g", "f: for", "x"])
def test_an_excerpt_of_a_missing_name_is_refused(item):
    with pytest.raises(ValueError, match="expected a definition or a statement"):
        excerpt(SOURCE, item)


def test_definitions_have_constants_functions_classes_and_methods():
    assert [*definitions(SOURCE)] == ["LIMIT", "STEP", "f", "Box", "Box.open"]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_has_a_core_of_few_lines(chapter):
    for found in CORE.finditer(TEXTS[chapter]):
        shown = core((ROOT / found["path"]).read_text("utf-8"), found["items"])
        code = shown.partition("```python\n")[2]
        assert 10 <= code.count("\n") <= 45, found["path"]
    assert chapter in EXERCISED


@pytest.mark.parametrize("chapter", EXERCISED)
def test_a_chapter_ends_with_knobs_exercises_and_references(chapter):
    text = TEXTS[chapter]
    assert re.findall("^## .*", text, re.MULTILINE)[-3:] == SECTIONS
    exercises = text.partition("## Exercises")[2]
    assert 3 <= exercises.count("<details markdown><summary>") <= 5
    assert exercises.count("</details>\n") == exercises.count("<details")


@pytest.mark.parametrize("page", TEXTS)
def test_names_of_the_code_exist_where_a_page_links_them(page):
    links = [link for link in NAMED.findall(TEXTS[page]) if not link[0].endswith(".py")]
    for name, path in links:
        assert name in definitions((ROOT / path).read_text("utf-8")), (name, path)
    assert page not in EXERCISED or len(links) >= 5


@pytest.mark.parametrize("chapter", EXERCISED)
def test_answers_of_exercises_run(chapter):
    answers = TEXTS[chapter].partition("## Exercises")[2]
    programs = re.findall(r"```python\n(.*?)```", answers, re.DOTALL)
    assert programs and all("assert " in program for program in programs)
    for program in programs:
        exec(program, {})


def test_lectures_lead_from_each_single_file_to_chapter_command_and_papers():
    rows = re.findall(r"^\| ([^|]*) \|(.*)\|$", TEXTS["lectures"], re.MULTILINE)
    cells = [[cell.strip() for cell in rest.split("|")] for _, rest in rows]
    found = [each for each in cells if len(each) >= 3 and "python " in each[-2]]
    assert all(all(each) for each in found)
    files = {
        re.findall(r"single/(\w+\.py)", each[0])[0] for each in found if len(each) == 4
    }
    assert files == {path.name for path in (ROOT / "experiments/single").glob("*.py")}
    assert all(".md" in each[-3] and ".md#" in each[-1] for each in found)
