#!/bin/sh
# The communicator under every MPI of this build: 1 to 16 ranks, messages in small pieces, errors that
# all ranks share, ranks that die. Arguments: source folder, build folder.
set -eu
build=$2
. "$1/tests/mpirun.sh"
ranks=$build/tests/t520-ranks
[ -x "$ranks" ] || { echo "t520-ranks is not built: no cmocka"; exit 77; }
out=$(mktemp)
trap 'rm -f "$out"' EXIT
fail() { echo "FAILED: $*"; cat "$out"; exit 1; }

# Runs; the exit status is in $status, all output in $out.
try()
{
    status=0
    mpi_run "$@" > "$out" 2>&1 || status=$?
}

tested=
for mpi in openmpi mpich; do
    mpi_has $mpi || { echo "$mpi: not in this build"; continue; }
    tested="$tested $mpi"
    for n in 1 2 3 4 5 7 8 16; do
        try $mpi $n 100 "$ranks"
        [ $status = 0 ] || fail "$mpi, $n ranks: status $status"
    done
    # The pieces of a message, as if MPI's counts ended there.
    MEGALITH_MPI_PIECE=1000 try $mpi 3 100 "$ranks"
    [ $status = 0 ] || fail "$mpi, messages in pieces: status $status"
    # One rank needs no MPI, but may have it.
    MEGALITH_MPI=$mpi try $mpi 1 60 "$ranks"
    [ $status = 0 ] || fail "$mpi, one rank with MPI: status $status"

    try $mpi 3 30 "$ranks" library
    case $mpi in
    openmpi) grep -q '^Open MPI v[0-9.]*, 3 ranks$' "$out" || fail "$mpi: library" ;;
    mpich) grep -q '^MPICH Version: *[0-9.]*, 3 ranks$' "$out" || fail "$mpi: library" ;;
    esac

    try $mpi 4 30 "$ranks" fail
    [ $status = 3 ] || fail "$mpi: an agreed error ended with $status, not 3"
    # Launchers may join the lines of different ranks.
    said=$(grep -o 'rank 1: the file is torn' "$out" | wc -l)
    [ "$said" = 4 ] || fail "$mpi: not all agree"

    # The job ends soon, and not well.
    for what in vanish abort; do
        start=$(date +%s)
        try $mpi 4 60 "$ranks" $what
        took=$(($(date +%s) - start))
        [ $status != 0 ] && [ $took -le 10 ] || fail "$mpi, $what: status $status after $took s"
    done
    grep -q '^megalith: rank 1: the disk is full$' "$out" || fail "$mpi: abort does not say why"

    # Half a second of waiting, in ms of processor time.
    try $mpi 2 30 "$ranks" idle
    [ $status = 0 ] || fail "$mpi, idle: status $status"
    worst=$(sort -n "$out" | tail -n 1)
    echo "$mpi: 500 ms of waiting cost $worst ms of processor time"
    [ "$worst" -lt 200 ] || fail "$mpi: waiting burns a core"
done

[ -n "$tested" ] || { echo "no MPI in this build"; exit 77; }

# An installed tree, wherever it is: the command finds its plug-ins.
prefix=$(mktemp -d)
trap 'rm -rf "$out" "$prefix"' EXIT
cmake --install "$build" --prefix "$prefix" > "$out" 2>&1 || fail "install"
mv "$prefix/bin/megalith" "$prefix/bin/moved"
for mpi in $tested; do
    try $mpi 2 60 "$prefix/bin/moved" allreduce --max 16KiB --repeat 2
    [ $status = 0 ] && [ "$(grep -c KiB "$out")" = 3 ] || fail "$mpi, installed: status $status"
    cat "$out"
done

# The launcher of one MPI and the plug-in of the other are told apart, not run side by side.
if [ "$tested" = " openmpi mpich" ]; then
    MEGALITH_MPI=mpich try openmpi 2 60 "$ranks"
    [ $status != 0 ] && [ $status != 124 ] || fail "mixed MPIs: status $status"
    grep -q 'the launcher started 2 ranks, but mpich sees one' "$out" || fail "mixed MPIs: message"
fi
