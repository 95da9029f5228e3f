"""BATCH: text from files, streamed in pieces, and the words of a piece.

Paths in (plain text with a document a line, .gz, .bz2, MediaWiki XML), thunks of text
out: to skip a piece costs only its reading, so ranks can take every size-th one. Memory
stays a few pieces, however long a file or a line is.
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
SPACES = (b" ", b"\t", b"\v", b"\f")  # not \r, which is dropped: words would join
CLASS = re.compile(r"(\\w|\\S|\[[^]\\]+\])\+")  # one set of characters, repeated
BROKEN = (OSError, EOFError, zlib.error, ElementTree.ParseError)


def pieces(paths: Sequence[Path], nbytes: int = 1 << 20) -> Iterator[Callable[[], str]]:
    """Yield thunks of whole documents of about nbytes together, each ended by `\\n`.

    A longer line is cut after white space, and only its last piece ends with `\\n`: all
    pieces joined are the text again, but for `\\r` and a `\\n` at the end of each file.
    """
    found = False
    for path in paths:
        try:
            with OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
                head = file.read(HEAD)
                file.seek(0)
                if DUMP.match(head):
                    for articles in _grouped(_articles(file), nbytes):
                        found = True
                        yield partial(_cleaned, articles)
                else:
                    for start, block in _blocks(file, path, nbytes):
                        found = found or not block.isspace()
                        yield partial(_decoded, path, start, block)
        except BROKEN as error:
            raise BadInput(
                f"expected text at {path}, got {error}; pass a readable and whole file"
            ) from error
    if not found:
        raise BadInput(
            f"expected text, got none in {', '.join(map(str, paths)) or 'no file'}; "
            "pass a corpus with words"
        )


def tokens(text: str, pattern: str = r"\w+", lower: bool = True) -> list[str]:
    """List the words that match the pattern, in order; a document's end is `"\\n"`."""
    find, table = _finder(pattern)
    words: list[str] = []
    # by documents: whatever the pattern matches, it cannot reach over the end of one
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
    """Compile the pattern; with it, for a set of characters, ASCII with others blank.

    The table is empty where splitting at blanks would not find the same words.
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
            "string; use + in place of *"
        )
    found = CLASS.fullmatch(pattern)
    if found is None:
        # findall would give the groups in place of the words
        return lambda text: [match.group() for match in compiled.finditer(text)], ""
    one = re.compile(found[1])
    kept = {chr(code) for code in range(128) if one.fullmatch(chr(code))} - {"\n"}
    table = "".join(chr(code) if chr(code) in kept else " " for code in range(128))
    return compiled.findall, "" if any(map(str.isspace, kept)) else table


def _blocks(file: IO[bytes], path: Path, nbytes: int) -> Iterator[tuple[int, bytes]]:
    """Cut a file at line ends, or inside of longer lines; yield where each starts."""
    start, held, ended = 0, b"", True
    while block := held + file.read(nbytes - len(held)):
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
                f"byte {start}; pass text, a document a line"
            )
        yield start, block[:end]
        start, held, ended = start + end, block[end:], block[end - 1 : end] == b"\n"
    if not ended:  # the file is over just where a long line was cut
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
    if (zero := block.find(b"\0")) >= 0:
        raise BadInput(
            f"{path}: expected text, got a zero at byte {start + zero}; "
            "is it a binary file? pass text in UTF-8"
        )


def _articles(file: IO[bytes]) -> Iterator[str]:
    """Yield the markup of a dump's articles: namespace 0, no redirects."""
    events = ElementTree.iterparse(file, events=("start", "end"))
    _, root = next(events)
    prefixes: dict[str | None, str] = {}  # dumps of before 2010 have no <ns>
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
            # gensim's extract_pages keeps an empty element of each page till the end
            root.clear()
            if space == "0" and text and not redirect:
                yield text


def _grouped(articles: Iterator[str], nbytes: int) -> Iterator[list[str]]:
    """Group articles until they have nbytes: markup cannot be cut."""
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
    """Free articles of their markup, each on one line."""
    from gensim.corpora.wikicorpus import filter_wiki

    words = (filter_wiki(article).split() for article in articles)
    return "".join(" ".join(document) + "\n" for document in words if document)
