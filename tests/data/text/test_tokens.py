import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest

from dml.data.text import tokens as module
from dml.data.text.generated import generate
from dml.data.text.tokens import SPECIAL, TOKENIZERS, tokens
from dml.types import BadInput

DOCUMENTS = [*generate(200, 12, seed=0), "A [MASK], a [SEP] and an <|endoftext|>!"]


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.delenv(module.PARALLELISM_VARIABLE, raising=False)
    path = tmp_path / "corpus.txt"
    path.write_text("\n\n".join(DOCUMENTS))
    return str(path)


def split(ids, separator):
    """Return the documents of ids; each is ended by the separator."""
    ends = np.flatnonzero(ids == separator)
    assert ends[-1] == len(ids) - 1
    return [part[part != separator].tolist() for part in np.split(ids, ends[:-1] + 1)]


@pytest.mark.parametrize("nbytes", [1 << 20, 64])
def test_bytes_give_the_text_back_a_document_an_end(corpus, nbytes, monkeypatch):
    monkeypatch.setattr(module, "pieces", partial(module.pieces, nbytes=nbytes))
    ids, tokenizer = tokens(corpus, "bpe", 400)
    found = split(ids, tokenizer.token_to_id("<|endoftext|>"))
    assert [tokenizer.decode(part) for part in found] == DOCUMENTS
    assert ids.dtype == np.uint16 and tokenizer.get_vocab_size() <= 400
    assert len(ids) < 0.6 * sum(map(len, DOCUMENTS))


def test_wordpiece_gives_the_words_back_in_lower_case(corpus):
    ids, tokenizer = tokens(corpus, "wordpiece", 400)
    assert [tokenizer.token_to_id(name) for name in SPECIAL] == [0, 1, 2, 3, 4]
    found = split(ids, SPECIAL.index("[SEP]"))
    whole = [tokenizer.decode(part) for part in found]
    assert whole[:-1] == DOCUMENTS[:-1]
    # what only looks like a special token is none, in the corpus
    assert whole[-1].replace(" ", "") == DOCUMENTS[-1].lower().replace(" ", "")
    assert not np.isin(ids, [0, 1, 2, 4]).any()
    # but it is one where it is asked for; and a piece inside of words never is
    pieces = ["[MASK]", "[UNK]", "[UNK]", "w1"]
    assert tokenizer.encode("[MASK] ##w1").tokens == pieces


def test_large_vocabularies_take_four_bytes(corpus):
    ids, _ = tokens(corpus, "bpe", 70_000)
    assert ids.dtype == np.int32
    assert np.array_equal(ids, tokens(corpus, "bpe", 60_000).ids)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_no_two_trainings_differ(kind, corpus, tmp_path, monkeypatch):
    made = []
    for name in "abc":
        monkeypatch.setenv("DML_DATA", str(tmp_path / name))
        ids, tokenizer = tokens(corpus, kind, 330)
        made.append((ids.tobytes(), tokenizer.get_vocab()))
    assert made[0] == made[1] == made[2]


@pytest.fixture
def train(monkeypatch):
    """Count how often wordpiece is trained."""
    kind = TOKENIZERS["wordpiece"]
    train = Mock(wraps=kind.train)
    monkeypatch.setitem(TOKENIZERS, "wordpiece", kind._replace(train=train))
    return train


def test_a_text_is_encoded_once_whatever_its_name(corpus, tmp_path, train):
    first = tokens(corpus, "wordpiece", 400)
    (tmp_path / "other.txt").write_bytes((tmp_path / "corpus.txt").read_bytes())
    again = tokens(str(tmp_path / "other.txt"), "wordpiece", 400)
    assert np.array_equal(first.ids, again.ids) and train.call_count == 1
    tokens(corpus, "wordpiece", 401)
    (tmp_path / "other.txt").write_text("\n".join(DOCUMENTS[:-1]))
    tokens(str(tmp_path / "other.txt"), "wordpiece", 400)
    assert train.call_count == 3


@pytest.mark.parametrize("locks", [True, False])
def test_ranks_that_start_at_once_get_the_same(
    locks, corpus, monkeypatch, cached, train
):

    def refuse(*_):
        raise OSError("no locks")

    if not locks:
        monkeypatch.setattr(fcntl, "flock", refuse)
    with ThreadPoolExecutor(4) as ranks:
        runs = [ranks.submit(tokens, corpus, "wordpiece", 400) for _ in range(4)]
        found = [run.result().ids.tobytes() for run in runs]
    assert len(found) == 4 and len(set(found)) == 1
    assert train.call_count == 1 if locks else train.call_count >= 1
    assert len(list((cached / "tokens").iterdir())) == 1  # nothing half made


def test_what_fails_leaves_nothing_behind(corpus, monkeypatch, cached):
    def fail(*_):
        raise KeyError

    kind = TOKENIZERS["bpe"]
    monkeypatch.setitem(TOKENIZERS, "bpe", kind._replace(train=fail))
    with pytest.raises(KeyError):
        tokens(corpus, "bpe", 400)
    assert not list((cached / "tokens").iterdir())
    assert module.PARALLELISM_VARIABLE not in os.environ
    monkeypatch.setitem(TOKENIZERS, "bpe", kind)
    tokens(corpus, "bpe", 400)


def test_other_kinds_sizes_and_places_are_bad_input(corpus, tmp_path, monkeypatch):
    with pytest.raises(BadInput, match="wordpiece or bpe with 300 .* got words with"):
        tokens(corpus, "words", 400)
    with pytest.raises(BadInput, match="300 tokens or more, got bpe with 299; correct"):
        tokens(corpus, "bpe", 299)
    monkeypatch.setenv("DML_DATA", corpus)
    with pytest.raises(BadInput, match="tokens at .* set DML_DATA to a folder"):
        tokens(corpus, "bpe", 400)
