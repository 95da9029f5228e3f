#!/usr/bin/env bash
# Run every check; create .venv if it is missing. Arguments are passed to pytest.
#     launch/test.sh [pytest arguments]
# All checks run, even after failures; the exit code is that of the first failed check.
set -euo pipefail
# shellcheck source=launch/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

first=0
check() {
    local code=0
    say "$*"
    "$python" -m "$@" || code=$?
    if ((code)); then say "$1 failed with code $code"; fi
    if ((first == 0)); then first=$code; fi
}

ready_environment
# Tests start ranks with the mpirun of .venv; each rank has one thread.
pin_threads "$(count_cores)"
export PATH=$venv/bin:$PATH
cd "$root"
say "$threads, mpirun from .venv"

check ruff format --check .
check ruff check .
check mypy dml
# One worker per core, at most 4: a single worker runs all tests with real ranks.
workers=$(count_cores)
if ((workers > 4)); then workers=4; fi
check pytest -n "$workers" "$@"
exit "$first"
