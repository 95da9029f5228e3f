"""What the scripts that start runs promise; conftest.py holds the fakes."""

import json
import shutil

import pytest

from tests.launch.conftest import TESTED, VERSION

THREADS = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"]
THREADS += ["NUMBA_NUM_THREADS", "NPROC"]

# A foreign mpirun starts each rank as a world of its own.
TWO_WORLDS = '#!/bin/sh\nshift 2\n"$@"\n"$@"\n'

HYDRA = """#!/bin/sh
case $1 in
--version) echo HYDRA build details: ;;
-n) export SIZE=$2; shift 2; "$@"; "$@" ;;
*) printf '%s\\n' "$@"; echo "threads $NPROC agent $OMPI_MCA_plm_rsh_agent" ;;
esac
"""
OPEN_MPI = HYDRA.replace("HYDRA build details:", "'mpirun (Open MPI) 5.0.8'")


def seen(run, ranks=1):
    """Return what the script saw (argv, cwd, env), the same on every rank."""
    lines = run.stdout.splitlines()
    assert lines == lines[:1] * ranks, run.stderr
    return json.loads(lines[0])


def test_the_first_start_makes_the_environment_and_the_next_prints_one_line(house):
    first = house.run("experiments/echo.py")
    assert (first.returncode, len(house.installs())) == (0, 1)
    assert "making .venv with python3" in first.stderr
    second = house.run("-n", "4", "experiments/echo.py")
    assert second.stderr == "launch: 4 ranks, 1 thread each, mpirun from .venv\n"
    assert len(house.installs()) == 1


@pytest.mark.parametrize("name", ["requirements.txt", "setup.cfg", TESTED])
def test_changed_requirements_are_installed_again(house, name):
    house.run("experiments/echo.py")
    house.write(house.root / name, "changed")
    again = house.run("experiments/echo.py")
    assert "making" not in again.stderr
    assert len(house.installs()) == 2


@pytest.mark.parametrize(
    "start, threads", [([], 4), (["-n", "1"], 4), (["-n", "3"], 1), (["-n", "9"], 1)]
)
def test_arguments_directory_output_and_exit_code_pass_untouched(
    house, tmp_path, start, threads
):
    """Each rank gets its share of the cores."""
    arguments = ["a  b", "*", "", "-n", "$HOME", "--flag=c d"]
    run = house.run(*start, "experiments/echo.py", *arguments, cwd=tmp_path, CODE="7")
    assert run.returncode == 7
    saw = seen(run, ranks=int(start[1]) if start else 1)
    assert (saw["argv"], saw["cwd"]) == (arguments, str(tmp_path.resolve()))
    assert saw["env"].get("SIZE") == (start[1] if start else None)
    assert [saw["env"][name] for name in THREADS] == [str(threads)] * len(THREADS)


def test_what_the_user_has_set_stays(house):
    env = seen(house.run("experiments/echo.py"))["env"]
    assert env["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"
    given = {"OMP_NUM_THREADS": "3", "GLIBC_TUNABLES": "glibc.x=1"}
    run = house.run("-n", "2", "experiments/echo.py", **given)
    env = seen(run, ranks=2)["env"]
    assert env.items() >= given.items() and env["NPROC"] == "2"
    assert "OMP_NUM_THREADS=3 as set" in run.stderr


BAD_HOSTS = {
    "# none\n": "expected one host per line in",
    "a:4\nb:0\n": "in line 2 of",
    "a:x": "got 'a:x'",
    "a slots = 4": "in line 1 of",
    "-oProxyCommand=evil": "in line 1 of",
    "a;reboot": "in line 1 of",
}


@pytest.mark.parametrize(
    "script, hosts, arguments, says",
    [
        ("local", None, "", "a script, got none"),
        ("local", None, "experiments/no.py", "a script, got 'experiments/no.py'"),
        ("local", None, "--flag SCRIPT", "or a script first, got '--flag'"),
        ("local", None, "-n", "a positive integer after -n, got ''"),
        ("local", None, "-n 0 SCRIPT", "a positive integer after -n, got '0'"),
        ("local", None, "-n 2x SCRIPT", "a positive integer after -n, got '2x'"),
        ("local", None, "-n 257 SCRIPT", "at most 256 ranks (64 per core), got 257"),
        ("local", None, f"-n {2**64 + 1} SCRIPT", f"got {2**64 + 1}"),
        *(("hosts", text, "SCRIPT", says) for text, says in BAD_HOSTS.items()),
        ("hosts", None, "SCRIPT", "expected --hosts=FILE, got none"),
        ("hosts", None, "--hosts=/no/such SCRIPT", "a file of hosts, got '/no/such'"),
        ("hosts", None, "--hosts=/ SCRIPT", "a file of hosts, got '/'"),
        ("hosts", "a:2", "-n 3 SCRIPT", "expected at most 2 ranks, the slots in"),
        ("hosts", "a:2", "-n 0 SCRIPT", "a positive integer after -n, got '0'"),
        ("hosts", "a:2", "--launcher=/no SCRIPT", "after --launcher, got '/no'"),
        ("hosts", "a:2", "--launch=ssh SCRIPT", "a script first, got '--launch=ssh'"),
        ("hosts", "a:2", "", "expected a script, got none"),
        ("local", None, "--spares=1 -n 2 SCRIPT", "expected --elastic with --spares"),
        ("local", None, "--elastic SCRIPT", "expected -n P with --elastic, got none"),
        ("local", None, "-n 2 --elastic --devices=2 SCRIPT", "or --devices, got both"),
        ("local", None, "--mpi=mpich SCRIPT", "after --mpi, got 'mpich'"),
        ("local", None, "--python=3 SCRIPT", "after --python, got '3'"),
        ("test", None, "--python=python3.12 tests", "after --python, got 'python3.12'"),
        ("lock", None, "", "versions of Python, got none"),
        ("elastic", None, "SCRIPT", "expected -n P, got none"),
        ("elastic", None, "-n 2 --spares=-1 SCRIPT", "or 0 after --spares, got '-1'"),
        ("elastic", None, "-n 2 --attempts=0 SCRIPT", "after --attempts, got '0'"),
        ("elastic", None, "-n 2 --flag SCRIPT", "a script first, got '--flag'"),
        ("elastic", None, "-n 2 no.py", "a script, got 'no.py', which is no file"),
        ("namespaces", None, "-n 0 SCRIPT", "a positive integer after -n, got '0'"),
        ("namespaces", None, "", "expected a script, got none"),
        ("namespaces", None, "--hosts=1 SCRIPT", "expected --hosts=2 to 200, got '1'"),
        ("namespaces", None, "--rate=fast SCRIPT", "expected a rate such as 160mbit"),
    ],
)
def test_bad_use_is_one_line_and_code_2_before_any_set_up(
    house, script, hosts, arguments, says
):
    given = arguments.replace("SCRIPT", "experiments/echo.py").split()
    if hosts is not None:
        house.write(house.root / "hosts", hosts)
        given.insert(0, "--hosts=hosts")
    run = house.run(*given, script=script)
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1)
    assert run.stderr.startswith("launch: expected ") and says in run.stderr
    assert not (house.root / ".venv").exists()


def test_a_failed_install_prints_the_reason_and_does_not_count_as_ready(house):
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
    old = "#!/bin/sh\n[ $1 = --version ] && echo Python 3.9.1\n"
    house.write(house.bin / "python3", old)
    run = house.run("experiments/echo.py")
    assert run.returncode == 0
    assert "making .venv with python3.12" in run.stderr
    (house.root / ".venv/installed").unlink()
    (house.root / ".venv/bin/pip").unlink()
    (house.bin / "python3.12").unlink()
    run = house.run("experiments/echo.py")
    assert (run.returncode, run.stderr.count("\n")) == (1, 1)
    assert run.stderr.startswith("launch: expected a python3 >= 3.11")
    assert "found Python 3.9.1" in run.stderr


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
    with_cuda = f"install -r requirements.txt -e .[cuda12] -c {TESTED}"
    assert house.installs()[1:] == [with_cuda]
    (house.bin / "nvidia-smi").unlink()
    house.run("experiments/echo.py")
    assert len(house.installs()) == 2


@pytest.mark.parametrize(
    "failing, code, cores, workers",
    [
        ({}, 0, 64, 4),
        ({"PYTEST": "5"}, 5, 2, 2),
        ({"MYPY": "2", "PYTEST": "1", "RUFF": "0"}, 2, 1, 1),
    ],
)
def test_every_check_runs_and_the_first_failure_is_the_code(
    house, tmp_path, failing, code, cores, workers
):
    """A core gets a worker of the tests, up to four."""
    house.write(house.bin / "nproc", f"#!/bin/sh\necho {cores}\n")
    run = house.run("-k", "a  b", script="test", cwd=tmp_path, **failing)
    assert run.returncode == code
    assert run.stdout.splitlines() == [
        "['ruff', 'format', '--check', '.'] in the house",
        "['ruff', 'check', '.'] in the house",
        "['mypy', 'dml'] in the house",
        f"['pytest', '-n', '{workers}', '-k', 'a  b'] in the house",
    ]


def test_tests_add_their_packages_to_the_environment_of_experiments(house):
    house.run("experiments/echo.py")
    for _ in range(2):
        assert house.run(script="test").returncode == 0
    assert house.run("experiments/echo.py").returncode == 0
    assert house.installs() == [
        f"install -r {file} -c {TESTED}"
        for file in ("requirements.txt", "launch/requirements_test.txt")
    ]
    house.write(house.root / "launch/requirements_test.txt", "changed")
    house.run("experiments/echo.py")
    assert len(house.installs()) == 2
    house.run(script="test")
    assert len(house.installs()) == 3


@pytest.mark.parametrize(
    "options, environment, with_versions",
    [
        ("", ".venv", True),
        ("--latest", ".venv-latest", False),
        (f"--python={VERSION}", f".venv-{VERSION}", True),
        (f"--mpi=openmpi --python={VERSION}", f".venv-{VERSION}-openmpi", True),
    ],
)
def test_options_of_the_environment_have_one_each(
    house, options, environment, with_versions
):
    house.run("experiments/echo.py")
    run = house.run(*options.split(), "-n", "2", "experiments/echo.py")
    assert run.returncode == 0, run.stderr
    assert seen(run, ranks=2)["env"]["MPIRUN"].endswith(f"{environment}/bin/mpirun")
    (line,) = {*house.installs()[-1:]}
    assert line.endswith(f" -c {TESTED}") == with_versions
    assert {path.name for path in house.root.glob(".venv*")} == {".venv", environment}


def test_a_python_without_tested_versions_gets_the_newest(house):
    (house.root / TESTED).unlink()
    run = house.run("experiments/echo.py")
    assert f"launch: no {TESTED}: the newest versions are installed" in run.stderr
    assert house.installs() == ["install -r requirements.txt"]


def test_a_version_is_found_on_path_or_among_those_of_pyenv(house, tmp_path):
    """A shim of pyenv fails if its version is not selected."""
    run = house.run("--python=3.99", "experiments/echo.py")
    assert (run.returncode, run.stderr.count("\n")) == (1, 1)
    assert "expected a Python 3.99 with its venv module, found none" in run.stderr
    shim = "#!/bin/sh\necho pyenv: command not found >&2; exit 127\n"
    house.write(house.bin / f"python{VERSION}", shim)
    place = tmp_path / f"pyenv/versions/{VERSION}.7/bin/python3"
    house.write(place, (house.bin / "python3").read_text())
    house.write(house.bin / "python3", shim)
    given = {"PYENV_ROOT": str(tmp_path / "pyenv")}
    for options in ([f"--python={VERSION}"], []):
        run = house.run(*options, "experiments/echo.py", **given)
        assert run.returncode == 0, run.stderr
        assert f"with {place}" in run.stderr


def test_an_environment_elsewhere_is_used_by_several_clones(house, tmp_path):
    given = {"DML_ENVIRONMENTS": "../shared"}
    for _ in range(2):
        run = house.run("experiments/echo.py", **given)
        assert seen(run)["env"]["PYTHONPATH"] == str(house.root.resolve())
        run = house.run("--smoke", script="test", **given)
        assert run.returncode == 0, run.stderr
        assert "mypy" in run.stdout and "@tests/smoke.txt" in run.stdout
        assert "ruff" not in run.stdout
        house.root = house.root.rename(tmp_path / "the house moved")
    assert len(house.installs()) == 2  # of experiments and of tests
    assert (tmp_path / "shared/.venv/installed").exists()


def test_open_mpi_runs_the_tests_with_real_ranks(house):
    run = house.run("--mpi=openmpi", "-x", script="test")
    assert run.stdout.splitlines() == [
        "['pytest', '-n', '4', '-m', 'mpi', '-x'] in the house"
    ]


@pytest.mark.parametrize(
    "log, said",
    [
        ("", "pip has found 0 packages: "),
        (
            "Collecting jax\n  Using cached jax.whl\nCollecting numpy<3\n"
            f"  Downloading numpy-2.whl ({'x' * 80})\nWARNING: x\n",
            "pip has found 2 packages: Downloading numpy-2.whl (" + 35 * "x",
        ),
        (
            "Collecting jax\nInstalling collected packages: numpy, jax, flax\n",
            "pip has installed 1 of 3 packages",
        ),
    ],
)
def test_progress_counts_what_pip_has_found_and_installed(house, log, said):
    packages = house.root / ".venv/lib/python3.99/site-packages"
    for name in ("before", "jax"):
        (packages / f"{name}.dist-info").mkdir(parents=True)
    house.write(house.root / "pip.log", log)
    house.write(
        house.root / "launch/status.sh",
        "#!/bin/bash\nset -euo pipefail\nsource launch/environment.sh\n"
        "pip_status pip.log 1\n",
    )
    run = house.run(script="status")
    assert (run.stdout, run.stderr) == (f"{said}\n", "")


# launch/hosts.sh: a file of hosts in, the line for the mpirun that is found out.


@pytest.fixture
def hosts(house, tmp_path):
    """Run the script on a file with this text; return what ended."""
    house.write(house.bin / "ssh", "#!/bin/sh\n")
    house.write(house.bin / "mpirun", HYDRA)

    def run(text, *arguments, **env):
        (tmp_path / "hosts").write_text(text)
        file = f"--hosts={tmp_path / 'hosts'}"
        command = [file, *arguments, "experiments/echo.py", "--a=b c"]
        return house.run(*command, script="hosts", **env)

    return run


@pytest.mark.parametrize(
    "text, wanted, ranks",
    [
        ("a:4\nb\n", "a:4,b:1", 5),
        ("a slots=4\n  b   slots=2  # a comment\n", "a:4,b:2", 6),
        ("# all\n\n10.0.0.1:2\nnode-7.local\tslots=1", "10.0.0.1:2,node-7.local:1", 3),
        ("a:1\nb:1\na:1\n", "a:1,b:1,a:1", 3),
        ("a:2\r\nb:2\r\n", "a:2,b:2", 4),
    ],
)
def test_both_spellings_of_slots_become_the_hosts_of_mpich(hosts, text, wanted, ranks):
    run = hosts(text)
    assert run.returncode == 0, run.stderr
    options = run.stdout.splitlines()
    assert options[options.index("-hosts") + 1] == wanted
    assert options[options.index("-n") + 1] == str(ranks)
    assert options[-3].endswith("experiments/echo.py")
    assert options[-2] == "--a=b c"


def test_open_mpi_gets_its_own_options_and_the_variables_it_would_keep(house, hosts):
    house.write(house.bin / "mpirun", OPEN_MPI)
    run = hosts("a:4\nb:2\n", "-n", "3", DML_X="1", SECRET="2", JAX_PLATFORMS="cpu")
    options = run.stdout.splitlines()
    assert options[:4] == ["--host", "a:4,b:2", "--map-by", "slot"]
    assert options[options.index("-n") + 1] == "3"
    passed = {options[i + 1] for i, one in enumerate(options) if one == "-x"}
    assert {"DML_X", "JAX_PLATFORMS", "PATH", "OMP_NUM_THREADS", "NPROC"} < passed
    assert not passed & {"SECRET", "FAKES", "HOME"}
    assert options[-1].endswith(f"agent {house.bin}/ssh")
    assert "3 ranks on 2 hosts" in run.stderr and "Open MPI" in run.stderr


def test_a_launcher_of_ones_own_starts_commands_and_one_host_needs_no_ssh(house, hosts):
    house.write(house.root / "enter", "#!/bin/sh\n")
    (house.bin / "ssh").unlink()
    run = hosts("a\nb\n", "--launcher=./enter")
    options = run.stdout.splitlines()
    assert options[options.index("-launcher-exec") + 1] == f"{house.root}/enter"
    assert options[options.index("-launcher") + 1] == "ssh"  # how it is called
    run = hosts("localhost:2\n")
    assert run.returncode == 0
    assert "-launcher-exec" not in run.stdout
    assert "2 ranks on 1 host, 2 threads each" in run.stderr
    run = hosts("a\nb\n")
    assert (run.returncode, run.stdout) == (2, "")
    assert "expected ssh to reach 2 hosts, got none on PATH" in run.stderr


def test_threads_are_shared_by_the_ranks_of_the_fullest_host(hosts):
    for text, threads in (("a:2\nb:1\n", 2), ("a:1\nb:1\n", 4), ("a:1\na:3\n", 1)):
        assert f"threads {threads} agent" in hosts(text).stdout


@pytest.mark.parametrize("script", ["local", "hosts"])
def test_no_mpi_is_one_line_with_the_two_ways_to_get_one(house, hosts, script):
    house.run("experiments/echo.py")  # makes the environment
    (house.root / ".venv/bin/mpirun").unlink()
    (house.bin / "mpirun").unlink()
    if script == "hosts":
        run = hosts("a:2\n")
    else:
        run = house.run("-n", "2", "experiments/echo.py")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.count("\n") == 1
    assert "launch/local.sh installs" in run.stderr and "apt-get install" in run.stderr
