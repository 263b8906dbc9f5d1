#!/bin/sh
# Several hosts, each with a link of 1 Gbit/s, under both MPIs: allreduce, and training that gives the
# losses of one rank. Arguments: source folder, build folder. Skipped where hosts cannot be made.
set -eu
source=$1 build=$2
. "$source/tests/mpirun.sh"

if [ "${3:-}" = "" ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    sh "$source/tests/hosts/network.sh" 4 1gbit "$folder" sh "$0" "$1" "$2" "$folder"
    exit
fi

folder=$3
. "$source/tests/hosts/mpirun.sh"
out=$folder/out
fail() { echo "FAILED: $*"; cat "$out"; exit 1; }

tested=
for mpi in openmpi mpich; do
    mpi_has $mpi || { echo "$mpi: not in this build"; continue; }
    tested="$tested $mpi"
    hosts_run $mpi 4 100 "$build/megalith" allreduce --min 1MiB --max 1MiB --repeat 3 > "$out" 2>&1 ||
        fail "$mpi: allreduce"
    grep -q '4 ranks on 4 nodes' "$out" || fail "$mpi: not four nodes"
    cat "$out"
    # 1.5 MiB must leave every host: at 1 Gbit/s that lasts 12.6 ms. Bursts of 256 KB are free.
    awk '/MiB/ { for (i = 3; i <= NF; i += 2) if ($i < 9000) exit 1 }' "$out" ||
        fail "$mpi: faster than the links: it found another way"
done
[ -n "$tested" ] || { echo "no MPI in this build"; exit 77; }
