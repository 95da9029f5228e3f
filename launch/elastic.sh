#!/usr/bin/env bash
# Run an experiment on P ranks under a supervisor, which restarts it after a rank dies.
#     launch/elastic.sh -n P [--spares=S] [--memory] [--attempts=N] experiments/x.py [--flags]
# It needs no fault tolerance of the MPI. --help describes the rules.
set -euo pipefail
# shellcheck source=launch/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage="launch/elastic.sh -n P [--spares=S] [--memory] [--attempts=N] experiments/x.py"
usage+=" [--flags]"
describe() {
    cat <<TEXT
$usage

Starts the script on P ranks. If a rank is killed, MPI ends the other ranks, and the
supervisor starts the script again with --resume, from its newest complete checkpoint.

  -n P          Number of ranks.
  --spares=S    Number of spare slots [0]. Each death uses up a slot: the run keeps P
                ranks for S deaths, then has one rank fewer after each further death, and
                ends without a rank. With --reduce=order_free --shards=V the result has
                equal bits on any number of ranks.
  --memory      Checkpoints in the memory of this host (/dev/shm). They survive the
                ranks and the supervisor, but not the host, and are moved to the run
                folder at the end.
  --attempts=N  Number of starts in a row without a new checkpoint after which the
                supervisor ends [3].

The supervisor passes --out=runs/<experiment>/<UTC time> and --save_every=10 (seconds)
unless the script's flags have --out, --resume or --save_every.

End of a run                          Action of the supervisor
a signal killed a rank or mpirun      restarts with one slot fewer
another error                         restarts if there is a new checkpoint
exit code 0                           ends with code 0
exit code 2, bad input                ends with code 2
Ctrl-C, SIGTERM to the supervisor     the run saves its state; ends with code 130
a second signal                       kills all ranks; ends with code 130
TEXT
}

ranks="" spares=0 memory="" attempts=3
while [[ $# -gt 0 ]]; do
    case $1 in
    -h | --help)
        describe
        exit
        ;;
    -n)
        ranks=${2-}
        check_count ranks -n "$ranks"
        shift 2
        ;;
    --spares=*)
        spares=${1#*=}
        check_count spares --spares "$spares" 0
        shift
        ;;
    --memory)
        memory=--memory
        shift
        ;;
    --attempts=*)
        attempts=${1#*=}
        [[ $attempts =~ ^[1-9][0-9]{0,5}$ ]] ||
            stop 2 "expected a positive integer after --attempts, got '$attempts';" \
                "run $usage"
        shift
        ;;
    *) break ;;
    esac
done
find_script "-n P, --spares=S, --memory, --attempts=N" "$@"
shift
[[ -n $ranks ]] || stop 2 "expected -n P, got none; run $usage"

ready_environment
pin_threads "$ranks"
use_huge_pages
choose_mpirun
say "$(plural "$ranks" rank) and $(plural "$spares" "spare slot"), $threads," \
    "mpirun from $(place_of_mpirun), supervised"
exec "$python" "$root/launch/supervisor.py" "--ranks=$ranks" "--spares=$spares" \
    "--attempts=$attempts" ${memory:+"$memory"} "--mpirun=$mpirun" "$script" "$@"
