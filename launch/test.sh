#!/usr/bin/env bash
# Run every check; make .venv first where it is missing. Arguments go to pytest.
#     launch/test.sh [pytest arguments]
# All checks run whatever fails; the exit code is that of the first that failed.
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
# Tests start ranks themselves, with .venv's mpirun; each rank gets one thread.
pin_threads "$(count_cores)"
export PATH=$venv/bin:$PATH
cd "$root"
say "$threads, mpirun from .venv"

check ruff format --check .
check ruff check .
check mypy dml
# A worker a core, but one alone starts all real ranks: more than 4 would wait for it.
workers=$(count_cores)
if ((workers > 4)); then workers=4; fi
check pytest -n "$workers" "$@"
exit "$first"
