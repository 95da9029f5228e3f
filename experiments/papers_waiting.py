"""Papers on who waits for whom: their rows of the table, and rules over our runs."""

import math

from papers_claims import Claim, Command, Finding, Paper, Seen, judged, some, untested

BOUNDED = "--consistency=ssp:0,ssp:2,ssp:3,ssp:5,ssp:10,essp:0,essp:10 --network=1,0,0"
HIGH = "--laws=shifted_exponential:1,3;shifted_exponential:1,0.5"
FEW = "--problem=generated --clocks=12 --batch=512 --consistency=ssp:0,ssp:10,essp:10"
LAW = "--law=shifted_exponential:1,0.5"
C, MU = 1.0, 0.5  # of that law

APART = 2.0  # times the objective of s = 0: diverged; it begins at 1.4 times it
TIGHTER = 0.5  # of SSP's mean staleness
ORACLE = 1e-9  # of the whole time: sums in another order, and nothing else
NEAR = 0.05  # of the slowest: what a mean of few draws may be off
SOONER = 0.02  # of the time: less is a few messages, not another way
EARLY, LATE = 0.95, 1.25  # of virtual seconds: real ranks wake up late on busy cores


def objectives(seen: Seen) -> dict[str, dict[str, float]]:
    """Return last objectives by law and consistency; infinite where no number."""
    found: dict[str, dict[str, float]] = {}
    for row in seen["bounded"].rows:
        last = row["objective"]
        mine = found.setdefault(row["delay"], {})
        mine[row["consistency"]] = math.inf if last is None else last
    return some(found, "objective")


def loose(seen: Seen) -> Finding:
    """SSP of the largest s ends at twice s = 0's objective or more, by every law."""
    return apart(seen, "ssp", True)


def eager(seen: Seen) -> Finding:
    """ESSP of the largest s ends below twice s = 0's objective, by every law."""
    return apart(seen, "essp", False)


def apart(seen: Seen, kind: str, wanted: bool) -> Finding:
    """Judge whether the largest s of a kind diverges under every law, or none."""
    worst, said = [], []
    for law, ends in objectives(seen).items():
        last = largest(ends, kind)
        worst.append(ends[last] >= APART * ends["ssp:0"])
        said.append(f"{law}: {last} {ends[last]:.3g}, ssp:0 {ends['ssp:0']:.3g}")
    holds = all(worst) if wanted else not any(worst)
    return judged(holds, "; ".join(said), f"{sum(worst)} of {len(worst)} diverge")


def largest(names: dict, kind: str) -> str:
    mine = [name for name in names if name.split(":")[0] == kind]
    if not mine:
        raise KeyError(kind)
    return max(mine, key=lambda name: int(name.partition(":")[2]))


def profile(seen: Seen) -> Finding:
    """At the largest s ESSP's mean staleness is half of SSP's or less, by every law."""
    stale: dict[str, dict[str, float]] = {}
    for row in seen["bounded"].rows:
        mine = stale.setdefault(row["delay"], {})
        mine[row["consistency"]] = row["staleness_mean"]
    shares = [
        one[largest(one, "essp")] / one[largest(one, "ssp")] for one in stale.values()
    ]
    ours = ", ".join(f"{share:.2f}" for share in shares)
    return judged(max(shares) <= TIGHTER, f"{ours} of SSP's", f"asked {TIGHTER:g}")


def clocked(seen: Seen) -> Finding:
    """Running SSP workers miss the max-plus recursion by less than 1e-9."""
    off = max(off_by(seen["clocks"].rows, "bounded"))
    return judged(off < ORACLE, f"{off:.0e} of the whole time", f"asked {ORACLE:g}")


def off_by(rows: list, way: str) -> list[float]:
    return [row["off"] for row in rows if row["way"] == way]


ADAGRAD, PLAIN = "downpour_adagrad", "downpour_sgd"
IN_STEP = ("sync_sgd", "sync_adagrad")


def first(seen: Seen) -> Finding:
    """Downpour with AdaGrad is at the target 2 % sooner than with SGD, or more."""
    return before(seen, (PLAIN,))


def freed(seen: Seen) -> Finding:
    """Downpour with AdaGrad is at the target 2 % sooner than both in step, or more."""
    return before(seen, IN_STEP)


def before(seen: Seen, others: tuple[str, ...]) -> Finding:
    times = {
        way: seen["downpour"].summary[f"{way}_seconds_to_target"]
        for way in (ADAGRAD, *others)
    }
    took = {way: math.inf if one is None else one for way, one in times.items()}
    if min(took.values()) == math.inf:
        return untested("nobody reaches the target")
    ours = ", ".join(f"{way} {one:.0f}" for way, one in took.items())
    holds = all(took[ADAGRAD] < (1 - SOONER) * took[way] for way in others)
    return judged(holds, f"virtual s to the target: {ours}", f"asked {SOONER:.0%} less")


def logarithm(seen: Seen) -> Finding:
    """The slowest of n takes c + H_n/mu seconds, within 5 %, for every n."""
    rows = of(seen, "synchronous")
    off = {row["workers"]: row["maxplus"] / slowest(row["workers"]) - 1 for row in rows}
    ours = ", ".join(f"{row['workers']:,}: {row['maxplus']:.1f} s" for row in rows)
    worst = max(off.values(), key=abs)
    return judged(abs(worst) <= NEAR, ours, f"{worst:+.1%} from the formula at most")


def slowest(n: int) -> float:
    """Return the mean of the largest of n draws of c + Exp(mu)."""
    return C + sum(1 / k for k in range(1, n + 1)) / MU


def running(seen: Seen) -> Finding:
    """Running virtual ranks miss max-plus on the same draws by less than 1e-9."""
    off = max(row["off"] for row in seen["stragglers"].rows)
    return judged(off < ORACLE, f"{off:.0e} of the whole time", f"asked {ORACLE:g}")


def asleep(seen: Seen) -> Finding:
    """Real ranks that sleep take 0.95 to 1.25 of the virtual ones' seconds."""
    ratios = {
        row["way"]: row["measured"] / row["virtual"]
        for row in seen["stragglers"].rows
        if row["measured"] is not None
    }
    if not ratios:
        raise KeyError("measured")
    ours = ", ".join(f"{way} {ratio:.2f}" for way, ratio in ratios.items())
    holds = all(EARLY <= ratio <= LATE for ratio in ratios.values())
    return judged(holds, f"of virtual seconds: {ours}", f"asked {EARLY} to {LATE}")


def of(seen: Seen, way: str) -> list:
    rows = [row for row in seen["stragglers"].rows if row["way"] == way]
    return sorted(rows, key=lambda row: row["workers"])


WAITING = (
    Paper(
        "ssp",
        "Ho et al., More Effective Distributed ML via a Stale Synchronous Parallel "
        "Parameter Server, NIPS 2013; Dai et al. (ESSP), AAAI 2015",
        "6 virtual workers and 2 servers of 8 to 64 machines; 90,000 ratings; a "
        "message takes as long as the fastest gradient",
        (
            Claim("larger s diverges under high delay", "SSP, s = 10 (figure)", loose),
            Claim("ESSP does not", "ESSP, s = 10 (figure)", eager),
            Claim("ESSP's staleness profile is tighter", "figure", profile),
            Claim("time per clock is the max-plus recursion", "definition", clocked),
        ),
        {
            "bounded": Command("consistency.py", f"{BOUNDED} {HIGH}", "", FEW),
            "clocks": Command(
                "stragglers.py",
                f"{LAW} --workers=10,100 --measure=0",
                "",
                "--workers=4 --steps=40",
            ),
        },
        "bounded/who_diverges.svg",
        (25, 25),
    ),
    Paper(
        "distbelief",
        "Dean et al., Large Scale Distributed Deep Networks, NIPS 2012",
        "16 virtual workers and 4 servers of thousands of cores; 1,437 digits and "
        "6,090 weights of 16 M images and 1.7 billion",
        (
            Claim("AdaGrad makes Downpour faster than SGD does", "reported", first),
            Claim(
                "Downpour with AdaGrad beats sync, with stragglers", "reported", freed
            ),
        ),
        {
            "downpour": Command(
                "downpour.py",
                "--snapshots=1",
                "--lr=0.6 --adagrad_lr=0.2",
                "--lr=0.5 --adagrad_lr=0.1 --clocks=4 --batch=60 --simulate=4 "
                "--servers=1",
            )
        },
        "downpour/accuracy.svg",
        (45, 20),
    ),
    Paper(
        "stragglers",
        "The lecture's figure: X = 1 + Exp(0.5), 10 ... 10,000 workers",
        "10 to 10,000 virtual workers of 10 to 10,000; 8 real ones on {cores} cores",
        (
            Claim("the slowest grows as log n", "1 + (ln n + 0.58)/0.5", logarithm),
            Claim("running ranks are the max-plus recursion", "closed form", running),
            Claim("injected delays cost what is drawn", "closed form", asleep),
        ),
        {
            "stragglers": Command(
                "stragglers.py", LAW, "", "--workers=10 --measure=2 --steps=400"
            )
        },
        "stragglers/stragglers.svg",
        (15, 15),
    ),
)
