"""Write docs/players/: pages that play runs of the code on virtual ranks.

    python launch/players.py

A test compares the pages with what this module writes.
"""

import importlib
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs/players"
SSP = (
    "server --consistency=ssp --staleness=2 --simulate=6 --servers=1 --clocks=12 "
    "--problem=generated --network=0.1,1e-6,0 "
    "--straggle=shifted_exponential:1,2*1,1,1,1,0.5,1 --watch"
)
# The command of each page.
COMMANDS = {
    **{
        name: f"allreduce --watch={name} --simulate=8 --sizes=4MB"
        for name in ("star", "tree", "butterfly", "ring")
    },
    "hierarchical": "allreduce --watch=hierarchical --simulate=8 --sizes=4MB "
    "--network=hosts:2x4",
    "torus": "allreduce --watch=halving_doubling --simulate=16 --sizes=4MB "
    "--network=torus:4x4",
    "broadcast": "allreduce --watch=broadcast:binomial --simulate=8 --sizes=4MB",
    "double_tree": "allreduce --watch=broadcast:double_tree --simulate=8 --sizes=4MB",
    "ssp": SSP,
    "hogwild": "hogwild --watch=lock-free --workers=6",
    "one_f_one_b": "pipeline --watch=1f1b",
    "zero_bubble": "pipeline --watch=zb_h1",
    "gossip": "averaging --watch=exponential --ranks=16",
    "elastic": "elastic --simulate=5 --kills=1 --watch",
}


def write(folder: Path) -> None:
    """Write the pages into a folder."""
    for name, command in COMMANDS.items():
        script, *options = shlex.split(command)
        with tempfile.TemporaryDirectory() as out:
            main = importlib.import_module(script).main
            main([script, *options, f"--out={out}/run"])
            shutil.copyfile(Path(out) / "run/watch.html", folder / f"{name}.html")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "experiments"))
    PAGES.mkdir(exist_ok=True)
    write(PAGES)
    sys.stdout.write(f"{PAGES.relative_to(ROOT)}\n")
