#!/bin/sh
# Cases of the fuzzer under mpirun: N of them from SEED on, skipping those whose plan is refused or
# wants a single rank. Arguments: source folder, build folder, N, SEED, and which MPIs take a case:
# `each` all of them (default), `turns` one after the other.
set -eu
build=$2 count=${3:-20} seed=${4:-1} who=${5:-each}
. "$1/tests/mpirun.sh"
program=$build/tests/fuzz_plans
[ -x "$program" ] || { echo "fuzz_plans is not built: no cmocka"; exit 77; }
mpis=
for mpi in openmpi mpich; do
    if mpi_has $mpi; then mpis="$mpis $mpi"; else echo "$mpi: not in this build"; fi
done
[ -n "$mpis" ] || { echo "no MPI in this build"; exit 77; }
out=$(mktemp)
trap 'rm -f "$out"' EXIT

cases=0 runs=0 failed=0
while [ $cases -lt "$count" ]; do
    ranks=$("$program" --ranks "$seed" 2> /dev/null)
    if [ "$ranks" -ge 2 ]; then
        cases=$((cases + 1))
        chosen=$mpis
        if [ "$who" = turns ]; then
            set -- $mpis
            [ $((cases % $#)) = 0 ] || shift $(($# - 1))
            chosen=$1
        fi
        for mpi in $chosen; do
            status=0
            mpi_run $mpi "$ranks" 150 "$program" --case "$seed" > "$out" 2>&1 || status=$?
            worst=$(sed -n 's/.*largest difference \([^ ]*\).*/\1/p' "$out" | sort -g | tail -n 1)
            echo "seed $seed, $mpi, $ranks ranks: largest difference ${worst:-unknown}"
            runs=$((runs + 1))
            [ $status = 0 ] && continue
            failed=$((failed + 1))
            echo "FAILED with status $status: ./do fuzz --mpi 1 $seed"
            cat "$out"
        done
    fi
    seed=$((seed + 1))
done
echo "$cases cases under$mpis, $runs runs: $failed FAILED"
[ $failed = 0 ]
