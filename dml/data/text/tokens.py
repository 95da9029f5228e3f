"""Token ids of a corpus, encoded by a tokenizer that is trained on it, and cached.

A separator follows each document. Training and encoding are deterministic.
"""

import fcntl
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tokenizers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.trainers import BpeTrainer, WordPieceTrainer

from dml.data.archives import cache_folder
from dml.data.text.corpora import corpus_files
from dml.data.text.pieces import pieces
from dml.files import cached
from dml.types import BadInput

MIN_VOCABULARY = 300  # least vocabulary size: BPE starts with 256 bytes
MAX_ALPHABET = 1000  # characters in a WordPiece vocabulary, as in BERT's
TRAINING_PIECES = 256  # pieces of 1 MiB that train a tokenizer, at most
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # ids 0 … 4 of WordPiece
PARALLELISM_VARIABLE = "TOKENIZERS_PARALLELISM"


class Tokens(NamedTuple):
    """Token ids of a corpus, and the tokenizer."""

    ids: np.ndarray  # memory map of uint16, or of int32 for large vocabularies
    tokenizer: Tokenizer


def tokens(corpus: str, tokenizer_name: str, vocabulary: int) -> Tokens:
    """Return the tokens of a corpus.

    The first rank to acquire a lock trains the tokenizer and encodes the corpus; the
    others wait for it and read the cache.

    Args:
      corpus: Argument of `corpora.corpus_files`.
      tokenizer_name: Name in TOKENIZERS.
      vocabulary: Largest number of tokens in the vocabulary.
    """
    if tokenizer_name not in TOKENIZERS or vocabulary < MIN_VOCABULARY:
        raise BadInput(
            f"expected a tokenizer of {' or '.join(TOKENIZERS)} with "
            f"{MIN_VOCABULARY} tokens or more, got {tokenizer_name} with {vocabulary}; "
            "correct the values"
        )
    paths = corpus_files(corpus)
    parent = cache_folder() / "tokens"
    version = tokenizers.__version__
    folder = parent / f"{_digest(paths)}-{tokenizer_name}-{vocabulary}-{version}"
    with _lock(parent):
        cached(folder, partial(_build, paths, tokenizer_name, vocabulary))
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
    letters = [
        character for _, character in common[: min(MAX_ALPHABET, vocabulary // 4)]
    ]
    # The library numbers the pieces ##x in the order of a hash table, and breaks ties
    # between merges by these numbers. As special tokens they have fixed numbers, which
    # makes training deterministic.
    numbered = [*SPECIAL, *(f"##{character}" for character in letters)]
    trainer = WordPieceTrainer(
        vocab_size=vocabulary,
        show_progress=False,
        limit_alphabet=len(letters),
        initial_alphabet=letters,
        special_tokens=numbered,
    )
    untrained.train_from_iterator(documents(), trainer)
    # a second tokenizer, in which the pieces ##x are not special tokens
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


class Training(NamedTuple):
    """How to train a tokenizer, and the separator of documents.

    Attributes:
      train: (function that returns documents, size of the vocabulary) -> tokenizer.
      separator: Token after each document.
    """

    train: Callable[[Callable[[], Iterable[str]], int], Tokenizer]
    separator: str


TOKENIZERS = {
    "wordpiece": Training(wordpiece, "[SEP]"),
    "bpe": Training(bpe, "<|endoftext|>"),
}


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
def _lock(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder if the file system supports locks."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise BadInput(
            f"expected a folder for tokens at {folder}, got {error.strerror}; set "
            "DML_DATA to a folder that can be written"
        ) from None
    try:
        with suppress(OSError):  # without a lock, ranks write equal files
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _build(
    paths: Sequence[Path], tokenizer_name: str, vocabulary: int, folder: Path
) -> None:
    """Save a trained tokenizer and the encoded corpus in a new folder.

    The plain text is saved in the same folder.
    """
    train, separator = TOKENIZERS[tokenizer_name]
    folder.mkdir()
    with _no_threads():
        # plain text without markup, which is read twice below
        plain = folder.with_name("text")
        with plain.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(piece() for piece in pieces(paths))

        def documents() -> Iterator[str]:
            for piece in islice(pieces([plain]), TRAINING_PIECES):
                yield from filter(None, piece().split("\n"))

        tokenizer = train(documents, vocabulary)
        tokenizer.save(str(folder / "tokenizer.json"))
        # "[SEP]" in a document is encoded as ordinary text
        tokenizer.encode_special_tokens = True
        end = [tokenizer.get_vocab()[separator]]
        with (folder / "ids").open("wb") as out:
            for piece in pieces([plain]):
                ids = _encode(tokenizer, piece(), end)
                out.write(np.array(ids, _dtype(vocabulary)).tobytes())


def _encode(tokenizer: Tokenizer, text: str, end: list[int]) -> list[int]:
    """Return the token ids of a piece, with `end` after each complete document."""
    documents = text.split("\n")
    encoded = tokenizer.encode_batch_fast(documents, add_special_tokens=False)
    ids: list[int] = []
    last = len(documents) - 1
    for k, (document, encoding) in enumerate(zip(documents, encoded, strict=True)):
        ids += encoding.ids
        if document and k < last:  # the last document may continue in the next piece
            ids += end
    return ids


@contextmanager
def _no_threads() -> Iterator[None]:
    """Disable the threads of tokenizers, which cause a warning at every later fork."""
    previous = os.environ.get(PARALLELISM_VARIABLE)
    os.environ[PARALLELISM_VARIABLE] = previous or "false"
    try:
        yield
    finally:
        if previous is None:
            del os.environ[PARALLELISM_VARIABLE]
