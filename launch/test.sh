#!/usr/bin/env bash
# Run every check; create .venv if it is missing. Arguments are passed to pytest.
#     launch/test.sh [--python=3.13] [--latest] [pytest arguments]
#     launch/test.sh --smoke           mypy and the tests of tests/smoke.txt
#     launch/test.sh --mpi=openmpi     the tests with real ranks, by Open MPI
# All checks run, even after failures; the exit code is that of the first failed check.
set -euo pipefail
# shellcheck source=launch/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage="launch/test.sh $environment_options [--smoke] [pytest arguments]"
smoke=""
while [[ $# -gt 0 ]]; do
    case $1 in
    -h | --help)
        echo "$usage"
        exit
        ;;
    --smoke) smoke=1 ;;
    *) environment_option "$1" || break ;;
    esac
    shift
done

first=0
check() {
    local code=0
    say "$*"
    "$python" -m "$@" || code=$?
    if ((code)); then say "$1 failed with code $code"; fi
    if ((first == 0)); then first=$code; fi
}

requirements+=(launch/requirements_test.txt)
ready_environment
# Tests start ranks with the mpirun of the environment; each rank has one thread.
pin_threads "$(count_cores)"
export PATH=$venv/bin:$PATH
cd "$root"
say "$threads, mpirun from $environment"

tests=()
if [[ -n $mpi ]]; then
    set_mpi_variables
    tests=(-m mpi)
elif [[ -n $smoke ]]; then
    check mypy dml
    tests=(@tests/smoke.txt)
else
    check ruff format --check .
    check ruff check .
    check mypy dml
fi
# One worker per core, at most 4: a single worker runs all tests with real ranks.
workers=$(count_cores)
if ((workers > 4)); then workers=4; fi
check pytest -n "$workers" ${tests[@]+"${tests[@]}"} "$@"
exit "$first"
