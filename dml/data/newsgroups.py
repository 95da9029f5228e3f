"""BATCH: 20 Newsgroups as tf-idf rows: is a document about computers or science?

Nothing in, (training, held out) batches out, as documents() gives them. Which is which
is as published: the held-out ones were written later.
"""

from dml.data.archives import Source
from dml.data.documents import documents, grouped
from dml.data.sources import TEXT
from dml.types import Batch

POSITIVE = ("comp.", "sci.")  # 9 of the 20 groups, 47 % of the documents


def newsgroups() -> tuple[Batch, Batch]:
    """Return 11 293 training and 7 528 held-out documents of 42 254 features."""
    return documents("newsgroups", sources(), POSITIVE)


def sources() -> list[Source]:
    """Return where the texts are, to be read with the group of each."""
    return grouped(TEXT["newsgroups"])
