"""Numbers that all devices share, and the two constants of a device and precision."""

from typing import NamedTuple


class Physics(NamedTuple):
    """Coefficients of the formulas of `seconds`, fitted once for all devices.

    Rates of attention are fractions of the peak. A fused kernel reads no scores from
    memory; kernels of 2023 and later (FlashAttention 2) are faster.
    """

    first_attention: float = 0.38  # fused kernels before 2023
    first_attention_hopper: float = 0.2
    attention: float = 0.4  # fused kernels of 2023 and later
    attention_hopper: float = 0.47
    scores: float = 0.6  # products of attention that is not fused
    unaligned: float = (
        12.0  # how much slower if the width of a head is no multiple of 8
    )
    traffic: float = (
        35.0  # reads and writes of a unit of the residual stream in a block
    )
    sharded: float = 0.7  # fraction of them that tensor parallelism divides
    softmax: float = 5.0  # reads and writes of a score that is not fused
    casts: float = 1.1  # traffic of the casts to float8, over that of the operands
    kernel: float = 3.5e-5  # seconds to start the kernels of a pass of a block
    latency: float = 1.4e-6  # seconds of a message without content
    imbalance: float = 0.85  # part of the slowest stage's excess that others wait for
    boundary: float = 0.25  # part of the messages between stages that is not hidden
    gather: float = 0.2  # part of gathered parameters that is never hidden
    hidden: float = 0.46  # part of the products' time in which gathers are hidden
    reduce: float = 1.0  # part of an all-reduce of gradients that is not hidden
    reduce_sharded: float = 0.85  # the same with sharded optimizer state
    across: float = 0.5  # the same between domains
    link: float = 0.41  # fraction of the links' rate in gathers, with waves of tiles
    link_torus: float = 0.6  # without
    network: float = 1.0  # fraction of the network's rate
    optimizer: float = 50.0  # bytes read and written for a parameter by the update
    waiting: float = 0.008  # time lost for each doubling of the number of domains


class Constants(NamedTuple):
    """Times relative to data sheets, of one device at one precision."""

    products: float = 1.4  # time of matrix products over that at the peak
    other: float = 1.25  # time of memory, messages and kernels over the nominal time


# A guess without published runs: 71 % of the peak, 80 % of other rates.
TYPICAL = Constants()
NOMINAL = Constants(1.0, 1.0)  # the rates of data sheets
