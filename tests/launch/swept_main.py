"""A script as an experiment is, that loads nothing: it says what it was given."""

import json
import os
import sys
import time

HELP = """
  --lr: Rate.
  --seed: Of every draw.
  --text: Any.
  --n: Its own.
  --wait: Seconds.
  --[no]lost: A switch.
  --out: Run folder.
"""

if "--help" in sys.argv:
    sys.stdout.write(HELP)
    sys.exit()
flags = dict(argument[2:].split("=", 1) for argument in sys.argv[1:])
begun = time.monotonic()
if os.environ.get("PMI_RANK", "0") == "0":
    with open(f"{flags['out']}/config.json", "w") as file:
        json.dump({"flags": flags}, file)
    print("begun", flush=True)
hangs = flags.get("lr", "") in os.environ.get("HANGS", "none").split(",")
time.sleep(3600 if hangs else float(flags.get("wait", 0)))
if flags.get("text") == "fail":
    sys.exit("a line before\nexpected luck, got none")
if os.environ.get("PMI_RANK", "0") == "0":
    with open(f"{flags['out']}/summary.json", "w") as file:
        summary = {
            "loss": float(flags.get("lr", 1)) + int(flags["seed"]) ** 2,
            "seed": "taken",
            "begun": begun,
            "ended": time.monotonic(),
            "cores": ",".join(map(str, sorted(os.sched_getaffinity(0)))),
            "threads": os.environ["OMP_NUM_THREADS"],
            "text": flags.get("text"),
        }
        json.dump(summary, file)
