"""Papers on one table in shared memory: their rows, and rules over our runs."""

import math

from papers_claims import Claim, Command, Finding, Paper, Seen, judged, some, untested

LADDER = ("hogwild", "locked", "roundrobin")  # fastest first
NOISE = 0.05  # of a speed: what turns by turns of a quiet machine differ
LEVEL = 0.9  # of HOGWILD!'s speed: round robin has caught up
PARITY_US, CLOSER = 1000.0, 3.0  # of a gradient, published; as near is the same
CORES = 0.5  # of the published ones: on fewer, a speed-up on many says nothing
THREEFOLD, GOAL = 3.0, 0.8  # published; of it, as no two machines are equal
LARGER = 1.25  # of two steps that were sought to within 1.19


def fastest(seen: Seen) -> dict[str, dict[str, dict]]:
    """Return the races' rows of the most workers, by problem and way."""
    rows = [row for row in seen["hogwild"].rows if row["kind"] == "race"]
    most = max(row["workers"] for row in rows)
    found: dict[str, dict[str, dict]] = {}
    for row in rows:
        if row["workers"] == most:
            found.setdefault(row["problem"], {})[row["way"]] = row
    return {
        name: ways for name, ways in found.items() if all(one in ways for one in LADDER)
    }


def ordered(seen: Seen) -> Finding:
    """On every problem, at the most workers, nobody is faster who waits for more.

    That is hogwild >= locked >= round robin; 5 % of a speed are noise.
    """
    wrong, said = [], []
    for name, ways in fastest(seen).items():
        speeds = [ways[way]["speedup"] for way in LADDER]
        pairs = zip(speeds, speeds[1:], strict=False)
        if not all(one >= two * (1 - NOISE) for one, two in pairs):
            wrong.append(name)
        said.append(f"{name} {' / '.join(f'{speed:.2f}' for speed in speeds)}")
    why = f"not so: {', '.join(wrong)}" if wrong else "so on every problem"
    return judged(bool(said) and not wrong, f"speed-ups {', '.join(said)}", why)


def level(seen: Seen) -> Finding:
    """Round robin has less than 90 % of HOGWILD!'s speed at first, and more at last.

    First and last are by what a gradient takes.
    """
    takes, ratios = turns(seen)
    ours = f"{ratios[0]:.2f} at {takes[0]:.2g} us, {ratios[-1]:.2f} at {takes[-1]:.3g}"
    return judged(ratios[0] < LEVEL <= ratios[-1], ours, f"asked {LEVEL:g}")


def late(seen: Seen) -> Finding:
    """Round robin has 90 % of HOGWILD!'s speed only from 1 ms a gradient on.

    A third of that would do: machines differ.
    """
    takes, ratios = turns(seen)
    below = [i for i, ratio in enumerate(ratios) if ratio < LEVEL]
    i = below[-1] if below else -1
    at = takes[i + 1] if i + 1 < len(takes) else math.inf
    ours = f"from {at:.3g} us on" if at < math.inf else f"not up to {takes[-1]:.3g} us"
    asked = PARITY_US / CLOSER
    if at == math.inf and takes[-1] < asked:
        return untested("no gradient took as long", ours)
    return judged(at >= asked, ours, f"asked {asked:.0f} us or more")


def turns(seen: Seen) -> tuple[list[float], list[float]]:
    """Return microseconds a gradient, and round robin's speed over HOGWILD!'s."""
    rows = [row for row in seen["hogwild"].rows if row["kind"] == "delay"]
    free, robin = (
        {row["gradient_us"]: row["speedup"] for row in rows if row["way"] == way}
        for way in (LADDER[0], LADDER[-1])
    )
    if not free:
        raise KeyError("delay")
    takes = sorted(free)
    return takes, [robin[one] / free[one] for one in takes]


def falls(seen: Seen) -> Finding:
    """HOGWILD!'s speed-up is lower, by more than 5 %, where one row is in every edge.

    Of two generated problems that are alike but for rho, 0.0002 and 1.
    """
    ways = fastest(seen)
    few, many = (ways[name]["hogwild"]["speedup"] for name in ("sparse", "dense"))
    ours = f"{few:.2f}x at rho = 0.0002, {many:.2f}x at 1"
    return judged(many < few * (1 - NOISE), ours, f"asked {few * (1 - NOISE):.2f}x")


def threefold(seen: Seen) -> Finding:
    """On 5 cores or more, HOGWILD!'s SVM is 2.4 times as fast as serial, or faster."""
    races = fastest(seen)
    if "svm" not in races:
        return untested("no SVM was raced")
    row = races["svm"]["hogwild"]
    used = min(row["workers"], seen["hogwild"].summary["cores"])
    ours = f"{row['speedup']:.2f}x by {row['workers']} workers"
    if used < CORES * 10:
        return untested(f"{used} cores of 10", ours)
    asked = GOAL * THREEFOLD
    return judged(row["speedup"] >= asked, ours, f"asked {asked:.2g}x")


def same_bits(seen: Seen) -> Finding:
    """All hashes, on any number of workers and by every batch, are one worker's."""
    rows = some([r for r in seen["cyclades"].rows if r["kind"] == "bits"], "bits")
    same = sum(row["equal"] for row in rows)
    who = ", ".join(sorted({f"{row['workers']}" for row in rows}))
    ours = f"{same} of {len(rows)} equal, by {who} workers"
    return judged(same == len(rows), ours, "bit for bit")


def quicker(seen: Seen) -> Finding:
    """CYCLADES makes over 5 % more updates a second than HOGWILD! on some problem.

    Where it does not, that is no evidence on less than half of the published 18 cores.
    """
    rows = [row for row in seen["cyclades"].rows if row["kind"] == "race"]
    most = max(row["workers"] for row in rows)
    found = {
        row["problem"]: row["to_hogwild"]
        for row in rows
        if row["workers"] == most and row["way"] == "cyclades"
    }
    ours = ", ".join(f"{name} {ratio:.2f}x" for name, ratio in found.items())
    used = min(most, seen["cyclades"].summary["cores"])
    holds = max(found.values()) > 1 + NOISE
    if not holds and used < CORES * 18:
        return untested(f"{used} cores of 18", ours)
    return judged(holds, ours, f"{most} workers")


def larger(seen: Seen) -> Finding:
    """On every problem its largest stable step is 1.25 times late HOGWILD!'s, or more.

    HOGWILD! on many workers is simulated: all reads are late by so many updates.
    """
    rows = [row for row in seen["cyclades"].rows if row["kind"] == "step"]
    steps = {(row["problem"], row["way"]): row["rate"] for row in rows}
    delays = [int(way.split()[1]) for _, way in steps if way.startswith("late")]
    if not delays:
        raise KeyError("late")
    way = f"late {max(delays)}"
    ratios = {
        name: steps[name, "cyclades"] / (steps[name, way] or math.nan)
        for name in dict.fromkeys(name for name, _ in steps)
    }
    ours = ", ".join(f"{name} {ratio:.2f}x" for name, ratio in ratios.items())
    holds = all(ratio >= LARGER for ratio in ratios.values())
    return judged(holds, ours, f"reads {max(delays)} updates late")


MEMORY = (
    Paper(
        "hogwild",
        "Niu et al., HOGWILD!: A Lock-Free Approach to Parallelizing Stochastic "
        "Gradient Descent, NIPS 2011",
        "{cores} cores of 12, 2 workers; 11,293 documents of 781,265, 8 slices of a "
        "brain, 90,004 ratings",
        (
            Claim(
                "lock-free >= locked >= round robin",
                "cut 9x, round robin 5x; RCV1 3x",
                ordered,
            ),
            Claim("round robin catches up with long gradients", "figure", level),
            Claim("and only from 1 ms a gradient on", "> 1 ms", late),
            Claim("the speed-up falls with rho", "rho 0.44: 3x, less: 4 to 9x", falls),
            Claim("many cores train an SVM faster", "3x at 10 of 12 cores", threefold),
        ),
        {
            "hogwild": Command(
                "hogwild.py",
                "--repeats=9",
                "--repeats=5",
                "--problems=sparse,dense --epochs=1 --repeats=1 --delays=0,2 "
                "--delayed=sparse",
            )
        },
        "hogwild/speedup.svg",
        (90, 50),
    ),
    Paper(
        "cyclades",
        "Pan et al., CYCLADES: Conflict-free Asynchronous Machine Learning, NIPS 2016",
        "{cores} cores of 18, 2 workers; 11,293 documents, 90,004 ratings",
        (
            Claim("the bits of serial on any workers", "exact", same_bits),
            Claim("faster than HOGWILD!", "up to 40 % on 18 cores", quicker),
            Claim("a larger stable step", "figure", larger),
        ),
        {
            "cyclades": Command(
                "cyclades.py",
                "",
                "--problems=svm,completion --repeats=3",
                "--problems=sparse --bits=1,2 --checked=64 --batches=64 --hubs=1 "
                "--epochs=1 --repeats=1 --tried=1 --late=3",
            )
        },
        "cyclades/throughput.svg",
        (40, 35),
    ),
)
