"""Dockerfile and dml.def: linters, the files that they copy, and their steps by fakes.

No container runtime is needed. The step of pip runs in a folder that has only what the
image has by then: its files must suffice to build the metadata of the package.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "launch"
DOCKER = (LAUNCH / "Dockerfile").read_text()
APPTAINER = (LAUNCH / "dml.def").read_text()
JOB = yaml.safe_load((LAUNCH / "mpijob.yaml").read_text())

# A pip that reads its files of requirements and builds the metadata of the package.
PIP = f"""#!{sys.executable}
import pathlib, sys
arguments = sys.argv[1:]
assert arguments[:2] == ["install", "--no-cache-dir"], arguments
pairs = [*zip(arguments, arguments[1:])]
for option, name in pairs:
    if option in ("-r", "-c"):
        assert pathlib.Path(name).stat().st_size, name
from setuptools import build_meta
pathlib.Path(sys.argv[0] + ".metadata").mkdir()
build_meta.prepare_metadata_for_build_wheel(sys.argv[0] + ".metadata")
print([name for option, name in pairs if option in ("-r", "-e")])
"""


def instructions(name):
    """Return the instructions of that name in the Dockerfile, each as one line."""
    lines = re.sub(r"\\\n\s*", "", DOCKER).splitlines()
    return [line.partition(" ")[2] for line in lines if line.startswith(f"{name} ")]


def section(name):
    """Return the lines of a section of dml.def, continued lines joined."""
    parts = re.split(r"^%(\w+)\n", re.sub(r"\\\n\s*", "", APPTAINER), flags=re.M)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    return [line.strip() for line in sections[name].splitlines() if line.strip()]


def tool(name):
    """Return the path of a linter, which the extra `test` has."""
    place = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return shutil.which(name, path=place) or pytest.skip(f"no {name} is installed")


def test_hadolint_accepts_the_dockerfile():
    command = [tool("hadolint"), "--no-color", str(LAUNCH / "Dockerfile")]
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "")


@pytest.mark.parametrize("name", ["post", "environment", "runscript"])
def test_shellcheck_accepts_the_sections_of_the_definition(name):
    command = [tool("shellcheck"), "--shell=sh", "-"]
    text = "\n".join(section(name)).replace("{{ extras }}", "experiments")
    run = subprocess.run(command, input=text, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "")


def image(folder, pairs):
    """Copy files to their places in an image whose root is a folder."""
    for source, place in pairs:
        target = folder / place.lstrip("/")
        if place.endswith("/"):
            target /= Path(source).name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / source, target, ignore=ignored)
        else:
            shutil.copy(ROOT / source, target)


def run_pip(folder, script, **env):
    """Run a step of an image in a folder of it, with the fake of pip."""
    pytest.importorskip("setuptools", reason="the extra `test` has setuptools")
    fake = folder / "bin/pip"
    fake.parent.mkdir()
    fake.write_text(PIP)
    fake.chmod(0o755)
    (folder / "bin/python").symlink_to(sys.executable)
    place = f"{folder / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-euc", script],
        cwd=folder,
        env=os.environ | {"PATH": place} | env,
        capture_output=True,
        text=True,
        timeout=1200,
    )


@pytest.mark.parametrize("extra, more", [("", []), ("cuda12", [".[cuda12]"])])
def test_the_files_of_the_docker_image_suffice_for_its_step_of_pip(
    tmp_path, extra, more
):
    before, _, _ = DOCKER.partition("RUN pip")
    pairs = []
    for line in re.findall(r"^COPY (.+)$", before, re.M):
        *sources, place = line.split()
        place = place if len(sources) == 1 and place != "./" else f"{place}/"
        pairs += [(source, place.removeprefix("./")) for source in sources]
    image(tmp_path, pairs)
    (step,) = (line for line in instructions("RUN") if line.startswith("pip "))
    run = run_pip(tmp_path, step, EXTRA=extra)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == str(["requirements.txt", *more])


def test_the_files_of_the_apptainer_image_suffice_for_its_step_of_pip(tmp_path):
    image(tmp_path, [line.split() for line in section("files")])
    step = "\n".join(section("post")).replace("{{ extras }}", "experiments")
    run = run_pip(tmp_path, step.replace("/opt/dml", f"{tmp_path}/opt/dml"))
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == str([".[experiments]"])


def test_both_images_have_one_python_with_tested_versions():
    (docker,) = (line for line in instructions("ARG") if line.startswith("BASE="))
    (apptainer,) = re.findall(r"^From: (.+)$", APPTAINER, re.M)
    assert docker == f"BASE={apptainer}"
    version = re.fullmatch(r"python:(3\.\d+)-slim", apptainer)[1]
    tested = f"launch/constraints/{version}.txt"
    assert (ROOT / tested).exists()
    assert section("post")[-1].endswith(f" -c {tested}")


@pytest.mark.parametrize(
    "given, wanted",
    [
        (["experiments/x.py", "--a=b c"], ["/opt/dml/experiments/x.py", "--a=b c"]),
        (["mine.py", "-n"], ["mine.py", "-n"]),
        (["-m", "dml.conformance"], ["-m", "dml.conformance"]),
    ],
)
def test_the_image_runs_its_own_experiments_and_files_of_the_user(
    tmp_path, given, wanted
):
    (tmp_path / "python").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "python").chmod(0o755)
    command = ["sh", "-euc", "\n".join(section("runscript")), "sh", *given]
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == wanted


def test_image_and_job_agree_on_user_port_and_place_of_keys():
    container = JOB["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    worker = container["containers"][0]
    user = str(worker["securityContext"]["runAsUser"])
    assert f"--uid {user} mpiuser" in DOCKER
    assert instructions("USER") == [user]
    assert f"ARG PORT={worker['readinessProbe']['tcpSocket']['port']}" in DOCKER
    assert f"HostKey {JOB['spec']['sshAuthMountPath']}/id_rsa" in DOCKER
    assert json.loads(instructions("CMD")[0]) == worker["command"] + worker["args"]
    assert "mpich" in (ROOT / "requirements.txt").read_text().split()
    assert JOB["spec"]["mpiImplementation"] == "MPICH"
    for line in instructions("COPY"):
        *sources, _ = line.split()
        assert all((ROOT / source).exists() for source in sources), line
    client = "StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"
    server = "StrictModes no", "PidFile /home/mpiuser/sshd.pid"
    assert all(f'"{setting}"' in DOCKER for setting in (*client, *server))
    assert DOCKER.count('"Port ${PORT}"') == 2
