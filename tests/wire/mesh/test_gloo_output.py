"""Lines of gloo are dropped from file descriptor 1; all other bytes are kept."""

import os
import subprocess
import sys
import threading

import pytest

from dml.wire.mesh.gloo_output import copy_lines

LINE = b"[Gloo] Rank 0 is connected to 1 peer ranks.\n"


@pytest.mark.parametrize(
    "parts, kept",
    [
        ([LINE], b""),
        ([b"a\n" + LINE + b"b\n" + LINE], b"a\nb\n"),
        ([b"a", b"b" + LINE, LINE], b"ab" + LINE),  # in the middle of a line
        ([bytes([byte]) for byte in b"x\n" + LINE + b"\n[Glo\n"], b"x\n\n[Glo\n"),
        ([b"[Gl"], b"[Gl"),
        ([b"\xff\x00\n", b"no newline"], b"\xff\x00\nno newline"),
    ],
)
def test_only_whole_lines_of_gloo_are_dropped(parts, kept):
    (source, sink), (end, target) = os.pipe(), os.pipe()
    thread = threading.Thread(target=copy_lines, args=(source, target))
    thread.start()
    for part in parts:
        os.write(sink, part)
    os.close(sink)
    thread.join()
    os.close(target)
    with os.fdopen(end, "rb") as file:
        assert file.read() == kept
    os.close(source)


def test_a_process_loses_no_other_output():
    code = (
        "import os, sys\n"
        "from dml.wire.mesh.gloo_output import drop_gloo_lines\n"
        "drop_gloo_lines()\n"
        f"os.write(1, {LINE!r})\n"
        "print('kept')\n"
        "sys.stdout.write('last')\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert (ended.stdout, ended.stderr) == (b"kept\nlast", b"")
