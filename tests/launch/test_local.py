"""What the scripts that start runs promise; conftest.py holds the fakes."""

import json
import shutil

import pytest

THREADS = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"]
THREADS += ["NUMBA_NUM_THREADS", "NPROC"]

# A foreign mpirun starts each rank as a world of its own.
TWO_WORLDS = '#!/bin/sh\nshift 2\n"$@"\n"$@"\n'


def seen(run, ranks=1):
    """Return what the script saw (argv, cwd, env), the same on every rank."""
    lines = run.stdout.splitlines()
    assert lines == lines[:1] * ranks, run.stderr
    return json.loads(lines[0])


def test_the_first_start_makes_the_environment_and_the_next_says_one_line(house):
    first = house.run("experiments/echo.py")
    assert (first.returncode, len(house.installs())) == (0, 1)
    assert "making .venv with python3" in first.stderr
    second = house.run("-n", "4", "experiments/echo.py")
    assert second.stderr == "launch: 4 ranks, 1 thread each, mpirun from .venv\n"
    assert len(house.installs()) == 1


@pytest.mark.parametrize("name", ["requirements.txt", "setup.cfg"])
def test_changed_requirements_are_installed_again(house, name):
    house.run("experiments/echo.py")
    house.write(house.root / name, "changed")
    again = house.run("experiments/echo.py")
    assert "making" not in again.stderr
    assert len(house.installs()) == 2


@pytest.mark.parametrize("start", [[], ["-n", "3"]])
def test_arguments_directory_output_and_exit_code_pass_untouched(
    house, tmp_path, start
):
    arguments = ["a  b", "*", "", "-n", "$HOME", "--flag=c d"]
    run = house.run(*start, "experiments/echo.py", *arguments, cwd=tmp_path, CODE="7")
    assert run.returncode == 7
    saw = seen(run, ranks=int(start[1]) if start else 1)
    assert (saw["argv"], saw["cwd"]) == (arguments, str(tmp_path.resolve()))
    assert saw["env"].get("SIZE") == (start[1] if start else None)


@pytest.mark.parametrize(
    "start, threads", [([], 4), (["-n", "1"], 4), (["-n", "3"], 1), (["-n", "9"], 1)]
)
def test_each_rank_gets_its_share_of_the_cores(house, start, threads):
    run = house.run(*start, "experiments/echo.py")
    env = seen(run, ranks=int(start[1]) if start else 1)["env"]
    assert [env[name] for name in THREADS] == [str(threads)] * len(THREADS)


def test_threads_that_the_user_has_set_stay(house):
    run = house.run("-n", "2", "experiments/echo.py", OMP_NUM_THREADS="3")
    env = seen(run, ranks=2)["env"]
    assert (env["OMP_NUM_THREADS"], env["NPROC"]) == ("3", "2")
    assert "OMP_NUM_THREADS=3 as set" in run.stderr


def test_memory_comes_in_huge_pages_unless_the_user_says_else(house):
    for given, want in ((None, "glibc.malloc.hugetlb=1"), ("glibc.x=1", "glibc.x=1")):
        said = {"GLIBC_TUNABLES": given} if given else {}
        env = seen(house.run("experiments/echo.py", **said), ranks=1)["env"]
        assert env["GLIBC_TUNABLES"] == want


@pytest.mark.parametrize(
    "arguments, expected, got",
    [
        ([], "a script", "none"),
        (["-n", "2"], "a script", "none"),
        (["experiments/no.py"], "a script", "'experiments/no.py'"),
        (["--flag", "experiments/echo.py"], "a script first", "'--flag'"),
        (["-n"], "a positive integer", "''"),
        (["-n", "0", "experiments/echo.py"], "a positive integer", "'0'"),
        (["-n", "-2", "experiments/echo.py"], "a positive integer", "'-2'"),
        (["-n", "2x", "experiments/echo.py"], "a positive integer", "'2x'"),
        (["-n", "257", "experiments/echo.py"], "at most 256 ranks", "257"),
        (["-n", f"{2**64 + 1}", "experiments/echo.py"], "at most", f"{2**64 + 1}"),
    ],
)
def test_bad_use_is_one_line_and_code_2_before_any_set_up(
    house, arguments, expected, got
):
    run = house.run(*arguments)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.count("\n") == 1
    assert f"expected {expected}" in run.stderr.replace("-n P, --devices=D or ", "")
    assert f"got {got}" in run.stderr
    assert not (house.root / ".venv").exists()


def test_a_failed_install_says_why_and_does_not_count_as_ready(house):
    good = (house.root / "requirements.txt").read_text()
    house.run("experiments/echo.py")
    house.write(house.root / "requirements.txt", "nonsense")
    for _ in range(2):
        run = house.run("experiments/echo.py")
        assert (run.returncode, run.stdout) == (1, "")
        assert "expected pip to install" in run.stderr
        assert "no such package: nonsense" in run.stderr
    house.write(house.root / "requirements.txt", good)
    assert house.run("experiments/echo.py").returncode == 0
    assert len(house.installs()) == 4


@pytest.mark.parametrize("lost", ["bin/python", "bin/pip", "bin"])
def test_a_half_made_environment_is_made_anew(house, lost):
    house.run("experiments/echo.py")
    place = house.root / ".venv" / lost
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    (house.root / ".venv/installed").unlink()
    house.write(house.root / ".venv/lib/stray", "left behind")
    run = house.run("experiments/echo.py")
    assert run.returncode == 0
    assert "making .venv" in run.stderr
    assert not (house.root / ".venv/lib/stray").exists()


def test_a_moved_repository_is_installed_again(house, tmp_path):
    house.run("experiments/echo.py")
    house.root = house.root.rename(tmp_path / "moved")
    run = house.run("experiments/echo.py")
    assert run.returncode == 0
    assert "making .venv" in run.stderr


def test_a_python_that_is_old_or_broken_is_passed_over(house):
    (house.bin / "python3").rename(house.bin / "python3.12")
    house.write(house.bin / "python3", "#!/bin/sh\necho Python 3.9.1\nexit 1\n")
    run = house.run("experiments/echo.py")
    assert run.returncode == 0
    assert "making .venv with python3.12" in run.stderr


def test_no_fit_python_is_one_line(house):
    house.write(
        house.bin / "python3",
        "#!/bin/sh\n[ $1 = --version ] && echo Python 3.9.1\n",
    )
    run = house.run("experiments/echo.py")
    assert run.returncode == 1
    assert run.stderr.startswith("launch: expected a python3 >= 3.11")
    assert "found Python 3.9.1" in run.stderr
    assert run.stderr.count("\n") == 1


def test_an_mpirun_on_path_is_taken_if_mpi4py_works_with_it(house):
    house.write(house.bin / "mpirun", (house.fakes / "mpirun").read_text())
    first = house.run("-n", "2", "experiments/echo.py")
    assert seen(first, ranks=2)["env"]["MPIRUN"] == str(house.bin / "mpirun")
    second = house.run("-n", "2", "experiments/echo.py")
    assert f"mpirun from {house.bin}/mpirun" in second.stderr
    assert "checking" in first.stderr and "checking" not in second.stderr


@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\n", TWO_WORLDS])
def test_an_mpirun_on_path_that_does_not_work_is_not_taken(house, text):
    house.write(house.bin / "mpirun", text)
    run = house.run("-n", "2", "experiments/echo.py")
    used = seen(run, ranks=2)["env"]["MPIRUN"]
    assert used == str(house.root / ".venv/bin/mpirun")
    assert "mpirun from .venv" in run.stderr


def test_cuda_is_installed_where_nvidia_smi_answers(house):
    house.run("experiments/echo.py")
    assert "cuda12" not in house.installs()[0]
    house.write(house.bin / "nvidia-smi", "#!/bin/sh\necho 'GPU 0: one'\n")
    house.run("experiments/echo.py")
    assert house.installs()[1:] == ["install -r requirements.txt -e .[cuda12]"]
    (house.bin / "nvidia-smi").unlink()
    house.run("experiments/echo.py")
    assert len(house.installs()) == 2


@pytest.mark.parametrize(
    "failing, code",
    [({}, 0), ({"PYTEST": "5"}, 5), ({"MYPY": "2", "PYTEST": "1", "RUFF": "0"}, 2)],
)
def test_every_check_runs_and_the_first_failure_is_the_code(
    house, tmp_path, failing, code
):
    run = house.run("-k", "a  b", script="test", cwd=tmp_path, **failing)
    assert run.returncode == code
    assert run.stdout.splitlines() == [
        "['ruff', 'format', '--check', '.'] in the house",
        "['ruff', 'check', '.'] in the house",
        "['mypy', 'dml'] in the house",
        "['pytest', '-n', '4', '-k', 'a  b'] in the house",
    ]


@pytest.mark.parametrize("cores, workers", [(1, 1), (2, 2), (64, 4)])
def test_a_core_gets_a_worker_of_the_tests_up_to_four(house, cores, workers):
    house.write(house.bin / "nproc", f"#!/bin/sh\necho {cores}\n")
    run = house.run(script="test")
    assert run.stdout.splitlines()[-1] == f"['pytest', '-n', '{workers}'] in the house"
