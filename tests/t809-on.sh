#!/bin/sh
# A context on a communicator of the program's own, with every MPI of this build that programs can be built with: MPI is
# neither begun nor ended by Megalith, and ranks outside are not disturbed. Arguments: source folder, build folder.
set -eu
source=$1 build=$2
. "$1/tests/mpirun.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/megalith-test.XXXXXX")
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; cat "$work/out"; exit 1; }
nm "$build/libmegalith.so" 2> /dev/null | grep -q __asan_init && { echo "symbols of a sanitizer build"; exit 77; }

tested=
for mpi in openmpi mpich; do
    mpi_has $mpi && command -v "mpicc.$mpi" > /dev/null || { echo "$mpi: not here"; continue; }
    tested="$tested $mpi"
    "mpicc.$mpi" -std=c11 -I"$source/include" -o "$work/on" "$source/tests/open_on.c" -L"$build" -lmegalith \
        -Wl,-rpath,"$build" > "$work/out" 2>&1 || fail "$mpi: does not build"
    status=0
    mpi_run $mpi 4 100 "$work/on" > "$work/out" 2>&1 || status=$?
    [ $status = 0 ] || fail "$mpi: status $status"
    [ "$(grep -c '^2 ranks, loss ' "$work/out")" = 2 ] || fail "$mpi: not two trainings on two ranks"
    [ "$(sort -u "$work/out" | grep -c '^2 ranks, loss ')" = 1 ] || fail "$mpi: they differ"
    status=0
    mpi_run $mpi 2 60 "$work/on" abort > "$work/out" 2>&1 || status=$?
    [ $status != 0 ] || fail "$mpi: an abort is no success"
    [ "$(grep -c 'megalith: the column is missing' "$work/out")" = 1 ] || fail "$mpi: abort does not say why, once"
done
[ -n "$tested" ] || { echo "no MPI"; exit 77; }
echo "as it should be:$tested"
