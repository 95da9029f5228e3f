"""What traces a rank for `timelines.py`: its notes, and JAX's profiler beside them."""

from pathlib import Path
from typing import Any

from dml.metrics import profile

MARKS = 8  # moments that both note, by which their clocks are compared


class Tracer:
    """Begins and ends the notes of a rank and, given a folder, JAX's trace of it.

    Virtual ranks are one process, which the first of them traces. A limit of 0 spans
    is of ranks that note nothing.
    """

    def __init__(self, comm: Any, limit: int, folder: Path | None) -> None:
        self.comm, self.limit, self.on = comm, limit, False
        self.profiler: Any = None
        if folder and (not comm.platform.virtual or comm.rank == 0):
            import jax.profiler  # now, not while steps are traced: it takes long

            self.profiler, self.folder = jax.profiler, folder / f"rank{comm.rank}"

    def begin(self) -> None:
        """Trace from now on."""
        self.on = True
        if self.profiler:
            self.profiler.start_trace(self.folder, **options(self.profiler))
        if self.limit:
            self.comm.begin(self.limit + (MARKS if self.profiler else 0))
        if self.limit and self.profiler:
            for _ in range(MARKS):
                start = self.comm.Wtime()
                with self.profiler.TraceAnnotation(profile.MARK):
                    pass
                self.comm.seen(profile.MARK, start, self.comm.Wtime())

    def end(self) -> None:
        """Trace no more."""
        if self.on and self.limit:
            self.comm.end()
        if self.on and self.profiler:
            self.profiler.stop_trace()
        self.on = False


def options(profiler: Any) -> dict[str, Any]:
    """Return what spares JAX's trace every call of Python, where that can be said."""
    if not hasattr(profiler, "ProfileOptions"):
        return {}
    chosen = profiler.ProfileOptions()
    chosen.python_tracer_level = 0
    return {"profiler_options": chosen}
