"""Random programs: the free world, the routed one, every seed and a trace agree."""

from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.types import ANY, Status
from dml.wire.comm import Traced
from tests.sim.play import FABRICS, NOTHING

ODD = sim.Uniform(1e-3, 1e-6 / 7, 1e-7, 400)  # so that hardly two things are at once
EVEN = sim.Uniform(1.0, 0.0, 0.0, 400)  # so that many are
LONG = 1000  # bytes of every receive; messages are of up to LONG, eager up to 400
POLLS = {"Test", "poll", "spin", "Iprobe", "see"}
RULES = sim.Limits(1e6, 20_000)


def drawn(rng, size, messages):
    """Draw what each rank calls, in order; receives that name all match."""
    scripts = [[] for _ in range(size)]
    anyone, late = rng.choice([0, 0.1, 0.5]), rng.choice([0, 0.3, 0.8])
    probes = rng.choice([0, 0, 0.3])

    def chance(p):
        return rng.random() < p

    for _ in range(messages):
        source, dest = (int(r) for r in rng.integers(size, size=2))
        tag, nbytes = int(rng.integers(3)), int(rng.choice([0, 8, 400, 408, LONG]))
        group = int(rng.integers(2)) and source % 2 == dest % 2
        named = (ANY if chance(anyone) else source, ANY if chance(anyone) else tag)
        post = chance(late) or source == dest
        scripts[source].append(("Isend" if post else "Send", group, dest, tag, nbytes))
        if probes and chance(probes):
            name = str(rng.choice(["Probe", "Iprobe", "see"]))
            scripts[dest].append((name, group, *named))
        scripts[dest].append(("Irecv" if chance(late) else "Recv", group, *named))
        for script in scripts:
            if chance(0.4):
                script.append(("compute", int(rng.integers(1, 6))))
            if chance(0.3):
                names = ["Wait", "Waitany", "Test", "poll", "spin", "unless"]
                script.append((str(rng.choice(names)), int(rng.integers(1, 4))))
        if chance(0.1):
            for script in scripts:
                script.append(("Barrier",))
        if chance(0.2):
            one, other = (int(r) for r in rng.integers(size, size=2))
            if one != other:
                a, b = (int(n) for n in rng.choice([0, 8, 400, 408, LONG], 2))
                scripts[one].append(("Sendrecv", other, a))
                scripts[other].append(("Sendrecv", one, b))
    return scripts


class Player:
    """One rank of a drawn program; `seen` is all that it can know."""

    def __init__(self, comm, scripts, wrap, unit):
        self.top = wrap(comm)
        self.rank, self.unit = comm.rank, unit
        half = self.top.Split(comm.rank % 2, 0)
        self.comms = [self.top, half]
        self.seen, self.under_way, self.count = [], [], 0
        self.sent = self.received = 0
        for step in scripts[comm.rank]:
            self.play(*step)
        for request, buffer in self.under_way:
            self.finish("end", request, buffer)

    def note(self, *what):
        self.seen.append((*what, self.top.Wtime()))

    def payload(self, nbytes):
        self.count += 1
        self.sent += nbytes
        return np.full(nbytes // 8, 1000 * self.rank + self.count)

    def buffer(self):
        return np.full(LONG // 8, -1)

    def had(self, name, buffer, status):
        self.received += status.Get_count()
        kept = (status.Get_source(), status.Get_tag(), status.Get_count())
        self.note(name, *kept, buffer[buffer >= 0].tolist())

    def finish(self, name, request, buffer):
        status = Status()
        request.Wait(status)
        self.over(name, buffer, status)

    def over(self, name, buffer, status):
        self.note(name) if buffer is None else self.had(name, buffer, status)

    def play(self, name, *args):
        if name in POLLS:
            # How many vain polls of one moment let time pass is nobody's promise.
            self.top.platform.compute(self.unit)
        if name in ("Send", "Isend"):
            group, dest, tag, nbytes = args
            dest = dest // 2 if group else dest
            comm, data = self.comms[group], self.payload(nbytes)
            request = getattr(comm, name)(data, dest, tag)
            if request is not None:
                self.under_way.append((request, None))
            self.note(name)
        elif name in ("Recv", "Irecv", "Probe", "Iprobe", "see"):
            group, source, tag = args
            source = source // 2 if group and source != ANY else source
            self.take(name, self.comms[group], source, tag)
        elif name == "Sendrecv":
            dest, nbytes = args
            into, status, data = self.buffer(), Status(), self.payload(nbytes)
            self.top.Sendrecv(data, dest, 9, into, dest, 9, status)
            self.had(name, into, status)
        elif name == "Barrier":
            self.top.Barrier()
            self.note(name)
        elif name == "compute":
            self.top.platform.compute(args[0] * self.unit)
        elif self.under_way:
            self.go_on(name, *args)

    def take(self, name, comm, source, tag):
        status, buffer = Status(), self.buffer()
        if name == "Irecv":
            self.under_way.append((comm.Irecv(buffer, source, tag), buffer))
        elif name == "Recv":
            comm.Recv(buffer, source, tag, status)
            self.had(name, buffer, status)
        else:
            call = comm.Probe if name == "Probe" else comm.Iprobe
            there = call(source, tag, status)
            while name == "see" and not there:
                comm.platform.compute(self.unit)
                there = comm.Iprobe(source, tag, status)
            kept = (status.Get_source(), status.Get_tag(), status.Get_count())
            self.note(name, there, *kept)

    def go_on(self, name, number):
        place = number % len(self.under_way)
        request, buffer = self.under_way[place]
        status = Status()
        if name == "Wait":
            self.finish(name, request, buffer)
        elif name == "Waitany":
            place = self.top.Waitany([one for one, _ in self.under_way], status)
            request, buffer = self.under_way[place]
            self.over(f"Waitany {place}", buffer, status)
        elif name == "Test":
            self.note(name, there := request.Test(status))
            if not there:
                return
            self.over(name, buffer, status)
        elif name == "unless":
            passed = self.top.platform.compute(number * self.unit, unless=request)
            return self.note(name, passed)
        else:
            while not request.Test(status):
                if name == "poll":
                    self.top.platform.compute(number * self.unit / 3)
            self.over(name, buffer, status)
        del self.under_way[place]


def outcome(scripts, network, wrap=lambda comm: comm, **how):
    """What each rank has seen, sent and received; "deadlock" where it cannot go on."""
    unit = 0.7 * network.alpha if network is ODD else network.alpha

    def program(comm):
        player = Player(comm, scripts, wrap, unit)
        return player.seen, player.sent, player.received

    try:
        return sim.run(program, len(scripts), network, limits=RULES, **how)
    except sim.Deadlock:
        return "deadlock"


def noting(comm):
    comm = Traced(comm)
    comm.begin()
    return comm


def programs(count, first):
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        size = int(rng.integers(2, 7))
        yield seed, drawn(rng, size, int(rng.integers(2, 25)))


def events(found):
    """All that was seen, without and with its time."""
    if found == "deadlock":
        return found, np.zeros(0)
    seen = [each for row, _, _ in found for each in row]
    return [each[:-1] for each in seen], np.array([each[-1] for each in seen])


def same(found, wanted):
    """Compare what is seen exactly, times up to rounding."""
    (what, when), (what_else, when_else) = events(found), events(wanted)
    return what == what_else and np.allclose(when, when_else, rtol=1e-12, atol=0)


NETWORKS = {"odd": ODD, "even": EVEN}


@pytest.mark.parametrize("network", NETWORKS)
@FABRICS
def test_what_ranks_see_repeats_and_no_order_of_running_changes_it(network, events):
    for number, scripts in programs(60, 0):
        run = partial(outcome, scripts, NETWORKS[network], events=events)
        first = run()
        assert run() == first, number
        for seed in (1, 2):
            assert run(seed=seed) == first, number


@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_without_links_is_the_same_routed_or_not(network):
    for number, scripts in programs(120, 1000):
        free = outcome(scripts, NETWORKS[network])
        assert same(outcome(scripts, NETWORKS[network], events=NOTHING), free), number


def test_tracing_changes_nothing():
    for number, scripts in programs(120, 2000):
        assert outcome(scripts, ODD, noting) == outcome(scripts, ODD), number


def test_every_byte_that_is_sent_is_received():
    ended = 0
    for number, scripts in programs(120, 3000):
        found = outcome(scripts, ODD)
        if found != "deadlock":
            ended += 1
            assert sum(r[1] for r in found) == sum(r[2] for r in found), number
    assert ended > 60
