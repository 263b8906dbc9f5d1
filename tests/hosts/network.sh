#!/bin/sh
# Runs a command in a small private network: hosts h0 .. h3 with a full-duplex link of RATE each to
# one switch, all of it inside name spaces that end with the command, whatever happens.
#
#     sh network.sh 4 1gbit FOLDER command words ..       from anywhere
#     sh agent.sh h0 command words ..                    from within: runs it on a host
#
#     h0 10.77.0.10 --+
#     h1 10.77.0.11 --+-- switch
#     h2 10.77.0.12 --+            a host has its own network, host name and shared memory
#     h3 10.77.0.13 --+
#
# FOLDER gets `machines`, the list of hosts. 77: this machine does not let us make name spaces.
set -eu
here=$(cd "$(dirname "$0")" && pwd)

if [ "${1:-}" != within ]; then
    for tool in unshare nsenter ip tc; do
        command -v $tool > /dev/null ||
            { echo "no hosts: $tool is missing (Debian: util-linux, iproute2)"; exit 77; }
    done
    user=
    [ "$(id -u)" = 0 ] || user="--user --map-root-user"
    spaces="$user --net --mount --uts --ipc --pid --fork --kill-child --mount-proc"
    if ! why=$(unshare $spaces mount -t tmpfs none /mnt 2>&1); then
        echo "no hosts: name spaces are not permitted here: $why"
        exit 77
    fi
    exec unshare $spaces sh "$here/network.sh" within "$@"
fi

count=$2 rate=$3 folder=$4
shift 4
case $rate in
*gbit) burst=128kb ;;
*) burst=32kb ;;
esac
mkdir -p /run/netns
mount -t tmpfs none /run/netns
if ! why=$(ip link add switch type bridge 2>&1); then
    echo "no hosts: no bridge can be made here: $why"
    exit 77
fi
ip link set lo up
ip link set switch up
echo "127.0.0.1 localhost" > "$folder/names"
: > "$folder/machines"
i=0
while [ $i -lt "$count" ]; do
    ip netns add h$i
    ip link add port$i type veth peer name eth0 netns h$i
    ip link set port$i master switch up
    ip -n h$i addr add 10.77.0.$((10 + i))/24 dev eth0
    ip -n h$i link set eth0 up
    ip -n h$i link set lo up
    # Both ends of the cable send at that rate at most, about a millisecond's worth of it at once.
    limit="tbf rate $rate burst $burst latency 50ms"
    if ! why=$(tc -n h$i qdisc add dev eth0 root $limit 2>&1 &&
               tc qdisc add dev port$i root $limit 2>&1); then
        echo "no hosts: links cannot be limited here: $why"
        exit 77
    fi
    echo "10.77.0.$((10 + i)) h$i" >> "$folder/names"
    echo "h$i" >> "$folder/machines"
    i=$((i + 1))
done
mount --bind "$folder/names" /etc/hosts
exec "$@"
