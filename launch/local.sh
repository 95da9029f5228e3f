#!/usr/bin/env bash
# Run an experiment on P ranks on this machine; create .venv if it is missing.
#     launch/local.sh [-n P] [--devices=D] experiments/x.py [--flags]
# D is the number of virtual JAX devices on the CPU of each rank.
set -euo pipefail
# shellcheck source=launch/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage="launch/local.sh [-n P] [--devices=D] experiments/x.py [--flags]"
ranks=""
devices=""
check_count() { # name, flag, count
    local most=$((64 * $(count_cores)))
    [[ $3 =~ ^[1-9][0-9]*$ ]] ||
        stop 2 "expected a positive integer after $2, got '$3'; run $usage"
    ((${#3} < 10 && $3 <= most)) ||
        stop 2 "expected at most $most $1 (64 per core), got $3; pass a smaller $2"
}

while [[ $# -gt 0 ]]; do
    case $1 in
    -h | --help)
        echo "$usage"
        exit
        ;;
    -n)
        ranks=${2-}
        check_count ranks -n "$ranks"
        shift 2
        ;;
    --devices=*)
        devices=${1#*=}
        check_count devices --devices "$devices"
        shift
        ;;
    *) break ;;
    esac
done
find_script "-n P, --devices=D" "$@"
shift

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
