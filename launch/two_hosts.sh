#!/usr/bin/env bash
# Run an experiment on two virtual hosts on this machine; requires root.
#     launch/two_hosts.sh [-n P] experiments/x.py [--flags]
# The hosts are network namespaces connected by a veth pair; each has its name, address,
# /etc/hosts and /dev/shm. Half of the P ranks (default 4) run on each.
#
#     left 10.0.0.1 ═══════════ 10.0.0.2 right
set -euo pipefail
# shellcheck source=launch/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage="launch/two_hosts.sh [-n P] experiments/x.py [--flags]"

enter() { # host, command line, as in ssh
    local prefix
    prefix=$(basename "$DML_TWO_HOSTS")
    # shellcheck disable=SC2016 # $1 to $3 are the inner shell's
    exec ip netns exec "$prefix-$1" unshare --uts --ipc --mount bash -c '
        hostname "$1"
        mount --bind "$2/names" /etc/hosts
        mount -t tmpfs -o mode=1777 tmpfs /dev/shm
        exec bash -c "$3"' bash "$1" "$DML_TWO_HOSTS" "$2"
}

# hosts.sh calls this script as its launcher, with options (-x of ssh), host and command.
if [[ -n ${DML_TWO_HOSTS-} ]]; then
    while [[ ${1-} == -* ]]; do shift; done
    enter "$1" "${*:2}"
fi

ranks=4
case ${1-} in
-h | --help)
    echo "$usage"
    exit
    ;;
-n)
    ranks=${2-}
    [[ $ranks =~ ^[1-9][0-9]{0,3}$ ]] ||
        stop 2 "expected a positive integer after -n, got '$ranks'; run $usage"
    shift 2
    ;;
esac
find_script "-n P" "$@"
((EUID == 0)) || stop 2 "expected root, to create hosts, got $(id -un); run this as root"
for tool in ip unshare mount; do
    type -P "$tool" >/dev/null ||
        stop 2 "expected $tool on PATH, got none; install it (Debian: iproute2, util-linux)"
done

DML_TWO_HOSTS=$(mktemp -d "${TMPDIR:-/tmp}/dml-$$-XXXX")
prefix=$(basename "$DML_TWO_HOSTS")
# shellcheck disable=SC2317,SC2329 # the trap calls it
clean() {
    local host
    for host in left right; do
        { ip netns pids "$prefix-$host" | xargs -r kill -9; } 2>/dev/null || true
        ip netns del "$prefix-$host" 2>/dev/null || true
    done
    rm -rf "$DML_TWO_HOSTS"
}
trap clean EXIT
trap 'exit 130' INT TERM HUP

slots=$(((ranks + 1) / 2))
printf '%s\n' "127.0.0.1 localhost" "10.0.0.1 left" "10.0.0.2 right" >"$DML_TWO_HOSTS/names"
printf '%s\n' "left:$slots" "right:$slots" >"$DML_TWO_HOSTS/hosts"
{
    ip netns add "$prefix-left" && ip netns add "$prefix-right" &&
        ip link add cable netns "$prefix-left" type veth \
            peer name cable netns "$prefix-right"
} || stop 2 "expected permission to create network namespaces, got the error above;" \
    "run this on a machine that permits them"
for host in left:1 right:2; do
    name=$prefix-${host%:*}
    ip -n "$name" address add "10.0.0.${host#*:}/24" dev cable
    ip -n "$name" link set lo up
    ip -n "$name" link set cable up
done

# The kernel checks the link once per second.
for host in left right; do
    for ((look = 0; look < 100; look++)); do
        if [[ $(ip -n "$prefix-$host" link show cable) == *"state UP"* ]]; then break; fi
        sleep 0.05
    done
done

line=$(printf '%q ' "$root/launch/hosts.sh" "--hosts=$DML_TWO_HOSTS/hosts" -n "$ranks" \
    "--launcher=$root/launch/two_hosts.sh" "$@")
export DML_TWO_HOSTS UCX_NET_DEVICES=cable
(enter left "$line") &
run=$! code=0 signalled=""
trap 'signalled=1; kill -TERM "$run" 2>/dev/null' INT TERM HUP
wait "$run" || code=$?
# A signal interrupts wait, but not the run, which saves its state before it ends. wait
# returns 127 after the process was reaped.
while [[ -n $signalled ]]; do
    again=0 signalled=""
    wait "$run" || again=$?
    if ((again != 127)); then code=$again; fi
done
exit "$code"
