#!/usr/bin/env bash
# Run an experiment on this machine, on P ranks; make .venv first where it is missing.
#     launch/local.sh [-n P] [--devices=D] experiments/x.py [--flags]
# D are virtual devices of JAX on the CPU, in each rank.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage="launch/local.sh [-n P] [--devices=D] experiments/x.py [--flags]"
ranks=""
devices=""
# A count of at most 64 a core; more is a slip of the hand.
count_of() { # flag, count
    local most=$((64 * $(count_cores)))
    [[ $2 =~ ^[1-9][0-9]*$ ]] ||
        stop 2 "expected a positive integer after $1, got '$2'; run $usage"
    ((${#2} < 10 && $2 <= most)) ||
        stop 2 "expected at most $most after $1 here (64 a core), got $2; pass fewer"
}

while [[ $# -gt 0 ]]; do
    case $1 in
    -h | --help)
        echo "$usage"
        exit
        ;;
    -n)
        ranks=${2-}
        count_of -n "$ranks"
        shift 2
        ;;
    --devices=*)
        devices=${1#*=}
        count_of --devices= "$devices"
        shift
        ;;
    *) break ;;
    esac
done
[[ $# -gt 0 ]] || stop 2 "expected a script, got none; run $usage"
[[ $1 != -* ]] || stop 2 "expected -n P, --devices=D or a script first, got '$1'; run $usage"
script=$1
shift
# From another directory, a path relative to the repository serves as well.
if [[ ! -f $script && -f $root/$script ]]; then script=$root/$script; fi
[[ -f $script ]] || stop 2 "expected a script, got '$script', which is no file; run $usage"

ready_environment
pin_threads $((${ranks:-1} * ${devices:-1}))
use_huge_pages
if [[ -n $devices ]]; then
    export JAX_PLATFORMS=cpu JAX_NUM_CPU_DEVICES=$devices
    threads="$devices virtual devices, $threads"
fi
if [[ -z $ranks ]]; then
    say "1 process, $threads"
    exec "$python" "$script" "$@"
fi
choose_mpirun
if [[ $mpirun == "$venv"/* ]]; then from=.venv; else from=$mpirun; fi
say "$ranks rank$([[ $ranks == 1 ]] || echo s), $threads, mpirun from $from"
exec "$mpirun" -n "$ranks" "$python" "$script" "$@"
