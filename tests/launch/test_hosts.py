"""launch/hosts.sh: a file of hosts in, the line for the mpirun that is found out."""

import subprocess

import pytest

HYDRA = """#!/bin/sh
case $1 in
--version) echo HYDRA build details: ;;
-n) export SIZE=$2; shift 2; "$@"; "$@" ;;
*) printf '%s\\n' "$@"; echo "threads $NPROC agent $OMPI_MCA_plm_rsh_agent" ;;
esac
"""
OPEN_MPI = HYDRA.replace("HYDRA build details:", "'mpirun (Open MPI) 5.0.8'")


@pytest.fixture
def hosts(house, tmp_path):
    """Run the script on a file with this text; return what ended."""
    house.write(house.bin / "ssh", "#!/bin/sh\n")
    house.write(house.bin / "mpirun", HYDRA)

    def run(text, *arguments, **env):
        (tmp_path / "hosts").write_text(text)
        file = f"--hosts={tmp_path / 'hosts'}"
        script = [] if arguments[-1:] == ("",) else ["experiments/echo.py", "--a=b c"]
        given = [one for one in arguments if one]
        return house.run(file, *given, *script, script="hosts", **env)

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


def test_a_launcher_of_ones_own_starts_commands_on_other_hosts(house, hosts):
    house.write(house.root / "enter", "#!/bin/sh\n")
    run = hosts("a\nb\n", "--launcher=./enter")
    options = run.stdout.splitlines()
    assert options[options.index("-launcher-exec") + 1] == f"{house.root}/enter"
    assert options[options.index("-launcher") + 1] == "ssh"  # how it is called


def test_one_host_needs_no_ssh(house, hosts):
    (house.bin / "ssh").unlink()
    run = hosts("localhost:2\n")
    assert run.returncode == 0
    assert "-launcher-exec" not in run.stdout
    assert "2 ranks on 1 host, 2 threads each" in run.stderr


def test_threads_are_shared_by_the_ranks_of_the_fullest_host(hosts):
    for text, threads in (("a:2\nb:1\n", 2), ("a:1\nb:1\n", 4), ("a:1\na:3\n", 1)):
        assert f"threads {threads} agent" in hosts(text).stdout


@pytest.mark.parametrize(
    "text, arguments, says",
    [
        ("", [], "expected one host per line in"),
        ("# none\n", [], "expected one host per line in"),
        ("a:4\nb:0\n", [], "in line 2 of"),
        ("a:x", [], "got 'a:x'"),
        ("a b", [], "got 'a b'"),
        ("a slots = 4", [], "in line 1 of"),
        ("-oProxyCommand=evil", [], "in line 1 of"),
        ("a;reboot", [], "in line 1 of"),
        ("a:2", ["-n", "3"], "expected at most 2 ranks, the slots in"),
        ("a:2", ["-n", "0"], "expected a positive integer after -n, got '0'"),
        ("a:2", ["-n"], "expected a positive integer after -n"),
        ("a:2", ["--launcher=/no/such"], "executable after --launcher, got '/no/such'"),
        ("a:2", ["--launch=ssh"], "a script first, got '--launch=ssh'"),
        ("a:2", [""], "expected a script, got none"),
        ("a:2", ["no.py"], "got 'no.py', which is no file"),
    ],
)
def test_bad_use_is_one_line_and_code_2_before_any_set_up(
    house, hosts, text, arguments, says
):
    run = hosts(text, *arguments)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.count("\n") == 1
    assert says in run.stderr
    assert not (house.root / ".venv").exists()


@pytest.mark.parametrize("given", [[], ["--hosts=/no/such"], ["--hosts=/"]])
def test_hosts_come_from_a_file(house, given):
    run = house.run(*given, "experiments/echo.py", script="hosts")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("launch: expected ")
    assert run.stderr.count("\n") == 1


def test_no_ssh_and_no_launcher_is_one_line(house, hosts):
    (house.bin / "ssh").unlink()
    run = hosts("a\nb\n")
    assert (run.returncode, run.stdout) == (2, "")
    assert "expected ssh to reach 2 hosts, got none on PATH" in run.stderr


@pytest.mark.parametrize("script", ["local", "hosts"])
def test_no_mpi_is_one_line_that_says_the_two_ways_to_get_one(house, hosts, script):
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


def test_two_hosts_need_root_a_script_and_a_count(house):
    for given, says in (
        (["-n", "0", "experiments/echo.py"], "a positive integer after -n, got '0'"),
        ([], "expected a script, got none"),
        (["no.py"], "got 'no.py', which is no file"),
    ):
        run = house.run(*given, script="two_hosts")
        assert (run.returncode, run.stderr.count("\n")) == (2, 1)
        assert says in run.stderr


def test_help_is_the_line_of_use(house):
    for script in ("local", "hosts", "two_hosts"):
        run = house.run("--help", script=script)
        assert run.returncode == 0
        assert run.stdout.startswith(f"launch/{script}.sh ")
        top = (house.root / f"launch/{script}.sh").read_text()
        assert f"#     {run.stdout.strip()}\n" in top


def test_scripts_can_be_executed(house):
    for path in (house.root / "launch").glob("*.sh"):
        runs = path.name != "environment.sh"
        assert subprocess.call(["test", "-x", path]) == (0 if runs else 1), path
