"""Papers on parameter servers: their rows of the table, and rules over our runs."""

from papers_claims import Claim, Command, Finding, Paper, Seen, judged, never, some

STALE = "--consistency=ssp:0,ssp:1,ssp:2,ssp:4,ssp:8,ssp:16"
KEYS = "--simulate=2 --problem=logistic --l1=5e-4 --batch=1024 --clocks=100"
FEW = "--problem=generated --clocks=12 --batch=512"

IDLE, BUSY = 0.4, 0.05  # of a worker's time: about half of it waits, or hardly any
DROPPED = 0.93  # of the features, published
EQUAL = 0.005  # of an objective: what a filter may cost
HALF = 0.55  # of the words: half, and what heads of messages take
LOST = 0.5  # of held-out images: most are wrong
AS_GOOD = 0.05  # of the error: what alpha0/tau may lose against hard sync
RARE = 1e-4  # of the gradients, published


def interior(seen: Seen) -> Finding:
    """The time to the target is least at a tau that is neither 0 nor the largest."""
    took = {tau(row): row["seconds_to_target"] for row in seen["staleness"].rows}
    times = {one: n for one, n in some(took, "tau").items() if n is not None}
    said = ", ".join(
        f"{one}: {'never' if took[one] is None else f'{took[one]:.0f}'}" for one in took
    )
    best = min(times, key=lambda one: times[one], default=None)
    inside = best is not None and min(took) < best < max(took)
    where = "no tau reaches it" if best is None else f"tau = {best} is first"
    return judged(inside, f"virtual s to the target by tau {said}", where)


def idling(seen: Seen) -> Finding:
    """Workers wait 40 % of their time or more at tau = 0, at most 5 % at the last."""
    idle = {tau(row): row["idle_share"] for row in seen["staleness"].rows}
    first, last = idle[min(idle)], idle[max(idle)]
    ours = f"{first:.1%} at tau = {min(idle)}, {last:.1%} at {max(idle)}"
    return judged(
        first >= IDLE and last <= BUSY, ours, f"asked {IDLE:.0%} and {BUSY:.0%}"
    )


def tau(row: dict) -> int:
    return int(row["consistency"].partition(":")[2])


def filtered(seen: Seen) -> Finding:
    """The filter drops over 93 % of the rows, and the objective is 0.5 % worse at most.

    The objective is that of the same minibatches without the filter.
    """
    mine, plain = seen["filter"].summary, seen["plain"].summary
    share, off = mine["sifted_share"], mine["objective"] / plain["objective"] - 1
    ours = f"{share:.1%} dropped, objective {off:+.2%}"
    return judged(share > DROPPED and off <= EQUAL, ours, f"asked {DROPPED:.0%}")


def cached(seen: Seen) -> Finding:
    """Words sent with cached keys are at most 55 % of those without."""
    share = seen["plain"].summary["words_sent"] / seen["uncached"].summary["words_sent"]
    why = "minibatches are drawn anew, so only a push repeats its pull's keys"
    return judged(share <= HALF, f"{share:.2f} of the words", why)


def fixed(seen: Seen) -> Finding:
    """At every n above 1 a fixed alpha0 ends with over half of the images wrong."""
    errors = by_n(seen, "fixed_error")
    return judged(
        min(errors.values()) > LOST, spelled(errors), f"asked over {LOST:.0%}"
    )


def divided(seen: Seen) -> Finding:
    """At every n above 1 alpha0/tau ends within 5 points of hard sync's error."""
    errors, hard = by_n(seen, "damped_error"), seen["softsync"].summary
    most = hard["hard_sync_error"] + AS_GOOD
    ours = f"{spelled(errors)}; hard sync {hard['hard_sync_error']:.1%}"
    return judged(max(errors.values()) <= most, ours, f"asked {most:.1%} at most")


def within(seen: Seen) -> Finding:
    """At every n above 1 less than 1 in 10,000 gradients is staler than 2n."""
    stale = by_n(seen, "damped_beyond_2n")
    ours = ", ".join(f"n = {n}: {share:.1e}" for n, share in stale.items())
    return judged(max(stale.values()) < RARE, ours, f"asked less than {RARE:g}")


def by_n(seen: Seen, what: str) -> dict[int, float]:
    """Return a number of the summary by n, of all n above 1."""
    ends = f"_softsync_{what}"
    summary = seen["softsync"].summary
    found = {
        int(key.removesuffix(ends)): summary[key]
        for key in summary
        if key.endswith(ends)
    }
    if not any(n > 1 for n in found):
        raise KeyError(ends)
    return {n: value for n, value in found.items() if n > 1}


def spelled(errors: dict[int, float]) -> str:
    return ", ".join(f"n = {n}: {error:.1%}" for n, error in errors.items())


SERVERS = (
    Paper(
        "parameter_server",
        "Li et al., Scaling Distributed Machine Learning with the Parameter Server, "
        "OSDI 2014",
        "6 virtual workers and 2 servers of 1000 machines; waits of matrix "
        "factorisation (90,000 ratings), keys of sparse logistic regression on 11,293 "
        "documents x 42,254 of 170 billion x 65 billion",
        (
            Claim("an interior best staleness exists", "tau = 8 of 0 ... 16", interior),
            Claim("waiting goes as tau grows", "idle 50 % -> 1.7 % at 16", idling),
            Claim(
                "the KKT filter saves features at an equal objective",
                "over 93 % dropped",
                filtered,
            ),
            Claim("caching keys halves the traffic", "half", cached),
            Claim(
                "a dead server is replaced at once",
                "0.8 s",
                never("servers here are not replicated: one that dies ends the run"),
            ),
        ),
        {
            "staleness": Command(
                "consistency.py", f"{STALE} --laws=shifted_exponential:1,0.5", "", FEW
            ),
            "plain": Command("server.py", KEYS, "", "--clocks=4"),
            "filter": Command("server.py", f"{KEYS} --kkt_margin=0", "", "--clocks=4"),
            "uncached": Command("server.py", f"{KEYS} --key_lists=0", "", "--clocks=4"),
        },
        "staleness/waiting_1.svg",
        (25, 25),
    ),
    Paper(
        "softsync",
        "Zhang et al., Staleness-Aware Async-SGD for Distributed Deep Learning, 2015",
        "30 virtual learners of 30; 1,437 digits of 50,000 images of CIFAR-10, a "
        "network of 6,090 weights",
        (
            Claim("a fixed rate diverges", "90 % error at n = 15 and 30", fixed),
            Claim("alpha0/tau survives, as hard sync", "about 18 %", divided),
            Claim("staleness is in 0 ... 2n", "P(tau > 2n) < 1e-4", within),
        ),
        {
            "softsync": Command(
                "softsync.py",
                "",
                "--n=15,30 --lr=0.4",
                "--n=3 --lr=0.4 --simulate=4 --clocks=6 --batch=60",
            )
        },
        "softsync/error.svg",
        (45, 25),
    ),
)
