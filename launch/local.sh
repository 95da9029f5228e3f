#!/usr/bin/env bash
# Run an experiment on this machine, on P ranks; make .venv first where it is missing.
#     launch/local.sh [-n P] experiments/x.py [--flags]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage="launch/local.sh [-n P] experiments/x.py [--flags]"
ranks=""
case ${1-} in
-h | --help)
    echo "$usage"
    exit
    ;;
-n)
    ranks=${2-}
    most=$((64 * $(count_cores)))
    [[ $ranks =~ ^[1-9][0-9]*$ ]] ||
        stop 2 "expected a positive integer after -n, got '$ranks'; run $usage"
    ((${#ranks} < 10 && ranks <= most)) ||
        stop 2 "expected at most $most ranks here (64 a core), got $ranks; pass a smaller -n"
    shift 2
    ;;
esac
[[ $# -gt 0 ]] || stop 2 "expected a script, got none; run $usage"
[[ $1 != -* ]] || stop 2 "expected -n P or a script first, got '$1'; run $usage"
script=$1
shift
# From another directory, a path relative to the repository serves as well.
if [[ ! -f $script && -f $root/$script ]]; then script=$root/$script; fi
[[ -f $script ]] || stop 2 "expected a script, got '$script', which is no file; run $usage"

ready_environment
pin_threads "${ranks:-1}"
use_huge_pages
if [[ -z $ranks ]]; then
    say "1 process, $threads"
    exec "$python" "$script" "$@"
fi
choose_mpirun
if [[ $mpirun == "$venv"/* ]]; then from=.venv; else from=$mpirun; fi
say "$ranks rank$([[ $ranks == 1 ]] || echo s), $threads, mpirun from $from"
exec "$mpirun" -n "$ranks" "$python" "$script" "$@"
