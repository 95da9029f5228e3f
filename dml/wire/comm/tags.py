"""Message tags by collective or protocol; the watchdog prints their names."""

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
    SERVER = 16  # messages to a parameter server
    VALUES = 17  # answers to pulls
    CHANGED = 18  # rows that a server sends without a request
    GRADIENTS = 19  # the values of a large push
    BLOCK = 1000  # plus the number of the block
