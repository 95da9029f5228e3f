"""BATCH: a corpus as the numbers of its tokens, by a tokenizer trained on it, kept.

The name of a corpus in, Tokens out. Documents follow one another, a separator between
them; whoever trains and encodes the same text gets the same numbers.
"""

import fcntl
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import tokenizers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.trainers import BpeTrainer, WordPieceTrainer

from dml.data.archives import cache
from dml.data.text.corpora import text
from dml.data.text.pieces import pieces
from dml.types import BadInput

LEAST = 300  # tokens of a vocabulary: BPE begins with 256 bytes
ALPHABET = 1000  # characters that WordPiece knows at most, as BERT's own vocabularies
SAMPLE = 256  # MiB of the corpus that train a tokenizer; all of it is encoded
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # WordPiece's numbers 0 … 4
SWITCH = "TOKENIZERS_PARALLELISM"


class Tokens(NamedTuple):
    """A corpus' tokens, and what makes them of text and text of them."""

    ids: np.ndarray  # uint16, of large vocabularies int32; on disk
    tokenizer: Tokenizer


def tokens(corpus: str, kind: str, vocabulary: int) -> Tokens:
    """Encode what text(corpus) names by one of KINDS, of `vocabulary` tokens at most.

    The first of several ranks trains and encodes; the others wait and read.
    """
    if kind not in KINDS or vocabulary < LEAST:
        raise BadInput(
            f"expected a tokenizer of {' or '.join(KINDS)} with {LEAST} tokens or "
            f"more, got {kind} with {vocabulary}; pass such ones"
        )
    paths = text(corpus)
    home = cache() / "tokens"
    version = tokenizers.__version__
    folder = home / f"{_digest(paths)}-{kind}-{vocabulary}-{version}"
    with _one_at_a_time(home):
        if not folder.exists():
            _make(paths, kind, vocabulary, folder)
    dtype = _dtype(vocabulary)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return Tokens(np.memmap(folder / "ids", dtype, "r"), tokenizer)


def wordpiece(documents: Callable[[], Iterable[str]], vocabulary: int) -> Tokenizer:
    """Train BERT's tokenizer: words in lower case, cut into ever rarer pieces."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    seen: Counter[str] = Counter()
    for document in documents():
        seen.update(made.normalizer.normalize_str(document))
    common = sorted((-count, one) for one, count in seen.items() if not one.isspace())
    letters = [one for _, one in common[: min(ALPHABET, vocabulary // 4)]]
    # The library numbers the pieces ##x as its hash table of words happens to lie, and
    # equally frequent pairs are merged by number: numbered before, no run differs.
    first = [*SPECIAL, *(f"##{one}" for one in letters)]
    trainer = WordPieceTrainer(
        vocab_size=vocabulary,
        show_progress=False,
        limit_alphabet=len(letters),
        initial_alphabet=letters,
        special_tokens=first,
    )
    made.train_from_iterator(documents(), trainer)
    # made anew, ##x is nothing special
    known = Tokenizer(models.WordPiece(made.get_vocab(), unk_token="[UNK]"))
    known.normalizer, known.pre_tokenizer = made.normalizer, made.pre_tokenizer
    known.decoder = decoders.WordPiece()
    known.add_special_tokens(list(SPECIAL))
    return known


def bpe(documents: Callable[[], Iterable[str]], vocabulary: int) -> Tokenizer:
    """Train GPT-2's tokenizer: pairs of bytes, and of what came of them, merged."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocabulary,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
    )
    made.train_from_iterator(documents(), trainer)
    return made


class Kind(NamedTuple):
    train: Callable[[Callable[[], Iterable[str]], int], Tokenizer]
    separator: str  # ends a document


KINDS = {"wordpiece": Kind(wordpiece, "[SEP]"), "bpe": Kind(bpe, "<|endoftext|>")}


def _dtype(vocabulary: int) -> type:
    return np.uint16 if vocabulary <= 1 << 16 else np.int32


def _digest(paths: Sequence[Path]) -> str:
    """Return what tells one text from another."""
    found = hashlib.sha256()
    for path in paths:
        try:
            with path.open("rb") as file:
                found.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise BadInput(
                f"expected text at {path}, got {error.strerror}; pass a readable file"
            ) from None
    return found.hexdigest()[:16]


@contextmanager
def _one_at_a_time(home: Path) -> Iterator[None]:
    """Let in one process of those that share the cache, where it can be locked."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = os.open(home, os.O_RDONLY)
    except OSError as error:
        raise BadInput(
            f"expected a folder for tokens at {home}, got {error.strerror}; set "
            "DML_DATA to a folder that can be written"
        ) from None
    try:
        with suppress(OSError):  # without locks all make the same, and one is kept
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _make(paths: Sequence[Path], kind: str, vocabulary: int, folder: Path) -> None:
    """Train and encode into a folder, which appears when it is whole."""
    train, separator = KINDS[kind]
    with TemporaryDirectory(dir=folder.parent, prefix=".") as place, _no_threads():
        part = Path(place, "part")
        part.mkdir()
        # a dump's markup is removed but once
        plain = Path(place, "text")
        with plain.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(piece() for piece in pieces(paths))

        def documents() -> Iterator[str]:
            for piece in islice(pieces([plain]), SAMPLE):
                yield from filter(None, piece().split("\n"))

        tokenizer = train(documents, vocabulary)
        tokenizer.save(str(part / "tokenizer.json"))
        # what looks like a special token in the text is text
        tokenizer.encode_special_tokens = True
        end = [tokenizer.get_vocab()[separator]]
        with (part / "ids").open("wb") as out:
            for piece in pieces([plain]):
                ids = _encoded(tokenizer, piece(), end)
                out.write(np.array(ids, _dtype(vocabulary)).tobytes())
        with suppress(OSError):  # another rank was faster
            part.rename(folder)


def _encoded(tokenizer: Tokenizer, text: str, end: list[int]) -> list[int]:
    """Return a piece's tokens, those of each document before its end."""
    documents = text.split("\n")
    encoded = tokenizer.encode_batch_fast(documents, add_special_tokens=False)
    found: list[int] = []
    for place, (document, one) in enumerate(zip(documents, encoded, strict=True), 1):
        found += one.ids
        if document and place < len(documents):  # the last one goes on in a next piece
            found += end
    return found


@contextmanager
def _no_threads() -> Iterator[None]:
    """Keep the library from threads, of which it warns in every later fork."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = before or "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SWITCH]
