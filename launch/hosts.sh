#!/usr/bin/env bash
# Run an experiment on the hosts of a file, with mpirun of MPICH or Open MPI.
#     launch/hosts.sh --hosts=FILE [-n P] [--launcher=PROGRAM] experiments/x.py [--flags]
# Lines of FILE: `host`, `host:4` or `host slots=4`; # starts a comment.
# This folder and .venv must have the same path on every host: use a shared file system.
# PROGRAM replaces ssh and is called as PROGRAM [options] HOST COMMAND...
set -euo pipefail
# shellcheck source=launch/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage="launch/hosts.sh --hosts=FILE [-n P] [--launcher=PROGRAM] experiments/x.py [--flags]"
file=""
ranks=""
launcher=""
# Open MPI passes only named variables to ranks on other hosts.
passed="^(PATH|PYTHONPATH|LD_LIBRARY_PATH|GLIBC_TUNABLES|[A-Z]+_NUM_THREADS|NPROC|"
passed+="(DML|JAX|XLA|NCCL|CUDA|UCX|FI|HF)_[A-Z0-9_]+)$"

# Set hosts (a:2,b:1), slots (number of all), most (largest number of a host), names
# (number of hosts).
read_hosts() { # file
    local line host count number=0 name="[A-Za-z0-9][A-Za-z0-9._-]*" many="[1-9][0-9]{0,5}"
    local -A of=()
    hosts="" slots=0 most=0
    while IFS= read -r line || [[ -n $line ]]; do
        number=$((number + 1))
        line=${line%%#*}
        [[ $line =~ [^[:space:]] ]] || continue
        [[ $line =~ ^[[:space:]]*($name)((:|[[:space:]]+slots=)($many))?[[:space:]]*$ ]] ||
            stop 2 "expected 'host', 'host:4' or 'host slots=4' in line $number of $1," \
                "got '${line%$'\r'}'; correct the line"
        host=${BASH_REMATCH[1]} count=${BASH_REMATCH[4]:-1}
        hosts+=${hosts:+,}$host:$count
        slots=$((slots + count))
        of[$host]=$((${of[$host]:-0} + count))
        if ((of[$host] > most)); then most=${of[$host]}; fi
    done <"$1"
    ((slots)) || stop 2 "expected one host per line in $1, got none; write 'host:4'"
    names=${#of[@]}
}

while [[ $# -gt 0 ]]; do
    case $1 in
    -h | --help)
        echo "$usage"
        exit
        ;;
    -n)
        ranks=${2-}
        [[ $ranks =~ ^[1-9][0-9]{0,8}$ ]] ||
            stop 2 "expected a positive integer after -n, got '$ranks'; run $usage"
        shift 2
        ;;
    --hosts=*)
        file=${1#*=}
        [[ -r $file && ! -d $file ]] ||
            stop 2 "expected a file of hosts, got '$file', which is not readable; run $usage"
        shift
        ;;
    --launcher=*)
        launcher=$(type -P "${1#*=}") ||
            stop 2 "expected an executable after --launcher, got '${1#*=}';" \
                "pass a program on PATH or a file, such as ssh"
        launcher=$(cd "$(dirname "$launcher")" && pwd)/${launcher##*/}
        shift
        ;;
    *) break ;;
    esac
done
[[ -n $file ]] || stop 2 "expected --hosts=FILE, got none; run $usage"
read_hosts "$file"
find_script "--hosts=FILE, -n P, --launcher=PROGRAM" "$@"
shift
ranks=${ranks:-$slots}
((ranks <= slots)) ||
    stop 2 "expected at most $slots ranks, the slots in $file, got $ranks;" \
        "pass a smaller -n, or give hosts more slots"
if ((names > 1)) && [[ -z $launcher ]] && ! launcher=$(type -P ssh); then
    stop 2 "expected ssh to reach $names hosts, got none on PATH;" \
        "install it, or pass --launcher=PROGRAM"
fi

ready_environment
pin_threads "$most" # all hosts are assumed to have as many cores as this one
use_huge_pages
choose_mpirun
if [[ $("$mpirun" --version 2>&1) == *"Open MPI"* ]]; then
    mpi="Open MPI"
    # Releases 4 and 5 have different names for a setting, and ignore unknown names.
    export OMPI_MCA_plm_rsh_agent=$launcher PRTE_MCA_plm_ssh_agent=$launcher
    if [[ -z $launcher ]]; then unset OMPI_MCA_plm_rsh_agent PRTE_MCA_plm_ssh_agent; fi
    with=(--host "$hosts" --map-by slot)
    for name in $(compgen -e); do
        if [[ $name =~ $passed ]]; then with+=(-x "$name"); fi
    done
else
    mpi="MPICH"
    # Inside a Slurm job, mpirun would use the hosts of the job by default.
    with=(-rmk user -hosts "$hosts")
    if [[ -n $launcher ]]; then with+=(-launcher ssh -launcher-exec "$launcher"); fi
fi
say "$ranks rank$([[ $ranks == 1 ]] || echo s) on $names host$([[ $names == 1 ]] ||
    echo s), $threads, $mpi's $mpirun"
exec "$mpirun" "${with[@]}" -n "$ranks" "$python" "$script" "$@"
