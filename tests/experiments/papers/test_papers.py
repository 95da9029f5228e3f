import os
from importlib import import_module
from pathlib import Path

import papers
import pytest
from lab import flags
from lab.claims import claim, untestable_claim, verdict
from studies.papers import page as papers_page
from studies.papers import runs as papers_runs
from studies.papers.runs import PAPERS, SIZES, Command, Judged, Paper

from dml.runs import results
from dml.types import BadInput
from tests.experiments.run_folder import read_summary

ROOT = Path(__file__).parents[3]
SCRIPT = """
import json, pathlib, sys
words = (word[2:].partition("=") for word in sys.argv[1:])
given = {name: value for name, _, value in words}
out = pathlib.Path(given.pop("out"))
print("hello\\nno such thing")
if "fail" in given:
    sys.exit(3)
dumped = {"config": {"flags": given}, "summary": {"n": int(given["n"])}}
dumped["summary"] |= {"energy_kwh": 0.25, "energy_source": "RAPL"}
for name, value in dumped.items():
    (out / f"{name}.json").write_text(json.dumps(value))
(out / "curve.svg").write_text("<svg>" + given.get("size", ""))
"""


@claim("it is even", "2")
def even(run):
    """The number is even."""
    n = run.summary["n"]
    return verdict(n % 2 == 0, f"{n} | of all", "parity")


def paper(name, *words):
    flies = untestable_claim("it flies", "high", "no")
    claims = [Judged(even, ("a",)), Judged(flies, ())]
    commands = {"a": Command("fake.py", *words)}
    return Paper(name, f"{name} 2001", "1 of 3", claims, commands)


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """Put papers of a small script in place of all; return run(*flags)."""
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "fake.py").write_text(SCRIPT)
    monkeypatch.setattr(papers_runs, "ROOT", tmp_path)
    shelf = {
        "one": paper("one", "--n=2", "--n=3")._replace(figure="a/curve.svg"),
        "two": paper("two", "--n=4"),
        "bad": paper("bad", "--n=4 --fail=1"),
    }
    monkeypatch.setattr(papers, "PAPERS", shelf)
    docs = tmp_path / "docs"
    docs.mkdir()

    def run(*argv):
        given = ["--overwrite", f"--out={tmp_path / 'run'}", f"--docs={docs}", *argv]
        return papers.main(["papers.py", *given])

    return run


def page(tmp_path):
    return (tmp_path / "docs" / "RESULTS.md").read_text()


def test_a_row_of_the_page_is_one_line_and_verdicts_are_counted(shelf, tmp_path):
    summary = shelf("--run=one,two")
    row = "| [one](#one) | it is even | 2 | 2 \\| of all | 1 of 3 | **holds** |"
    assert row in page(tmp_path) and "0.25 kWh (RAPL)" in page(tmp_path)
    assert "](failing.md)" in page(tmp_path).split(row)[0]
    assert (summary["holds"], summary["fails"], summary["untested"]) == (2, 0, 2)
    assert summary["one_1"] == "holds"
    assert (tmp_path / "docs/results/one.svg").exists()


def test_the_page_is_in_the_run_folder_and_the_last_line_counts(
    shelf, tmp_path, capsys
):
    papers.main(["papers.py", "--run=one,two", f"--out={tmp_path / 'run'}"])
    assert (tmp_path / "run/RESULTS.md").exists()
    assert (tmp_path / "run/results/one.json").exists()
    assert not any((tmp_path / "docs").iterdir())
    words = " ".join(capsys.readouterr().out.split())
    assert "2 of 2 papers ran; 2 of 4 claims hold, 0 fail, 2 are not testable" in words


def test_time_left_is_known_before_the_first_paper_ends():
    quick = papers_runs.seconds(PAPERS, ["hogwild"], "quick")
    assert quick == PAPERS["hogwild"].seconds[1] > 0
    assert papers_runs.seconds(PAPERS, ["hogwild"], "tiny") == 0


def test_one_paper_replaces_its_own_part_of_the_page(shelf, tmp_path):
    shelf("--run=one,two")
    before = page(tmp_path)
    shelf("--run=one", "--quick")
    after = page(tmp_path)
    assert "**holds**" in before.split("## two")[0].split("## one")[1]
    assert "**fails**" in after.split("## two")[0].split("## one")[1]
    assert before.split("## two")[1] == after.split("## two")[1]
    assert after.count("[one](#one)") == after.count("[two](#two)") == 1
    assert "size quick" in after and "size full" in after


def test_a_command_that_fails_leaves_its_paper_untested(shelf, tmp_path, capfd):
    with pytest.raises(SystemExit) as ended:
        shelf("--run=bad,two")
    assert ended.value.code == 1
    assert "failed commands of bad" in capfd.readouterr().err
    assert "fake.py ended with code 3: no such thing" in page(tmp_path)
    summary = read_summary(tmp_path / "run")
    assert summary["two_1"] == "holds"
    assert (summary["papers_failed"], summary["bad_1"]) == (1, "not testable here")


def test_docs_that_cannot_be_written_are_refused_before_anything_runs(shelf, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="folder to write to, .*pass --docs=<another>"):
        shelf("--run=one", f"--docs={tmp_path / 'file'}")
    assert not (tmp_path / "run").exists()


def test_a_broken_record_is_named_before_anything_runs(shelf, tmp_path):
    shelf("--run=one")
    record = tmp_path / "docs/results/one.json"
    record.write_text("<<<<<<< ours\n" + record.read_text())
    with pytest.raises(BadInput, match="expected JSON in .*one.json"):
        shelf("--run=two", f"--out={tmp_path / 'other'}")
    assert not (tmp_path / "other").exists()


def test_a_record_is_replaced_whole(shelf, tmp_path, monkeypatch):
    shelf("--run=one")
    kept = tmp_path / "docs/results/one.json"
    before = kept.read_text(), page(tmp_path)

    def full(part, path):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(BadInput, match="no space left"):
        papers_page.write_record(tmp_path / "docs", {"name": "one"})
    assert (kept.read_text(), page(tmp_path)) == before


def test_energy_of_a_paper_is_that_of_all_its_runs_or_unknown():
    known = [{"energy_kwh": kwh, "energy_source": "RAPL"} for kwh in (0.25, 0.5)]
    runs = {k: results.Run(ROOT, {}, {}, one, []) for k, one in enumerate([*known, {}])}
    assert papers_runs.energy(runs) == {"energy_kwh": None, "energy_source": "RAPL"}
    del runs[2]
    assert papers_runs.energy(runs)["energy_kwh"] == 0.75


def test_a_size_replaces_flags_of_the_same_name():
    command = Command("x.py", "--a=1 --b=2 --laws=c:1;d:2", "--b=3 --nod", "--a=")
    assert command.words("full") == ["--a=1", "--b=2", "--laws=c:1;d:2"]
    assert command.words("quick") == ["--a=1", "--b=3", "--laws=c:1;d:2", "--nod"]
    assert command.words("tiny") == ["--a=", "--b=2", "--laws=c:1;d:2"]
    shown = papers_runs.command_line(command._replace(ranks=4), "full")
    assert shown == ("mpirun -n 4 python experiments/x.py --a=1 --b=2 '--laws=c:1;d:2'")
    virtual = command._replace(ranks=4, tiny="--simulate=3")
    assert [virtual.processes(size) for size in ("full", "tiny")] == [4, 0]


@pytest.mark.parametrize(
    "script",
    sorted({one.script for p in PAPERS.values() for one in p.commands.values()}),
)
def test_a_script_has_the_flags_that_papers_pass(script):
    known = import_module(script.removesuffix(".py")).FLAGS
    commands = [c for p in PAPERS.values() for c in p.commands.values()]
    for command in (one for one in commands if one.script == script):
        for size in SIZES:
            flags.parse(known, [script, *command.words(size)])


def run_here(command, size, path):
    """Run a command in this process."""
    name = command.script.removesuffix(".py")
    import_module(name).main([name, *command.words(size), f"--out={path}"])
    return results.read(path)


IN_PROCESSES = "byteps"  # has two commands, one of them on ranks
HERE = ["gpipe", "bert_large", "stragglers", "strubell"]


@pytest.mark.mpi
@pytest.mark.parametrize("name", [IN_PROCESSES, *HERE])
def test_a_paper_runs_by_its_real_commands(name, tmp_path, monkeypatch):
    if name in HERE:
        monkeypatch.setattr(papers_runs, "run_command", run_here)
    record = papers_runs.record(PAPERS[name], "tiny", tmp_path, "abc")
    assert not record["failed"] and record["commit"] == "abc"
    assert len(record["findings"]) == len(PAPERS[name].claims)
    assert not any("run has no" in one["because"] for one in record["findings"])
    for judged, one in zip(PAPERS[name].claims, record["findings"], strict=True):
        if len(judged.commands) == 1:
            run, rule = results.read(tmp_path / judged.commands[0]), judged.claim.name
            assert run.summary[f"verdict_{rule}"] == one["verdict"]
            assert run.summary[f"found_{rule}"] == one["ours"]
    assert papers_page.page([record]).count("| **") == len(record["findings"])


def test_the_page_of_the_docs_is_that_of_its_records():
    docs = ROOT / "docs"
    records = papers_page.read_records(docs, PAPERS)
    drawn = {one["name"] for one in records if papers_page.picture(docs, one).exists()}
    assert papers_page.page(records, drawn) == (docs / "RESULTS.md").read_text()


@pytest.mark.parametrize("change, why", [
    ({}, []),
    ({"commit": "abc-dirty"}, ["it is from a modified tree"]),
    ({"commit": ""}, ["it is from a modified tree"]),
    ({"size": "quick"}, ["its size is quick"]),
    ({"load": 1.2}, ["its machine had a load of 1.2 beside it"]),
    ({"load": None}, ["the load of its machine was not recorded"]),
    ({"commit": "a-dirty", "load": 9.0},
     ["it is from a modified tree", "its machine had a load of 9 beside it"]),
])  # fmt: skip
def test_a_record_that_does_not_count_has_the_reasons(change, why):
    good = {"commit": "abc", "size": "full", "load": 0.3}
    assert papers_page.doubts(good | change) == why
