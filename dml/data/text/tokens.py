"""Token ids of a corpus, encoded by a tokenizer trained on it, and cached.

Documents are concatenated with a separator after each. Training and encoding are
deterministic.
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

from dml.data.archives import cache_folder
from dml.data.text.corpora import text
from dml.data.text.pieces import pieces
from dml.types import BadInput

MIN_VOCABULARY = 300  # least vocabulary size: BPE starts with 256 bytes
ALPHABET = 1000  # most characters in a WordPiece vocabulary, as in BERT's
SAMPLE = 256  # MiB of the corpus used to train a tokenizer
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # ids 0 … 4 of WordPiece
PARALLELISM_VARIABLE = "TOKENIZERS_PARALLELISM"


class Tokens(NamedTuple):
    """Token ids of a corpus, and the tokenizer."""

    ids: np.ndarray  # memory map of uint16, or of int32 for large vocabularies
    tokenizer: Tokenizer


def tokens(corpus: str, kind: str, vocabulary: int) -> Tokens:
    """Return the tokens of a corpus.

    The first rank to take a lock trains and encodes; the others wait and read the
    cache.

    Args:
      corpus: Argument of `corpora.text`.
      kind: Tokenizer, a name in KINDS.
      vocabulary: Largest number of tokens in the vocabulary.
    """
    if kind not in KINDS or vocabulary < MIN_VOCABULARY:
        raise BadInput(
            f"expected a tokenizer of {' or '.join(KINDS)} with {MIN_VOCABULARY} "
            f"tokens or more, got {kind} with {vocabulary}; correct the values"
        )
    paths = text(corpus)
    home = cache_folder() / "tokens"
    version = tokenizers.__version__
    folder = home / f"{_digest(paths)}-{kind}-{vocabulary}-{version}"
    with _one_at_a_time(home):
        if not folder.exists():
            _build(paths, kind, vocabulary, folder)
    dtype = _dtype(vocabulary)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return Tokens(np.memmap(folder / "ids", dtype, "r"), tokenizer)


def wordpiece(documents: Callable[[], Iterable[str]], vocabulary: int) -> Tokenizer:
    """Train the WordPiece tokenizer of BERT on lower-case words."""
    untrained = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    untrained.normalizer = normalizers.BertNormalizer(lowercase=True)
    untrained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    counts: Counter[str] = Counter()
    for document in documents():
        counts.update(untrained.normalizer.normalize_str(document))
    common = sorted(
        (-count, character)
        for character, count in counts.items()
        if not character.isspace()
    )
    letters = [character for _, character in common[: min(ALPHABET, vocabulary // 4)]]
    # The library numbers the pieces ##x in the order of a hash table and breaks ties of
    # merges by number. Numbering them in advance makes training deterministic.
    first = [*SPECIAL, *(f"##{character}" for character in letters)]
    trainer = WordPieceTrainer(
        vocab_size=vocabulary,
        show_progress=False,
        limit_alphabet=len(letters),
        initial_alphabet=letters,
        special_tokens=first,
    )
    untrained.train_from_iterator(documents(), trainer)
    # a second tokenizer, in which ##x are not special tokens
    tokenizer = Tokenizer(models.WordPiece(untrained.get_vocab(), unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = (
        untrained.normalizer,
        untrained.pre_tokenizer,
    )
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def bpe(documents: Callable[[], Iterable[str]], vocabulary: int) -> Tokenizer:
    """Train the byte-level BPE tokenizer of GPT-2."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocabulary,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
    )
    tokenizer.train_from_iterator(documents(), trainer)
    return tokenizer


class Kind(NamedTuple):
    """A kind of tokenizer."""

    # (function that returns documents, size of the vocabulary) -> tokenizer
    train: Callable[[Callable[[], Iterable[str]], int], Tokenizer]
    separator: str  # token after a document


KINDS = {"wordpiece": Kind(wordpiece, "[SEP]"), "bpe": Kind(bpe, "<|endoftext|>")}


def _dtype(vocabulary: int) -> type:
    return np.uint16 if vocabulary <= 1 << 16 else np.int32


def _digest(paths: Sequence[Path]) -> str:
    """Return a hash of the contents of files."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise BadInput(
                f"expected text at {path}, got {error.strerror}; pass a readable file"
            ) from None
    return digest.hexdigest()[:16]


@contextmanager
def _one_at_a_time(home: Path) -> Iterator[None]:
    """Hold an exclusive lock on a cache folder, if the file system supports locks."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = os.open(home, os.O_RDONLY)
    except OSError as error:
        raise BadInput(
            f"expected a folder for tokens at {home}, got {error.strerror}; set "
            "DML_DATA to a folder that can be written"
        ) from None
    try:
        with suppress(OSError):  # without locks, all write equal files
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _build(paths: Sequence[Path], kind: str, vocabulary: int, folder: Path) -> None:
    """Train and encode into a folder; rename it when it is complete."""
    train, separator = KINDS[kind]
    with TemporaryDirectory(dir=folder.parent, prefix=".") as temporary, _no_threads():
        part = Path(temporary, "part")
        part.mkdir()
        # the plain text is read twice; the markup of a dump is removed once
        plain = Path(temporary, "text")
        with plain.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(piece() for piece in pieces(paths))

        def documents() -> Iterator[str]:
            for piece in islice(pieces([plain]), SAMPLE):
                yield from filter(None, piece().split("\n"))

        tokenizer = train(documents, vocabulary)
        tokenizer.save(str(part / "tokenizer.json"))
        # the text "[SEP]" in a document is encoded as ordinary text
        tokenizer.encode_special_tokens = True
        end = [tokenizer.get_vocab()[separator]]
        with (part / "ids").open("wb") as out:
            for piece in pieces([plain]):
                ids = _encoded(tokenizer, piece(), end)
                out.write(np.array(ids, _dtype(vocabulary)).tobytes())
        with suppress(OSError):  # another rank was faster
            part.rename(folder)


def _encoded(tokenizer: Tokenizer, text: str, end: list[int]) -> list[int]:
    """Return the tokens of a piece, with `end` after each complete document."""
    documents = text.split("\n")
    encoded = tokenizer.encode_batch_fast(documents, add_special_tokens=False)
    ids: list[int] = []
    for number, (document, encoding) in enumerate(
        zip(documents, encoded, strict=True), 1
    ):
        ids += encoding.ids
        if document and number < len(documents):  # the last document may continue
            ids += end
    return ids


@contextmanager
def _no_threads() -> Iterator[None]:
    """Disable threads of the library, which cause a warning at every later fork."""
    before = os.environ.get(PARALLELISM_VARIABLE)
    os.environ[PARALLELISM_VARIABLE] = before or "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[PARALLELISM_VARIABLE]
