"""Message tags by collective or protocol; the watchdog prints their names."""

from enum import IntEnum


class Tag(IntEnum):
    STAR = 1
    TREE = 2
    BUTTERFLY = 3
    HALVING_DOUBLING = 4
    RING = 5
    BROADCAST = 6
    WINDOWS = 7  # chunks of collectives by windows; see collectives/steps
    MULTIPLYING = 8  # and one-shot; see collectives/exchanges
    DOUBLE_TREE = 9
    BINE = 29
    SCAN = 30
    ALL_TO_ALL = 10
    COLLECT = 11  # arrays of a rank, to rank 0
    FIRST = 12  # the first rank has finished; see rank_order.py
    CLOCK = 13  # clocks of workers; see server/barriers.py
    LEAVE = 14  # a worker has ended; see server/barriers.py
    BYTEPS = 15
    SERVER = 16  # messages to a parameter server
    VALUES = 17  # answers to pulls
    CHANGED = 18  # rows that a server sends without a request
    GRADIENTS = 19  # the values of a large push
    AVERAGING = 20  # values of a round of gossip, push-sum or RelaySum
    PAIR = 21  # requests and replies of pairwise averages
    OUTER = 22  # changes of workers, and the outer parameters; see async_diloco
    VOLUNTEERS = 23  # messages between volunteers; see wire/volunteers
    STATE = 24  # arrays of the state of an elastic run
    COPIES = 25  # states of other ranks; see recovery/peer_memory.py
    CHAIN = 26  # messages to the replicas of a server; see server/chain.py
    ANSWER = 27  # answers of the tail to a worker
    PARAMETER_HUB = 28  # gradients and parameters of a chunk
    REPLAY = 32  # messages of Ape-X; see actors/apex/messages.py
    WEIGHTS = 33  # params for actors; see actors/impala.py
    ROLLOUT = 34  # rollouts of actors
    OBSERVATIONS = 35  # outcomes of steps of actors; see actors/seed.py
    ACTIONS = 36  # actions for actors
    BLOCK = 1000  # plus the number of the block
