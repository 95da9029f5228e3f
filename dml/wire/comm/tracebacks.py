"""The text of an uncaught exception; one in a user's function has only its frames."""

import sys
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

from dml import extend

PACKAGE = Path(__file__).parents[2]
OURS = tuple(f"{path}/" for path in (PACKAGE, PACKAGE.with_name("experiments")))
LIBRARIES = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "purelib")})


def exception_text(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> str:
    """Return the lines of an exception.

    Of an exception in a function that `extend` has found, they start at its first
    frame and omit the frames of dml below; `python -X dev` shows all frames.

    Args:
      kind: Type of the exception.
      error: The exception.
      trace: Its traceback.
    """
    report = traceback.TracebackException(kind, error, trace)
    omitted = 0 if sys.flags.dev_mode else omit_frames(report)
    hint = f"omitted {omitted} frames of dml; python -X dev shows them\n"
    return "".join(report.format()) + hint * bool(omitted)


def omit_frames(report: traceback.TracebackException) -> int:
    """Reduce the stacks of an exception and its causes; return the omitted frames."""
    stack, cause = report.stack, report.__cause__ or report.__context__
    report.stack = user_frames(stack)
    omitted = len(stack) - len(report.stack)
    return omitted + (omit_frames(cause) if cause else 0)


def user_frames(stack: traceback.StackSummary) -> traceback.StackSummary:
    """Return the frames from a user's function on, without those of dml.

    Frames of libraries remain if a user's function calls them. All frames are returned
    if there is no user's function.
    """
    kept: list[traceback.FrameSummary] = []
    by_user = False  # the frame, or the caller of its library, is a user's
    for frame in stack:
        name = frame.filename
        if name in extend.SOURCES:
            by_user = True
        elif name.startswith(OURS):
            by_user = False
        elif not name.startswith(LIBRARIES):
            by_user = bool(kept)
        if by_user:
            kept.append(frame)
    return traceback.StackSummary.from_list(kept or stack)
