"""Read text files in pieces, and split a piece into words.

Files are plain text with one document per line, or MediaWiki XML (a dump), also as .gz
or .bz2. A piece is a function that returns text: a piece that is not called is read but
not decoded, so that p ranks can take every p-th piece. The memory is a few pieces, for
files and lines of any length.
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
HEAD_BYTES = 512  # bytes in which the start of a dump is searched
# places to cut long lines; not \r, which is removed, so that words would be joined
SPACES = (b" ", b"\t", b"\v", b"\f")
CHARACTER_CLASS = re.compile(r"(\\w|\\S|\[[^]\\]+\])\+")  # a class, repeated
READ_ERRORS = (OSError, EOFError, zlib.error, ElementTree.ParseError)


def pieces(paths: Sequence[Path], nbytes: int = 1 << 20) -> Iterator[Callable[[], str]]:
    """Yield functions that return pieces of about nbytes of text.

    Every document ends with `\\n`. A line longer than nbytes is cut after white space,
    and only its last piece ends with `\\n`. The concatenated pieces are the text
    without `\\r`; `\\n` is added to files that do not end with it.
    """
    any_text = False
    for path in paths:
        try:
            with OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
                head = file.read(HEAD_BYTES)
                file.seek(0)
                if DUMP.match(head):
                    for articles in _group(_articles(file), nbytes):
                        any_text = True
                        yield partial(_plain_text, articles)
                else:
                    for start, block in _blocks(file, path, nbytes):
                        any_text = any_text or not block.isspace()
                        yield partial(_decode, path, start, block)
        except READ_ERRORS as error:
            raise BadInput(
                f"expected text at {path}, got {error}; pass a readable, complete file"
            ) from error
    if not any_text:
        raise BadInput(
            f"expected text, got none in {', '.join(map(str, paths)) or 'no file'}; "
            "pass a corpus with words"
        )


def split_words(text: str, pattern: str = r"\w+", lower: bool = True) -> list[str]:
    """Return the words of a text; the word `"\\n"` marks the end of a document.

    Args:
      text: The text.
      pattern: Regular expression of a word.
      lower: Whether to convert the text to lower case.
    """
    find_words, table = _word_finder(pattern)
    words: list[str] = []
    # per document, because a match must not span two documents
    for document in (text.lower() if lower else text).split("\n"):
        if table and document.isascii():
            words += document.translate(table).split()  # faster than find_words
        else:
            words += find_words(document)
        words.append("\n")
    words.pop()  # no "\n" after the last document, which may continue
    return words


@cache
def _word_finder(pattern: str) -> tuple[Callable[[str], Iterable[str]], str]:
    """Return a function that finds the words of a text, and a table for ASCII text.

    The table of str.translate maps characters that are not in words to spaces. It is
    empty if splitting the translated text would not give the same words.
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
    word_class = CHARACTER_CLASS.fullmatch(pattern)
    if word_class is None:
        # not findall, which returns the groups of a pattern instead of the words
        return lambda text: [match.group() for match in compiled.finditer(text)], ""
    member = re.compile(word_class[1])
    letters = {chr(code) for code in range(128) if member.fullmatch(chr(code))} - {"\n"}
    table = "".join(chr(code) if chr(code) in letters else " " for code in range(128))
    return compiled.findall, "" if any(map(str.isspace, letters)) else table


def _blocks(file: IO[bytes], path: Path, nbytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield (position of its first byte, block) for the blocks of a file.

    A block ends at the end of a line, or after white space in a line of more than
    nbytes.
    """
    start, remainder = 0, b""
    ends_in_line = False
    while block := remainder + file.read(nbytes - len(remainder)):
        if len(block) < nbytes:  # the last block
            yield start, block if block.endswith(b"\n") else block + b"\n"
            return
        cuts = (b"\n",) if b"\n" in block else SPACES
        end = 1 + max(block.rfind(cut) for cut in cuts)
        if not end:
            _refuse_zeros(path, start, block)
            raise BadInput(
                f"{path}: expected words, got {nbytes} bytes without white space from "
                f"byte {start}; pass text with one document per line"
            )
        yield start, block[:end]
        start, remainder = start + end, block[end:]
        ends_in_line = block[end - 1 : end] != b"\n"
    if ends_in_line:  # the file ends where a long line was cut
        yield start, b"\n"


def _decode(path: Path, start: int, block: bytes) -> str:
    _refuse_zeros(path, start, block)
    try:
        text = block.decode()
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path}: expected UTF-8, got {block[error.start]:#04x} at byte "
            f"{start + error.start}; pass a text file in UTF-8"
        ) from error
    return (text if start else text.removeprefix("\ufeff")).replace("\r", "")


def _refuse_zeros(path: Path, start: int, block: bytes) -> None:
    """Raise BadInput if a block of a text file has a zero byte."""
    if (zero := block.find(b"\0")) >= 0:
        raise BadInput(
            f"{path}: expected text, got a zero byte at byte {start + zero}; "
            "pass a text file in UTF-8"
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
            # free the page; extract_pages of gensim keeps an empty element per page
            root.clear()
            if space == "0" and text and not redirect:
                yield text


def _group(articles: Iterator[str], nbytes: int) -> Iterator[list[str]]:
    """Group articles into lists of at least nbytes characters in total."""
    group, size = [], 0
    for article in articles:
        group.append(article)
        size += len(article)
        if size >= nbytes:
            yield group
            group, size = [], 0
    if group:
        yield group


def _plain_text(articles: list[str]) -> str:
    """Return articles without markup, one per line."""
    from gensim.corpora.wikicorpus import filter_wiki

    words = (filter_wiki(article).split() for article in articles)
    return "".join(" ".join(document) + "\n" for document in words if document)
