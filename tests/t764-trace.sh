#!/bin/sh
# One trace for all ranks: their names, kernels, steps, and what they communicate, in one file of JSON. Each
# send of one rank is a receive of another, with the same tag and bytes, that ends after it has begun, by
# the one clock; sums have their bytes; events of a lane do not overlap. Arguments: source folder, build
# folder.
set -u
build=$2
. "$1/tests/mpirun.sh"
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

# One event a line, as: pid tid begin end tag bytes peer name
events()
{
    sed -n 's/.*"ph": "X", "pid": \([0-9]*\), "tid": \([0-9]*\), "ts": \([-0-9.]*\), "dur": \([-0-9.]*\), "name": "\([^"]*\)"\(.*\)/\1 \2 \3 \4 @\5@\6/p' "$1" |
        awk '{
            split($0, part, "@"); name = part[2]; rest = part[3]
            tag = bytes = peer = "-"
            if (match(rest, /"bytes": [0-9]+/)) bytes = substr(rest, RSTART + 9, RLENGTH - 9)
            if (match(rest, /"tag": [0-9]+/)) tag = substr(rest, RSTART + 7, RLENGTH - 7)
            if (match(rest, /"peer": [0-9]+/)) peer = substr(rest, RSTART + 8, RLENGTH - 8)
            printf "%d %d %.3f %.3f %s %s %s %s\n", $1, $2, $3, $3 + $4, tag, bytes, peer, name
        }'
}

# The k-th message of a sender, a receiver and a tag is the k-th that is received.
messages()
{
    events "$1" | sort -n -k 3 | awk '
        $8 == "send" { key = $1 - 1 " " $7 " " $5; begin[key, ++sent[key]] = $3; size[key, sent[key]] = $6 }
        $8 == "receive" { key = $7 " " $1 - 1 " " $5; n = ++got[key]; end[key, n] = $4; bytes[key, n] = $6; all++ }
        END {
            for (key in sent) if (sent[key] != got[key]) { print key ": sent " sent[key] ", received " got[key]; bad = 1 }
            for (at in end) {
                if (size[at] != bytes[at]) { print at ": " size[at] " bytes became " bytes[at]; bad = 1 }
                if (end[at] < begin[at]) { print at ": received " begin[at] - end[at] " us before it was sent"; bad = 1 }
            }
            print all " messages"
            exit bad || !all
        }'
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
    MEGALITH_MPI=$mpi "$build/megalith" train cnn -np 4 --options width=2 --replicas 2 --stages 2 --micro 2 \
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
