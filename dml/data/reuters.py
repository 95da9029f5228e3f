"""BATCH: Reuters R52 as tf-idf rows: does a company report its earnings?

Nothing in, (training, held out) batches out, as documents() gives them. R52 are the
articles of one topic only, in the ModApte split: the held-out ones were written later.
"""

from dml.data.archives import Source
from dml.data.documents import documents, grouped
from dml.data.sources import TEXT
from dml.types import Batch

POSITIVE = ("earn",)  # 1 of the 52 topics, 43 % of the articles


def reuters() -> tuple[Batch, Batch]:
    """Return 6 533 training and 2 568 held-out articles of 12 163 features."""
    return documents("reuters", sources(), POSITIVE)


def sources() -> list[Source]:
    """Return where the articles are, to be read with the topic of each."""
    return grouped(TEXT["reuters"])
