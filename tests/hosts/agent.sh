#!/bin/sh
# Runs a command on a host of network.sh, as ssh would: agent.sh [options of ssh] HOST command ..
# Own host name and shared memory: else an MPI would see that all hosts are one.
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec nsenter --net=/run/netns/$host unshare --uts --ipc --mount sh -c '
    hostname "$0" && mount -t tmpfs none /dev/shm && eval "$*"' "$host" "$@"
