"""Claims of Niu et al., HOGWILD!, NIPS 2011, judged by a run of hogwild.py.

Speeds are compared by their speed-up over serial: the median of pairs of turns that ran
one after another, which a slow phase of the host affects alike. (Updates a second are
medians of each strategy alone, and are not compared.) A difference of 5 % is noise, not
3 %: two runs on a quiet machine differ by as much.
"""

import math
from collections.abc import Sequence

from claims import Verdict, claim, nonempty, untested, verdict

from dml.metrics.results import Run
from dml.metrics.writers import Row

LADDER = ("hogwild", "locked", "roundrobin")  # the published order, fastest first
NOISE = 0.05  # of a speed: the difference between two runs on a quiet machine
LEVEL = 0.9  # of HOGWILD!'s speed, from which on round robin is level with it
PARITY_US, CLOSER = 1000.0, 3.0  # of a gradient, published; accepted within this factor
CORES, CORES_USED = 0.5, 10  # share of the published cores below which no test is made
THREEFOLD, GOAL = 3.0, 0.8  # the published speed-up, and the share of it that is asked


def of_most_workers(run: Run) -> dict[str, dict[str, Row]]:
    """Return the rows of the races with the most workers, by problem and strategy."""
    rows = [row for row in run.rows if row["kind"] == "race"]
    most = max(row["workers"] for row in rows)
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row["workers"] == most:
            found.setdefault(row["problem"], {})[row["way"]] = row
    return found


@claim("lock-free >= locked >= round robin", "cut 9x, round robin 5x; RCV1 3x")
def ordered(run: Run) -> Verdict:
    """On every problem, at the most workers, hogwild >= locked >= round robin.

    Speed-ups over serial are compared; 5 % of a speed are noise.
    """
    complete = {
        name: [ways[way]["speedup"] for way in LADDER]
        for name, ways in of_most_workers(run).items()
        if all(way in ways for way in LADDER)
    }
    wrong, texts = [], []
    for name, speeds in nonempty(complete, ", ".join(LADDER)).items():
        pairs = zip(speeds, speeds[1:], strict=False)
        if not all(one >= two * (1 - NOISE) for one, two in pairs):
            wrong.append(name)
        texts.append(f"{name} {' / '.join(f'{speed:.2f}' for speed in speeds)}")
    why = f"not so: {', '.join(wrong)}" if wrong else "so on every problem"
    return verdict(not wrong, f"speed-ups {', '.join(texts)}", why)


@claim("round robin catches up with long gradients", "figure")
def level(run: Run) -> Verdict:
    """Round robin has less than 90 % of HOGWILD!'s speed with the shortest gradients.

    With the longest gradients it has 90 % or more.
    """
    takes, ratios = round_robin(run.rows)
    ours = f"{ratios[0]:.2f} at {takes[0]:.2g} us, {ratios[-1]:.2f} at {takes[-1]:.3g}"
    return verdict(ratios[0] < LEVEL <= ratios[-1], ours, f"asked {LEVEL:g}")


@claim("and only from 1 ms a gradient on", "> 1 ms")
def late(run: Run) -> Verdict:
    """Round robin has 90 % of HOGWILD!'s speed only from 1 ms a gradient on.

    A third of 1 ms is accepted, as machines differ.
    """
    takes, ratios = round_robin(run.rows)
    below = [i for i, ratio in enumerate(ratios) if ratio < LEVEL]
    i = below[-1] if below else -1
    at = takes[i + 1] if i + 1 < len(takes) else math.inf
    ours = f"from {at:.3g} us on" if at < math.inf else f"not up to {takes[-1]:.3g} us"
    asked = PARITY_US / CLOSER
    if at == math.inf and takes[-1] < asked:
        return untested("no gradient took as long", ours)
    return verdict(at >= asked, ours, f"asked {asked:.0f} us or more")


def round_robin(
    rows: Sequence[Row], way: str = LADDER[0]
) -> tuple[list[float], list[float]]:
    """Return microseconds of a gradient, and round robin's speed over a strategy's."""
    turns, base = (
        {
            row["gradient_us"]: row["speedup"]
            for row in rows
            if row["kind"] == "delay" and row["way"] == one
        }
        for one in (LADDER[-1], way)
    )
    takes = sorted(nonempty(turns, "delay"))
    # serial, to which speed-ups relate, has no rows
    return takes, [turns[us] / (1.0 if way == "serial" else base[us]) for us in takes]


@claim("the speed-up falls with rho", "rho 0.44: 3x, less: 4 to 9x")
def falls(run: Run) -> Verdict:
    """HOGWILD!'s speed-up is lower by more than 5 % where one row is in every edge.

    The two problems are generated and alike but for rho, 0.0002 and 1.
    """
    ways = of_most_workers(run)
    few, many = (ways[name]["hogwild"]["speedup"] for name in ("sparse", "dense"))
    ours = f"{few:.2f}x at rho = 0.0002, {many:.2f}x at 1"
    return verdict(many < few * (1 - NOISE), ours, f"asked {few * (1 - NOISE):.2f}x")


@claim("many cores train an SVM faster", "3x at 10 of 12 cores")
def threefold(run: Run) -> Verdict:
    """On 5 cores or more, HOGWILD!'s SVM is 2.4 times as fast as serial, or faster."""
    races = of_most_workers(run)
    if "svm" not in races:
        return untested("no SVM was raced")
    row = races["svm"]["hogwild"]
    used = min(row["workers"], run.summary["cores"])
    ours = f"{row['speedup']:.2f}x by {row['workers']} workers"
    if used < CORES * CORES_USED:
        return untested(f"{used} cores of {CORES_USED}", ours)
    asked = GOAL * THREEFOLD
    return verdict(row["speedup"] >= asked, ours, f"asked {asked:.2g}x")


CLAIMS = (ordered, level, late, falls, threefold)
