"""A tag a collective, so that the watchdog can say whose message is missing."""

from enum import IntEnum


class Tag(IntEnum):
    STAR = 1
    TREE = 2
    BUTTERFLY = 3
    HALVING_DOUBLING = 4
    RING = 5
    BROADCAST = 6
    ALL_TO_ALL = 10
    COLLECT = 11
    FIRST = 12
    CLOCK = 13
    LEAVE = 14
    BYTEPS = 15
    SERVER = 16  # whatever goes to a parameter server
    VALUES = 17  # what a worker asked for
    CHANGED = 18  # what a server sends unasked
    GRADIENTS = 19  # the values of a large push
    BLOCK = 1000  # and the number of the block
