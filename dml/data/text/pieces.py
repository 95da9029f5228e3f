"""Stream text files in pieces, and split a piece into words.

Files are plain text with one document per line, .gz, .bz2 or MediaWiki XML. Pieces are
thunks: skipping a piece costs only reading it, so ranks can take every size-th one.
Memory is a few pieces, for files and lines of any length.
"""

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

from dml.data.sparse.svmlight import OPENERS
from dml.types import BadInput

DUMP = re.compile(rb"(\xef\xbb\xbf)?\s*(<\?xml[^>]*>\s*)?<mediawiki[\s>]")
HEAD = 512  # bytes that decide whether a file is a dump
# without \r, which is removed: a cut at \r would join words
SPACES = (b" ", b"\t", b"\v", b"\f")
CLASS = re.compile(r"(\\w|\\S|\[[^]\\]+\])\+")  # one set of characters, repeated
READ_ERRORS = (OSError, EOFError, zlib.error, ElementTree.ParseError)


def pieces(paths: Sequence[Path], nbytes: int = 1 << 20) -> Iterator[Callable[[], str]]:
    """Yield thunks of pieces of about nbytes; every document ends with `\\n`.

    A line longer than nbytes is cut after white space, and only its last piece ends
    with `\\n`. The concatenated pieces are the text without `\\r`, with `\\n` added to
    files that lack a final one.
    """
    any_text = False
    for path in paths:
        try:
            with OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
                head = file.read(HEAD)
                file.seek(0)
                if DUMP.match(head):
                    for articles in _grouped(_articles(file), nbytes):
                        any_text = True
                        yield partial(_cleaned, articles)
                else:
                    for start, block in _blocks(file, path, nbytes):
                        any_text = any_text or not block.isspace()
                        yield partial(_decoded, path, start, block)
        except READ_ERRORS as error:
            raise BadInput(
                f"expected text at {path}, got {error}; pass a readable, complete file"
            ) from error
    if not any_text:
        raise BadInput(
            f"expected text, got none in {', '.join(map(str, paths)) or 'no file'}; "
            "pass a corpus with words"
        )


def tokens(text: str, pattern: str = r"\w+", lower: bool = True) -> list[str]:
    """Return the words that match the pattern, in order.

    The end of a document is the word `"\\n"`.
    """
    find, table = _finder(pattern)
    words: list[str] = []
    # per document: a match must not span the end of a document
    for document in (text.lower() if lower else text).split("\n"):
        if table and document.isascii():
            words += document.translate(table).split()  # three times as fast
        else:
            words += find(document)
        words.append("\n")
    words.pop()
    return words


@cache
def _finder(pattern: str) -> tuple[Callable[[str], Iterable[str]], str]:
    """Return a function that finds words, and a translation table for ASCII text.

    The table maps characters outside of words to spaces. It is empty if splitting the
    translated text would not give the same words.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise BadInput(
            f"expected a regular expression, got {pattern=}: {error}; correct it"
        ) from error
    if any(not match.group() for match in compiled.finditer("ab 1.\t")):
        raise BadInput(
            f"expected a pattern of words, got {pattern=}, which matches the empty "
            "string; use + instead of *"
        )
    word_class = CLASS.fullmatch(pattern)
    if word_class is None:
        # findall would return the groups instead of the words
        return lambda text: [match.group() for match in compiled.finditer(text)], ""
    member = re.compile(word_class[1])
    letters = {chr(code) for code in range(128) if member.fullmatch(chr(code))} - {"\n"}
    table = "".join(chr(code) if chr(code) in letters else " " for code in range(128))
    return compiled.findall, "" if any(map(str.isspace, letters)) else table


def _blocks(file: IO[bytes], path: Path, nbytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield (start, block) of a file, cut at line ends or inside longer lines."""
    start, rest, ended = 0, b"", True
    while block := rest + file.read(nbytes - len(rest)):
        if len(block) < nbytes:  # the rest of the file
            yield start, block if block.endswith(b"\n") else block + b"\n"
            return
        end = 1 + (
            block.rfind(b"\n") if b"\n" in block else max(map(block.rfind, SPACES))
        )
        if not end:
            _refuse_zeros(path, start, block)
            raise BadInput(
                f"{path}: expected words, got {nbytes} bytes without white space from "
                f"byte {start}; pass text with one document per line"
            )
        yield start, block[:end]
        start, rest, ended = start + end, block[end:], block[end - 1 : end] == b"\n"
    if not ended:  # the file ends where a long line was cut
        yield start, b"\n"


def _decoded(path: Path, start: int, block: bytes) -> str:
    _refuse_zeros(path, start, block)
    try:
        text = block.decode()
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path}: expected UTF-8, got byte {block[error.start]:#04x} at byte "
            f"{start + error.start}; is it a binary file? pass text"
        ) from error
    return (text if start else text.removeprefix("\ufeff")).replace("\r", "")


def _refuse_zeros(path: Path, start: int, block: bytes) -> None:
    """Raise BadInput if a block of a text file has a zero byte."""
    if (zero := block.find(b"\0")) >= 0:
        raise BadInput(
            f"{path}: expected text, got a zero at byte {start + zero}; "
            "is it a binary file? pass text in UTF-8"
        )


def _articles(file: IO[bytes]) -> Iterator[str]:
    """Yield the markup of the articles of a dump: namespace 0, without redirects."""
    events = ElementTree.iterparse(file, events=("start", "end"))
    _, root = next(events)
    prefixes: dict[str | None, str] = {}  # dumps before 2010 have no <ns>
    for event, element in events:
        tag = element.tag.rpartition("}")[2] if event == "end" else ""
        if tag == "namespace":
            prefixes[element.text] = element.get("key", "0")
        if tag == "page":
            prefix = element.findtext("{*}title", "").partition(":")[0]
            space = element.findtext("{*}ns") or prefixes.get(prefix, "0")
            text = element.findtext("{*}revision/{*}text") or ""
            redirect = element.find("{*}redirect") is not None
            redirect |= text.lstrip()[:9].upper() == "#REDIRECT"
            # free the page; gensim's extract_pages keeps an empty element per page
            root.clear()
            if space == "0" and text and not redirect:
                yield text


def _grouped(articles: Iterator[str], nbytes: int) -> Iterator[list[str]]:
    """Group whole articles into lists of at least nbytes."""
    group, size = [], 0
    for article in articles:
        group.append(article)
        size += len(article)
        if size >= nbytes:
            yield group
            group, size = [], 0
    if group:
        yield group


def _cleaned(articles: list[str]) -> str:
    """Return articles without markup, one per line."""
    from gensim.corpora.wikicorpus import filter_wiki

    words = (filter_wiki(article).split() for article in articles)
    return "".join(" ".join(document) + "\n" for document in words if document)
