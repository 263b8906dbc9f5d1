#!/bin/sh
# Four hosts, each with a link of 1 Gbit/s, under both MPIs: allreduce; data-parallel and pipelined
# training that gives the losses of one rank; communication that overlaps. Arguments: source folder,
# build folder. Skipped where hosts cannot be made. HOSTS_MPI=mpich tests that one only.
set -eu
source=$1 build=$2
. "$source/tests/mpirun.sh"

if [ "${3:-}" = "" ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    status=0
    sh "$source/tests/hosts/network.sh" 4 1gbit "$folder" sh "$0" "$1" "$2" "$folder" || status=$?
    exit $status
fi

folder=$3
. "$source/tests/hosts/mpirun.sh"
. "$source/tests/hosts/checks.sh"
launch() { hosts_mpirun "$@"; }

tested=
one_rank
for mpi in ${HOSTS_MPI:-openmpi mpich}; do
    mpi_has $mpi || { echo "$mpi: not in this build"; continue; }
    tested="$tested $mpi"
    check_allreduce $mpi
    check_losses $mpi 4 --replicas 4
    check_losses $mpi 4 --replicas 2 --stages 2 --schedule gpipe
    check_losses $mpi 3 --stages 3 --schedule 1f1b
    check_overlap $mpi
done
[ -n "$tested" ] || { echo "no MPI in this build"; exit 77; }
