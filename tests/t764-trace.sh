#!/bin/sh
# One trace for all ranks: their names, kernels, steps, and what they communicate, in one file of JSON. Each
# send of one rank is a receive of another, with the same tag and bytes, that ends after it has begun, by
# the one clock; sums have their bytes; events of a lane do not overlap. Arguments: source folder, build
# folder.
set -u
build=$2
. "$1/tests/mpirun.sh"
. "$1/tests/read_trace.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/megalith-trace.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
unset SLURM_JOB_ID
failures=0
fail()
{
    failures=$((failures + 1))
    echo "FAILED: $*"
    tail -n 5 err
}

overlaps()
{
    events "$1" | sort -n -k 1,1 -k 2,2 -k 3,3 | awk '
        $1 " " $2 == lane && $3 < end - 0.002 { print "lane " lane ": " $0 " begins before " end; bad = 1 }
        { lane = $1 " " $2; end = $4 }
        END { exit bad }'
}

tested=
for mpi in openmpi mpich; do
    mpi_has $mpi || { echo "$mpi: not in this build"; continue; }
    tested="$tested $mpi"
    what="$mpi: trace"
    rm -f trace.json*
    MEGALITH_MPI=$mpi "$build/megalith" train cnn -np 4 --options width=2 --replicas 2 --stages 2 --micro 2 --goal given \
        --norm 2 --batch 8 --threads 1 --no-test --data synthetic:count=64 --steps 3 --trace trace.json \
        > out 2> err || fail "$what: exit code $?"
    [ "$(echo trace.json*)" = trace.json ] || fail "$what: there are $(echo trace.json*)"
    [ "$(tail -n 1 trace.json)" = ']}' ] || fail "$what: it is not whole"
    [ "$(tr -cd '{[' < trace.json | wc -c)" = "$(tr -cd '}]' < trace.json | wc -c)" ] ||
        fail "$what: its brackets do not match"
    for r in 0 1 2 3; do
        grep -q "\"pid\": $((r + 1)), \"name\": \"process_name\", \"args\": {\"name\": \"rank $r\"}" trace.json ||
            fail "$what: no rank $r"
        for name in 'step 3' 'sum gradients over 2 ranks' 'sum losses over 4 ranks'; do
            grep -q "\"pid\": $((r + 1)), .*\"name\": \"$name\"" trace.json || fail "$what: rank $r: no $name"
        done
    done
    grep -q '"name": "send gradient of pool1[^"]* to rank 0", "args": {"bytes": [1-9]' trace.json ||
        fail "$what: no gradient is sent"
    grep -q '"tid": 3, .*"name": "wait"' trace.json || fail "$what: nobody waits"
    messages trace.json || fail "$what: messages"
    overlaps trace.json || fail "$what: lanes"
done
[ $failures = 0 ] && [ -z "$tested" ] && exit 77
[ $failures = 0 ] && echo "all passed:$tested"
[ $failures = 0 ]
