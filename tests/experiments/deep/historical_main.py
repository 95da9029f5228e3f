"""Both historical networks by their commands, small, on devices of one process."""

import sys

import translate
import two_towers

TOWERS = ["--data=digits", "--kernel=3", "--stride=1", "--unit=2", "--crossings=3678"]
TRANSLATE = ["--layers=2", "--width=6", "--words=5", "--length=3", "--sentences=40"]
TRANSLATE += ["--held_out=20", "--evaluate_every=2"]
FEW = ["--steps=3", "--batch=8"]


def main(out):
    two_towers.main(["two_towers.py", f"--out={out}/two_towers", *TOWERS, *FEW])
    translate.main(["translate.py", f"--out={out}/translate", *TRANSLATE, *FEW])


if __name__ == "__main__":
    main(sys.argv[1])
