#!/usr/bin/env bash
# Run an experiment on virtual hosts on this machine; requires root.
#     launch/namespaces.sh [-n P] [--hosts=H] [--rate=RATE] experiments/x.py [--flags]
# The hosts are network namespaces; each has its name, address, /etc/hosts and /dev/shm, and
# a cable to a switch, a bridge in one more namespace. The P ranks (default 4) are placed
# evenly on the H hosts (default 2). RATE, such as 160mbit, limits both directions of each
# cable (tc tbf), and TCP uses Reno; default: no limit.
#
#     left 10.0.0.1 ═══ switch ═══ 10.0.0.2 right       more hosts: h1, h2, ...
set -euo pipefail
# shellcheck source=launch/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage="launch/namespaces.sh [-n P] [--hosts=H] [--rate=RATE] experiments/x.py [--flags]"

enter() { # host, command line, as in ssh
    local prefix
    prefix=$(basename "$DML_NAMESPACES")
    # shellcheck disable=SC2016 # $1 to $3 are the inner shell's
    exec ip netns exec "$prefix-$1" unshare --uts --ipc --mount bash -c '
        hostname "$1"
        mount --bind "$2/names" /etc/hosts
        mount -t tmpfs -o mode=1777 tmpfs /dev/shm
        exec bash -c "$3"' bash "$1" "$DML_NAMESPACES" "$2"
}

# hosts.sh calls this script as its launcher, with options (-x of ssh), host and command.
if [[ -n ${DML_NAMESPACES-} ]]; then
    while [[ ${1-} == -* ]]; do shift; done
    enter "$1" "${*:2}"
fi

ranks=4 count=2 rate=""
while [[ $# -gt 0 ]]; do
    case $1 in
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
    --hosts=*)
        count=${1#*=}
        [[ $count =~ ^([2-9]|[1-9][0-9]|1[0-9][0-9]|200)$ ]] ||
            stop 2 "expected --hosts=2 to 200, got '$count'; pass a number in this range"
        shift
        ;;
    --rate=*)
        rate=${1#*=}
        [[ $rate =~ ^[1-9][0-9]{0,5}[kmg]bit$ ]] ||
            stop 2 "expected a rate such as 160mbit, got '$rate'; use kbit, mbit or gbit"
        shift
        ;;
    *) break ;;
    esac
done
find_script "-n P, --hosts=H, --rate=RATE" "$@"
((EUID == 0)) || stop 2 "expected root, to create hosts, got $(id -un); run this as root"
PATH=$PATH:/usr/sbin:/sbin # Debian's ip and tc, which su leaves out of PATH
for tool in ip unshare mount ${rate:+tc}; do
    type -P "$tool" >/dev/null ||
        stop 2 "expected $tool on PATH, got none; install it (Debian: iproute2, util-linux)"
done
((ranks >= count)) ||
    stop 2 "expected at least $count ranks, one per host, got $ranks; pass a larger -n"
hosts=(left right)
if ((count > 2)); then
    mapfile -t hosts < <(seq -f "h%g" "$count")
fi

DML_NAMESPACES=$(mktemp -d "${TMPDIR:-/tmp}/dml-$$-XXXX")
prefix=$(basename "$DML_NAMESPACES")
# shellcheck disable=SC2317,SC2329 # the trap calls it
clean() {
    local host
    for host in "${hosts[@]}" switch; do
        { ip netns pids "$prefix-$host" | xargs -r kill -9; } 2>/dev/null || true
        ip netns del "$prefix-$host" 2>/dev/null || true
    done
    rm -rf "$DML_NAMESPACES"
}
trap clean EXIT
trap 'exit 130' INT TERM HUP

slots=$(((ranks + count - 1) / count))
printf '%s\n' "127.0.0.1 localhost" >"$DML_NAMESPACES/names"
refused="expected permission to create network namespaces, got the error above;"
refused+=" run this on a machine that permits them"
switch=$prefix-switch
{ ip netns add "$switch" && ip -n "$switch" link add bridge type bridge; } ||
    stop 2 "$refused"
ip -n "$switch" link set bridge up

limit() { # namespace, device
    [[ -n $rate ]] || return 0
    tc -n "$1" qdisc add dev "$2" root tbf rate "$rate" burst 64kb latency 50ms ||
        stop 2 "expected a kernel with the qdisc tbf, got the error above; omit --rate"
    # Every kernel permits Reno. With BBR, the default of some kernels, messages that
    # share a cable do not use all of its rate.
    ip netns exec "$1" bash -c "echo reno >/proc/sys/net/ipv4/tcp_congestion_control" ||
        stop 2 "expected a kernel with TCP Reno, got the error above; omit --rate"
}

for ((k = 0; k < count; k++)); do
    host=${hosts[k]} name=$prefix-${hosts[k]}
    echo "10.0.0.$((k + 1)) $host" >>"$DML_NAMESPACES/names"
    echo "$host:$slots" >>"$DML_NAMESPACES/hosts"
    {
        ip netns add "$name" && ip link add cable netns "$name" type veth \
            peer name "port$k" netns "$switch"
    } || stop 2 "$refused"
    ip -n "$name" address add "10.0.0.$((k + 1))/24" dev cable
    ip -n "$switch" link set "port$k" master bridge up
    ip -n "$name" link set lo up
    ip -n "$name" link set cable up
    limit "$name" cable
    limit "$switch" "port$k"
done

# The kernel checks the link once per second.
for host in "${hosts[@]}"; do
    for ((look = 0; look < 100; look++)); do
        if [[ $(ip -n "$prefix-$host" link show cable) == *"state UP"* ]]; then break; fi
        sleep 0.05
    done
done

line=$(printf '%q ' "$root/launch/hosts.sh" "--hosts=$DML_NAMESPACES/hosts" -n "$ranks" \
    "--launcher=$root/launch/namespaces.sh" "$@")
export DML_NAMESPACES UCX_NET_DEVICES=cable
(enter "${hosts[0]}" "$line") &
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
