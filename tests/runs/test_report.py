"""What the page of run folders promises, read without a browser."""

import base64
import json
import os
import re
import webbrowser
from html.parser import HTMLParser

import numpy as np
import pytest

from dml.runs import folder as run_folders
from dml.runs.__main__ import main
from dml.runs.report import curves
from dml.runs.report import page as pages
from dml.types import BadInput
from tests.commands import PYTHON, command

EVIL = """\"'></script><img src=x onerror=alert(1)>"""
VOID = {"meta", "img", "input"}


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Ask git once, not for every run folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_folders, "commit", lambda: "0123456789abcdef")
        yield


def folder(path, flags, rows=(), summary=None):
    """Write a run folder, as runs write it; one without a summary has not ended."""
    with run_folders.folder(path, flags) as writer:
        for row in rows:
            writer.row(row)
        if summary:
            writer.summary(summary)
    return path


def sweep(place, many=3, **more):
    """Write runs that differ in lr alone."""
    for k in range(many):
        flags = {"lr": 0.1 * (k + 1), "steps": 4, "out": f"runs/{k}", **more}
        rows = [{"step": s, "loss": 1 / (s + k)} for s in range(1, 5)]
        folder(place / f"run-{k}", flags, rows, {"loss": 1 / (4 + k), "seconds": k + 1})
    return place


class Page(HTMLParser):
    """The elements of a page, and the text within each kind."""

    def __init__(self, text):
        super().__init__()
        self.text, self.tags, self.open, self.within = text, [], [], {}
        self.feed(text)
        assert not self.open, "each element is closed"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self.within.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        for tag in set(self.open):
            self.within[tag][-1] += data

    def all(self, tag, **wanted):
        have = [attrs for name, attrs in self.tags if name == tag]
        return [each for each in have if wanted.items() <= each.items()]

    @property
    def data(self):
        found = re.search(
            '<script type="application/json" id="data">(.*?)</', self.text
        )
        return json.loads(found[1])

    def curve(self, measure, run):
        """Return the axes and values of one run's curve."""
        (found,) = (each for each in self.data["measures"] if each["name"] == measure)
        return dict(unpacked(found, len(self.data["axes"])))[run]


def unpacked(measure, axes):
    """Unpack a measure as the page's script does."""
    data, at = np.frombuffer(base64.b64decode(measure["data"]), "<f4"), 0
    for run, size in zip(measure["runs"], measure["points"], strict=True):
        yield run, data[at : at + size * (axes + 1)].reshape(axes + 1, size)
        at += size * (axes + 1)
    assert at == len(data)


@pytest.fixture
def made(tmp_path, capsys):
    """Return what makes a page of paths, and parses it."""

    def made(*paths):
        out = tmp_path / "report.html"
        main(["dml.runs", *map(str, paths), f"--out={out}"])
        made.said = capsys.readouterr()
        return Page(out.read_text())

    return made


def test_the_page_has_a_row_and_details_for_each_run(made, tmp_path):
    page = made(sweep(tmp_path / "runs/linear"))
    assert page.within["title"] == page.within["h1"] == ["3 runs of linear"]
    heads = ["run", "status", "began", "ranks", "--lr", "loss", "seconds"]
    assert page.within["th"] == [*heads, "run-0", "run-1", "run-2"]
    assert [each["data-run"] for each in page.all("tr")[1:]] == ["0", "1", "2"]
    each = [one for one in page.all("details") if one.get("id", "").startswith("run-")]
    assert len(each) == 3
    assert page.within["figcaption"] == ["loss"]
    assert "3 done." in page.within["p"][0]


def test_no_text_of_a_run_becomes_an_element(made, tmp_path):
    name = EVIL.replace("/", "\N{FRACTION SLASH}")
    for k in range(2):
        path = folder(
            tmp_path / f"{name}{k}",
            {EVIL: f"{EVIL}{k}", "same": EVIL, "long": EVIL * 50},
            [{"step": 1, EVIL: k, f"same {EVIL}": 1.0, "text": EVIL}],
            {EVIL: 1.0, "text": EVIL, "list": [EVIL]},
        )
        (path / f'{name}".svg').write_text(f"<svg>{EVIL}</svg>")
        (path / "sweep.json").write_text(json.dumps({"code": 1, "error_message": EVIL}))
    broken = tmp_path / f"broken{name}"
    broken.mkdir()
    (broken / "config.json").write_text(EVIL)
    page = made(tmp_path)
    assert len(page.all("script")) == 2
    images = page.all("img")
    assert len(images) == 2 and all(set(each) == {"alt", "data-svg"} for each in images)
    assert not [tag for tag, attrs in page.tags if "onerror" in attrs]
    assert page.data["names"][0].startswith(name)
    assert EVIL in {each["name"] for each in page.data["measures"]}
    # The policy lets no request out, and names the page's own script.
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    script, style = page.within["script"][-1], page.within["style"][0]
    assert dict(part.split(" ", 1) for part in policy["content"].split("; ")) == {
        **{"default-src": "'none'", "base-uri": "'none'", "form-action": "'none'"},
        **{"img-src": "data:", "style-src": f"'{pages.digest(style)}'"},
        "script-src": f"'{pages.digest(script)}'",
    }
    links = [attrs.get("src") or attrs.get("href", "#") for _, attrs in page.tags]
    assert all(link.startswith(("data:", "#")) for link in links)


@pytest.mark.parametrize(
    "spoil, why",
    [
        (lambda path: (path / "config.json").write_text("{"), "expected JSON"),
        (lambda path: (path / "config.json").write_bytes(b"\xff"), "expected to read"),
        (lambda path: (path / "config.json").write_text("[" * 10**5), "recursion"),
        (lambda path: (path / "summary.json").write_text("3"), "names and values"),
        (lambda path: (path / "metrics.jsonl").write_text("x\n"), "expected JSON"),
        (lambda path: os.remove(path / "config.json"), "with its config.json"),
    ],
)
def test_an_unreadable_folder_is_named_and_the_others_are_shown(
    made, tmp_path, spoil, why
):
    sweep(tmp_path / "x")
    spoil(tmp_path / "x/run-1")
    page = made(*(tmp_path / f"x/run-{k}" for k in range(3)))
    assert len(page.all("tr")) == 1 + 2
    assert made.said.err.count("\n") == 1
    for text in (made.said.err, page.within["li"][0]):
        assert "run-1" in text and why in text


def test_failed_and_unended_runs_show_their_last_lines(made, tmp_path):
    place = sweep(tmp_path / "x", many=1)
    died = folder(place / "died", {"lr": 1.0}, [{"step": 1, "loss": 9.0}])
    (died / "sweep.json").write_text(
        json.dumps({"code": 1, "error_message": "a\nloss is nan"})
    )
    going = folder(place / "going", {"lr": 1.0})
    (going / "output.txt").write_text("step 1\nstep 2\n")
    for pipe in ("output.txt", "sweep.json"):  # left alone: reading it would block
        os.mkfifo(folder(place / f"piped {pipe}", {"lr": 1.0}) / pipe)
    unborn = place / "unborn"
    unborn.mkdir()
    (unborn / "sweep.json").write_text(
        json.dumps({"code": 2, "error_message": "no such flag"})
    )
    page = made(place)
    states = re.findall('<td class="(done|failed|not-ended)">', page.text)
    assert states == ["failed", *["not-ended"] * 3, "done"]
    assert "1 done, 1 failed and 3 not ended." in page.within["p"][0]
    assert any("loss is nan" in item for item in page.within["li"])
    assert any(text == "step 1\nstep 2" for text in page.within["pre"])
    assert "unborn: failed before writing config.json: no such flag" in made.said.err


def test_what_is_no_finite_number_neither_breaks_the_page_nor_a_curve(made, tmp_path):
    odd = [
        {"step": 1, "loss": 2.0},
        {"step": 2, "loss": float("nan")},
        {"step": "three", "loss": 1.0, "flag": True, "words": "a", "list": [1]},
        {"loss": float("inf"), "big": 10**400},
        {"step": 5, "loss": 0.5},
    ]
    summary = {"loss": float("nan"), "huge": 10**400, "none": None, "yes": True}
    folder(tmp_path / "x/odd", {"lr": float("inf"), "none": None}, odd, summary)
    folder(tmp_path / "x/empty", {"lr": 1})
    page = made(tmp_path)
    steps, losses = page.curve("loss", 1)
    assert list(steps) == [1, 3, 5] and list(losses) == [2.0, 1.0, 0.5]
    assert [each["name"] for each in page.data["measures"]] == ["loss"]
    assert page.within["th"][4:7] == ["--lr", "loss", "huge"]
    cells = page.within["td"]
    assert [cell for cell in cells if cell in ("nan", "inf")] == ["nan", "inf"]


@pytest.mark.parametrize("size", [1, 2, 199, 200, 201, 1000, 9999])
def test_a_curve_keeps_its_ends_and_extremes_in_few_points(size):
    values = np.random.default_rng(size).normal(size=size).astype(np.float32)
    kept = curves.downsample(values, 200)
    assert len(kept) <= 200 and list(kept) == sorted(set(kept))
    assert {0, size - 1, values.argmin(), values.argmax()} <= set(kept)
    assert len(kept) >= min(size, 90)


def test_seconds_and_words_are_summed_to_draw_against(made, tmp_path):
    rows = [{"step": s, "loss": s, "seconds": 0.5, "words_sent": 8} for s in (2, 4)]
    folder(tmp_path / "x/a", {}, rows)
    folder(tmp_path / "x/b", {}, [{"step": 1, "loss": 1.0, "seconds": 1.7e308}] * 2)
    page = made(tmp_path)
    assert page.data["axes"] == ["step", "seconds so far", "words sent so far"]
    assert page.curve("loss", 0).tolist() == [[2, 4], [0.5, 1], [8, 16], [2, 4]]
    assert not np.isinf(page.curve("loss", 1)).any()  # a sum beyond all numbers
    assert "words_sent" not in {each["name"] for each in page.data["measures"]}
    assert any("Constant in all rows: words_sent 8." in t for t in page.within["p"])


def test_runs_that_differ_in_the_seed_only_are_one_group(made, tmp_path):
    for k, flags in enumerate(
        ({"lr": 1, "seed": 1}, {"lr": 2, "seed": 1}, {"lr": 1, "seed": 2, "out": "x"})
    ):
        folder(tmp_path / f"x/{k}", flags)
    assert made(tmp_path).data["groups"] == [0, 1, 0]


def test_figures_are_shown_once_and_the_largest_are_left_out_where_room_is_short(
    made, tmp_path, monkeypatch
):
    place = sweep(tmp_path / "x", many=1) / "run-0"
    (place / "loss.svg").write_text("<svg/>")
    (place / "loss.png").write_bytes(b"never read")
    (place / "noise.png").write_bytes(np.random.default_rng(0).bytes(30_000))
    (place / "timeline.svg").write_text("<svg></svg>")
    page = made(place)
    assert page.text == made(place, place.parent, place).text  # the same bytes
    names = [each["alt"].split(" of ")[0] for each in page.all("img")]
    assert names == ["loss.svg", "noise.png", "timeline.svg"]
    assert page.within["h3"][:2] == ["Figures", "Timeline"]
    monkeypatch.setattr(pages, "MAX_BYTES", len(page.text) - 20_000)
    small = made(place)
    assert [each["alt"].split(" of ")[0] for each in small.all("img")] == names[::2]
    assert "noise.png" in small.text
    assert len(small.text) < len(page.text) - 20_000


def test_the_status_of_a_run_is_that_of_its_summary(made, tmp_path):
    folder(tmp_path / "x/done", {}, (), {"loss": 1})
    folder(tmp_path / "x/stopped", {}, (), {"loss": 1, "status": "interrupted"})
    folder(tmp_path / "x/killed", {}, [{"step": 1}])
    folder(tmp_path / "x/wrong", {}, (), {"status": "failed", "error": "got nan"})
    page = made(tmp_path)
    lead = "1 done, 1 interrupted, 1 failed and 1 not ended"
    assert any(lead in text for text in page.within["p"])
    assert any("got nan" in text for text in page.within["code"])


def test_runs_of_several_folders_have_a_page_in_the_folder_above(tmp_path):
    for name in ("a/x", "b/y"):
        folder(tmp_path / "runs" / name, {"lr": 1})
    assert pages.default_path(
        [tmp_path / "runs/a", tmp_path / "runs/b/y"]
    ).resolve() == (tmp_path / "runs/report.html")
    assert pages.default_path([tmp_path / "runs/a"]).resolve() == (
        tmp_path / "runs/a/report.html"
    )


@pytest.mark.parametrize(
    "arguments, says",
    [
        ([], "no such folder"),
        (["--nonsense=1", "x"], "nonsense"),
        (["good", "--last=0"], "expected --last of 1 or more"),
        (["good", "--out=nowhere/report.html"], "expected a file to write"),
        (["good", "--out=."], "expected a file to write"),
        (["bad"], "expected JSON"),
        (["good", "--open"], "expected a browser for --open, got none; open good/"),
    ],
)
def test_bad_use_is_refused(tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    folder(tmp_path / "good", {"lr": 1})
    folder(tmp_path / "bad", {"lr": 1})
    (tmp_path / "bad/config.json").write_text("{")
    with pytest.raises((BadInput, SystemExit)) as refused:
        main(["dml.runs", *arguments])
    assert says in str(refused.value) + capsys.readouterr().err


def test_the_list_has_the_last_runs_with_status_and_numbers(tmp_path):
    sweep(tmp_path / "runs")
    folder(tmp_path / "runs/run-3", {"lr": 1})
    (tmp_path / "runs/run-4").mkdir()
    (tmp_path / "runs/run-4/config.json").write_text("{")
    with (tmp_path / "runs/run-2/metrics.jsonl").open("a") as rows:
        rows.write("not read for a list\n")
    for k in range(4):
        os.utime(tmp_path / f"runs/run-{k}/config.json", (k, k))
    run = command(PYTHON, "-m", "dml.runs", "--last=3", cwd=tmp_path)
    assert run.returncode == 0
    assert run.stdout.splitlines() == [
        "run    status       loss       accuracy  seconds",
        "run-1  done               0.2         -         2",
        "run-2  done           0.16667         -         3",
        "run-3  not ended            -         -         -",
        "1 earlier run not shown: --last=4",
    ]
    assert run.stderr.startswith(
        "python -m dml.runs: skipped runs/run-4: expected JSON"
    )
    page = command(PYTHON, "-m", "dml.runs", "runs", "--report", cwd=tmp_path)
    assert re.fullmatch(r"runs/report\.html: 3 runs, 0\.\d MB\n", page.stdout)
    assert (tmp_path / "runs/report.html").stat().st_size > 10_000
