"""The ring all-reduce by SimGrid's messages: prints when each rank ends, as JSON.

Needs Debian's python3-simgrid and nothing of ours; a host is a rank with its own up and
down link, which carry a byte in beta seconds, and a message takes alpha to pass.
"""

import json
import sys

from simgrid import Actor, Engine, LinkInRoute, Mailbox, NetZone, this_actor

FREE = [  # TCP's overheads, which the α-β-γ model does not have
    *("network/model:CM02", "network/bandwidth-factor:1", "network/latency-factor:1"),
    *("network/TCP-gamma:0", "network/weight-S:0", "network/crosstraffic:0"),
]


def main(size, nbytes, alpha, beta, gamma):
    quiet = ["--log=root.threshold:critical"]
    engine = Engine(["ring", *quiet, *(f"--cfg={option}" for option in FREE)])
    zone = NetZone.create_star_zone("network")
    chunk, ends = nbytes / size, [0.0] * size

    def rank(me):
        right, mine = (me + 1) % size, Mailbox.by_name(f"{me}")
        for k in range(2 * (size - 1)):
            sent = Mailbox.by_name(f"{right}").put_async("chunk", int(chunk))
            mine.get()
            sent.wait()
            if k < size - 1:
                this_actor.sleep_for(gamma * chunk)
        ends[me] = Engine.clock

    for me in range(size):
        host = zone.create_host(f"host{me}", "1Gf")
        link = zone.create_split_duplex_link(f"link{me}", f"{1 / beta}Bps")
        link.set_latency(alpha / 2).seal()
        way = [LinkInRoute(link, LinkInRoute.UP)]
        zone.add_route(host.netpoint, None, None, None, way, True)
        Actor.create(f"rank{me}", host, rank, me)
    zone.seal()
    engine.run()
    return ends


if __name__ == "__main__":
    size, nbytes, *rates = sys.argv[1:]
    print(json.dumps(main(int(size), int(nbytes), *map(float, rates))))
