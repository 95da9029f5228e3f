import allreduce
import collectives
import pytest

from dml.types import BadInput
from tests.experiments.run_folder import check_folder, read_rows
from tests.wire.comm import orders

KEYS = {"algorithm", "registered", "bytes", "p", "seconds", "native_seconds"}
KEYS |= {"speedup", "predicted_seconds", "words_sent", "sha256"}

ALL = "--algorithms=all"


def run(out, *argv):
    return allreduce.main(["allreduce.py", f"--out={out}", "--overwrite", *argv])


def test_virtual_ranks_take_as_long_as_predicted_for_every_cell(tmp_path):
    run(tmp_path, "--simulate=6", "--sizes=60B,4KB", "--group=2x3", ALL)
    found = read_rows(tmp_path)
    assert len(found) == 2 * 2 * len(allreduce.ALLREDUCE)
    for row in found:
        assert set(row) >= KEYS
        if row["algorithm"] in orders.BASIC:
            assert row["seconds"] == pytest.approx(row["predicted_seconds"], rel=1e-9)
        else:  # an upper bound for unequal chunks
            assert row["seconds"] <= row["predicted_seconds"] * (1 + 1e-9)
    ring = next(row for row in found if row["algorithm"] == "ring")
    assert ring["words_sent"] == 2 * 5 * 15


def test_the_choices_of_auto_and_auto_all_are_explained(tmp_path):
    """They have the least predicted seconds; nothing is faster than the optimum."""
    flags = "--explain", "--buffers=plain", ALL
    run(tmp_path, "--simulate=16", "--network=torus:4x4", "--sizes=1MB", *flags)
    rows = read_rows(tmp_path)
    named = {row["algorithm"]: row for row in rows if row["algorithm"][:4] != "auto"}
    keys = {"auto": "predicted_seconds", "auto_all": "network_seconds"}
    for choice, key in keys.items():
        candidates = [row for row in named.values() if row[choice]]
        (chosen,) = [row for row in candidates if row[choice] == "chosen"]
        assert chosen[key] == min(row[key] for row in candidates)
        (called,) = [row for row in rows if row["algorithm"] == choice]
        assert called["seconds"] == pytest.approx(chosen["seconds"])
    assert {"ring", "butterfly"} < {name for name, row in named.items() if row["auto"]}
    assert {n for n, row in named.items() if not row["auto_all"]} == {
        "hierarchical",  # every rank is a host
        "native",
    }
    for name in ("ring", "swing", "torus", "halving_doubling"):
        assert named[name]["network_seconds"] == pytest.approx(named[name]["seconds"])
    for row in rows:
        assert (row["bound_seconds"] is None) == (not row["words_sent"])
        assert row["bound_seconds"] is None or row["bound_seconds"] < row["seconds"]


def test_the_summary_compares_auto_and_the_folder_has_a_figure(tmp_path, capsys):
    (summary, *others) = run(tmp_path, "--simulate=3", "--sizes=1KB", "--check")
    check_folder(tmp_path, summary, "allreduce.svg", "allreduce.png")
    assert all(other == summary for other in others)
    assert summary["speedup_1024"] > 0
    assert summary["plain_speedup_1024"] > 0
    assert "memcpy_share_1024" in summary
    *_, finding, count = capsys.readouterr().out.splitlines()
    assert finding.startswith("Fastest on 3 ranks: shared for 1 KB (")
    conclusion = "0 of 1 published results hold (1 not testable here). "
    assert count == f"{conclusion}The results are in {tmp_path}."


def test_computation_hides_most_of_an_allreduce_of_messages(tmp_path):
    shares, names = {}, "tree,butterfly,halving_doubling,ring,hierarchical,native"
    for overlap in ("0.5", "3"):
        flags = "--simulate=6", "--sizes=4MB", "--group=2", f"--algorithms={names}"
        run(tmp_path, *flags, f"--overlap={overlap}")
        rows = read_rows(tmp_path)
        shares[overlap] = {row["algorithm"]: row["hidden_share"] for row in rows}
    for name in names.split(",")[:-1]:
        assert 0.5 < shares["0.5"][name] <= 1 and 0.85 < shares["3"][name] <= 1
    assert shares["3"]["native"] == pytest.approx(0)  # it is over at the first poll


def test_integers_and_one_real_rank_race_too(tmp_path):
    run(tmp_path, "--sizes=4KB", "--repeats=1", "--dtype=int64", "--buffers=plain")
    assert len({row["sha256"] for row in read_rows(tmp_path)}) == 1


def test_runs_under_several_mpis_are_joined_in_one_table(tmp_path, capsys):
    """The speeds are those relative to the fastest MPI library."""
    folders = [tmp_path / name for name in ("one-1", "one-2", "other-1")]
    for folder, algorithms in zip(
        folders, ("ring,star,native,auto", "ring", "tree"), strict=True
    ):
        flags = f"--algorithms={algorithms}", "--sizes=4KB,8KB", "--repeats=1"
        run(folder, *flags)
    joined = f"--join={','.join(map(str, folders))}"
    (summary,) = run(tmp_path / "joined", joined, "--wide")
    assert summary == {"rows": 4, "libraries": ["one", "other"]} | summary
    found = read_rows(tmp_path / "joined")
    rows = [[*read_rows(folder)] for folder in folders]
    for row in found:
        same = [
            [
                r
                for r in each
                if all(r[key] == row[key] for key in ("bytes", "registered"))
            ]
            for each in rows
        ]
        same[:2] = [same[0] + same[1]]  # two runs under one library
        native = [min(r["native_seconds"] for r in each) for each in same]
        assert native == [row["one_seconds"], row["other_seconds"]]
        assert row["mpi_seconds"] == min(native)
        every = sorted(sum(same, []), key=lambda r: -r["seconds"])
        own = {r["algorithm"]: r["seconds"] for r in every}
        assert row["auto_seconds"] == own.pop("auto")
        assert own.pop("native") > 0
        assert row["algorithm"] == min(own, key=own.get)
        assert row["library"] == ("other" if row["algorithm"] == "tree" else "one")
    assert "The fastest algorithm has at least" in " ".join(
        capsys.readouterr().out.split()
    )
    collective = tmp_path / "one-3"
    collectives.main(
        [
            "collectives.py",
            f"--out={collective}",
            "--collectives=broadcast,all_to_all",
            "--sizes=4KB",
            "--repeats=1",
        ]
    )
    run(tmp_path / "further", f"{joined},{collective}")
    further = {
        (row["collective"], row["registered"]): row
        for row in read_rows(tmp_path / "further")
    }
    for name in ("broadcast", "all_to_all"):
        plain, registered = further[name, False], further[name, True]
        timed = [r for r in read_rows(collective) if r["collective"] == name]
        of_plain = [row["seconds"] for row in timed if not row["registered"]]
        assert plain["seconds"] == min(of_plain)
        assert registered["seconds"] == min(row["seconds"] for row in timed)
        assert plain["one_seconds"] > 0 and plain["other_seconds"] is None
    virtual = tmp_path / "virtual"
    run(virtual, "--simulate=2", "--sizes=4KB", "--algorithms=ring")
    with pytest.raises(BadInput, match="or collectives.py on real ranks, got"):
        run(tmp_path / "joined", f"--join={virtual}")
