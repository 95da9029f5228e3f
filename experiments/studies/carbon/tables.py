"""Published energy, emissions and prices of training, which carbon.py recomputes.

Strubell 2019, Table 3, arXiv 1906.02243; Patterson 2021, Table 4, arXiv 2104.10350.
"""

from typing import NamedTuple

PUE = 1.58  # power usage effectiveness of the average data centre, by Strubell
POUNDS = 0.954  # pounds of CO2e per kWh, US average of 2018, by Strubell


class Training(NamedTuple):
    """A row of Strubell's table; watts, kWh and pounds are missing for TPUs."""

    model: str
    device: str
    devices: int
    watts: float | None
    hours: float  # as printed
    kwh: int | None
    pounds: int | None
    dollars: tuple[int, int]
    exact: float | None = None  # hours by the paper's text, where the table rounds


STRUBELL = (
    Training("T2T base", "P100", 8, 1415.78, 12, 27, 26, (41, 140)),
    Training("T2T big", "P100", 8, 1515.43, 84, 201, 192, (289, 981)),
    Training("ELMo", "P100", 3, 517.66, 336, 275, 262, (433, 1472)),
    # 3.3 days
    Training("BERT base", "V100", 64, 12041.51, 79, 1507, 1438, (3751, 12571), 79.2),
    Training("BERT base", "TPUv2", 16, None, 96, None, None, (2074, 6912)),
    Training("NAS", "P100", 8, 1515.43, 274120, 656347, 626155, (942973, 3201722)),
    # 979 million steps at 10 hours per 300,000 are 32,633 hours: a misprint
    Training("NAS", "TPUv2", 1, None, 32623, None, None, (44055, 146848), 32633),
    Training("GPT-2", "TPUv3", 32, None, 168, None, None, (12_902, 43_008)),
)


class Centre(NamedTuple):
    """A row of Patterson's table."""

    model: str
    device: str
    devices: int
    days: float
    watts: float  # average power of a device and its share of the host
    pue: float
    intensity: float  # net kg of CO2e per kWh, without purchased carbon-free energy
    mwh: float
    tonnes: float


PATTERSON = (
    Centre("T5", "TPUv3", 512, 20, 310, 1.12, 0.545, 85.7, 46.7),
    Centre("Meena", "TPUv3", 1024, 30, 289, 1.09, 0.415, 232, 96.4),
    Centre("GShard-600B", "TPUv3", 1024, 3.1, 288, 1.09, 0.177, 24.1, 4.3),
    Centre("Switch", "TPUv3", 1024, 27, 245, 1.10, 0.330, 179, 59.1),
    Centre("GPT-3", "V100", 10_000, 14.8, 330, 1.10, 0.429, 1287, 552.1),
)
SEARCH = 3.2  # tonnes of CO2e of the NAS of Strubell's table, by Patterson
