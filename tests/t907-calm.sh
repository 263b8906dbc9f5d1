#!/bin/sh
# Threads that wait give their core away soon, on a machine that is shared with others: the command tells
# libgomp before it begins, unless the user has. Arguments: source folder, build folder.
set -u
megalith=$2/megalith
. "$1/tests/mpirun.sh"
build=$2
work=$(mktemp -d "${TMPDIR:-/tmp}/megalith-calm.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
unset GOMP_SPINCOUNT OMP_WAIT_POLICY SLURM_JOB_ID MEGALITH_MPI
failures=0
words="bench cnn --width 2 --batch 4 --warmup 1 --iterations 1 --repeat 1 --json"

# spins WANTED [VARIABLE=..] COMMAND..: so often, by libgomp's own last words of it.
spins()
{
    want=$1 what="$*"
    shift
    env OMP_DISPLAY_ENV=verbose "$@" > out 2> err || { echo "FAILED: $what"; tail -n 5 err; failures=1; }
    got=$(sed -n "s/.*GOMP_SPINCOUNT = '\([0-9]*\)'.*/\1/p" err | tail -n 1)
    [ "$got" = "$want" ] || { echo "FAILED: $what: libgomp spins $got times"; failures=1; }
}

spins 10000 "$megalith" $words
[ "$(grep -c 'GOMP_SPINCOUNT =' err)" = 2 ] || { echo "FAILED: not started anew once"; failures=1; }
spins 10000 OMP_NUM_THREADS=1 "$megalith" $words
spins 77 GOMP_SPINCOUNT=77 "$megalith" $words
[ "$(grep -c GOMP_SPINCOUNT err)" = 1 ] || { echo "FAILED: started anew for nothing"; failures=1; }
spins 0 OMP_WAIT_POLICY=passive "$megalith" $words
# Where another program runs this one, that one would be started: nothing is.
loader=$(readelf -l "$megalith" 2> /dev/null | sed -n 's/.*program interpreter: \(.*\)]/\1/p')
if [ -x "$loader" ]; then
    "$loader" "$megalith" $words > out 2> err || { echo "FAILED: under $loader"; tail -n 3 err; failures=1; }
fi
# No kernels, which take long; a sanitizer's program does not run under valgrind.
if command -v valgrind > /dev/null && ! grep -q fsanitize "$build/CMakeCache.txt"; then
    timeout 300 valgrind --tool=none "$megalith" plan cnn --width 2 --batch 4 --device ref > out 2> err ||
        { echo "FAILED: under valgrind"; tail -n 3 err; failures=1; }
    grep -q 'predicted peak' out || { echo "FAILED: under valgrind nothing is planned"; failures=1; }
    grep -q '^==[0-9]*== *$' err || { echo "FAILED: valgrind lost it"; failures=1; }
fi
for mpi in openmpi mpich; do
    mpi_has $mpi && spins 10000 MEGALITH_MPI=$mpi "$megalith" $words -np 2
done
[ $failures = 0 ] && echo "all passed"
[ $failures = 0 ]
