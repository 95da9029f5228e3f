#!/usr/bin/env bash
# Check dml on the GPUs of this machine; create .venv with CUDA if it is missing.
#     launch/gpu.sh [--checks=mesh,glove] [--out=FOLDER] [--page=docs/gpu.md]
#     launch/gpu.sh --cpu          the same checks, small, on CPU devices
#     launch/gpu.sh --dry_run      the commands
# --python=PROGRAM uses an installed environment in place of .venv; then nothing is
# installed and no network is needed. The exit code is 1 if a check failed.
set -euo pipefail
# shellcheck source=launch/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage="launch/gpu.sh [--cpu | --dry_run] [--checks=NAMES] [--python=PROGRAM]"
program="" arguments=()
for argument in "$@"; do
    case $argument in
    -h) arguments+=(--help) ;;
    --python=*)
        program=$(type -P "${argument#*=}") ||
            stop 2 "expected a program after --python, got '${argument#*=}'; run $usage"
        ;;
    *) arguments+=("$argument") ;;
    esac
done
if [[ -z $program ]]; then
    ready_environment
    program=$python
fi
set_mpi_variables
use_huge_pages
say "checks with $program"
exec "$program" "$root/launch/gpu.py" ${arguments[@]+"${arguments[@]}"}
