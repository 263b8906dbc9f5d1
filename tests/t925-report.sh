#!/bin/sh
# Reports and predicted traces: the trace of a plan has what one of a run has, each send a receive with the same bytes;
# the critical path is named; files that cannot be written are refused before anything runs, also under
# -np. Reports are then opened by Chromium, without a window: no script fails, every rank has its rows, predicted and
# measured, every alternative its bar, nothing is asked of any network. Without Chromium that part is skipped.
# Arguments: source folder, build folder.
set -u
build=$2
. "$1/tests/mpirun.sh"
. "$1/tests/read_trace.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/megalith-report.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
unset SLURM_JOB_ID
megalith=$build/megalith
failures=0
fail()
{
    failures=$((failures + 1))
    echo "FAILED: $*"
    tail -n 5 err
}

machine="nodes=2 ranks=2 cores=2 memory=4GiB flops=10G bandwidth=10GB/s inside=2us,4GB/s between=20us,1GB/s"
small="cnn --options width=2 --batch 8 --threads 1"

# ---- the trace of a plan ----
what="plan --trace"
"$megalith" plan $small --norm 2 --ranks 4 --replicas 2 --stages 2 --micro 2 --goal given --machine "$machine" \
    --trace plan.json > out 2> err || fail "$what: exit code $?"
[ "$(tail -n 1 plan.json)" = ']}' ] || fail "$what: it is not whole"
[ "$(tr -cd '{[' < plan.json | wc -c)" = "$(tr -cd '}]' < plan.json | wc -c)" ] ||
    fail "$what: its brackets do not match"
for r in 0 1 2 3; do
    grep -q "\"pid\": $((r + 1)), \"name\": \"process_name\", \"args\": {\"name\": \"rank $r\"}" plan.json ||
        fail "$what: no rank $r"
    for name in step 'sum gradients over 2 ranks' 'sgd update'; do
        grep -q "\"pid\": $((r + 1)), .*\"name\": \"$name\"" plan.json || fail "$what: rank $r: no $name"
    done
done
grep -q '"name": "send gradient of pool1[^"]* to rank 0", "args": {"bytes": [1-9]' plan.json ||
    fail "$what: no gradient is sent"
grep -q '"tid": 2, .*"name": "conv fwd", "args": {"node": "conv1", "micro": 1}' plan.json || fail "$what: no conv1"
grep -q '"tid": 3, .*"name": "wait"' plan.json || fail "$what: nobody waits"
messages plan.json || fail "$what: messages"
events plan.json | sort -n -k 1,1 -k 2,2 -k 3,3 | awk '
    $1 " " $2 == lane && $3 < end - 0.002 { print "lane " lane ": " $0 " begins before " end; bad = 1 }
    { lane = $1 " " $2; end = $4 }
    END { exit bad }' || fail "$what: lanes"
# Kernels take as long as the prices say: the step is as long as predicted, with what ranks do ahead of it.
awk -v said="$(sed -n 's/.*predicted step time *\([0-9.]*\) s.*/\1/p' out)" '
    match($0, /"tid": 1, "ts": [-0-9.]*, "dur": [0-9.]*/) { split(substr($0, RSTART), f, /[:,] */); got = f[6] / 1e6 }
    END { if (got < said * 0.98 || got > said * 1.02 + 1e-4) { print "step: " got " s, said " said; exit 1 } }' plan.json ||
    fail "$what: the step"

# ---- the critical path ----
what="critical path"
grep -q '^  critical path: [1-9][0-9]* % .*kernels of rank [0-3] (stage [01])' out || fail "$what: $(tail -n 1 out)"
"$megalith" plan $small --ranks 4 --replicas 2 --stages 2 --goal given --machine "$machine" --json > out 2> err ||
    fail "$what: exit code $?"
sed -n 's/.*"predicted_seconds_per_step": \([^,]*\),.*"critical_path": "\([^"]*\)", "critical_kernel_seconds": \([^,]*\), "critical_message_seconds": \([^,]*\), "critical_sum_seconds": \([^,}]*\).*/\1 \3 \4 \5/p' out |
    awk '{ n++; d = ($2 + $3 + $4) / $1 - 1; if (d > 1e-4 || d < -1e-4 || $2 <= 0 || $3 <= 0) { print "parts: " $0; exit 1 } }
         END { if (n != 1) { print "no keys"; exit 1 } }' || fail "$what: --json: $(cat out)"

# ---- memory: what is alive at once at most is what explain says ----
what=memory
one="$small --goal given --device ref"
"$megalith" plan $one --report memory.html --json > out 2> err || fail "$what: exit code $?"
"$megalith" explain $one --json >> out 2> err || fail "$what: explain: exit code $?"
want=$(sed -n 's/.*"held_bytes": \([0-9]*\), "step_bytes": \([0-9]*\).*/\1 \2/p;s/.*"frame_lower_bound_bytes": \([0-9]*\).*/\1/p' out |
    awk '{ for (i = 1; i <= NF; i++) { sum += $i; n++ } } END { if (n == 3) printf "%.0f", sum }')
got=$(sed -n 's/.*"peak": \[[-0-9.]*,\([0-9]*\)\].*/\1/p' memory.html)
[ -n "$want" ] && [ "$want" = "$got" ] || fail "$what: expected a peak of $want bytes, got $got"
sum=$(sed -n 's/.*"alive": \(\[.*\]\), "rest": \[[0-9]*,\([0-9]*\)\].*/\1 \2/p' memory.html |
    awk '{ rest = $NF; while (match($0, /,[0-9]+\]/)) { sum += substr($0, RSTART + 1, RLENGTH - 2); $0 = substr($0, RSTART + RLENGTH) } printf "%.0f", sum + rest }')
[ "$sum" = "$got" ] || fail "$what: $sum of $got bytes at the peak have names"

# ---- files that cannot be written ----
for path in nowhere/r.html . ; do
    for words in "plan $small --report" "plan $small --trace" "train $small --data synthetic:count=64 --steps 1 --report" \
        "bench $small --report"; do
        "$megalith" $words $path > out 2> err && fail "$words $path: exit code 0"
        grep -q "cannot write $path: " err || fail "$words $path: $(cat err)"
        grep -q 'plan: \|images/s' out err && fail "$words $path: is found late"
    done
done

# ---- pages ----
"$megalith" plan $small --ranks 4 --machine "$machine" --report plan.html > out 2> err || fail "plan: exit code $?"
plans=$(sed -n 's/^auto: \([0-9]*\) plans.*/\1/p' out)
"$megalith" plan gpt --layers 4 --width 16 --heads 2 --tokens 8 --options classes=64 --batch 2048 --ranks 1024 --stages 4 --micro 2 \
    --goal given --machine "ranks=8 nodes=128 flops=10G bandwidth=10GB/s" --report many.html > out 2> err ||
    fail "1024 ranks: exit code $?"
"$megalith" train $small --data synthetic:count=64 --no-test --steps 4 --report train.html --trace train.json > out 2> err ||
    fail "train: exit code $?"
grep -q '"name": "step 4"' train.json || fail "train: --trace beside --report has no step 4"
mpi=
for name in openmpi mpich; do
    mpi_has $name || continue
    mpi="$mpi $name"
    MEGALITH_MPI=$name "$megalith" bench $small -np 2 --replicas 2 --goal given --report bench-$name.html > out 2> err ||
        fail "$name: bench: exit code $?"
    MEGALITH_MPI=$name "$megalith" train $small -np 2 --stages 2 --goal given --data synthetic:count=64 --no-test --steps 9 \
        --report train-$name.html > out 2> err || fail "$name: train: exit code $?"
    MEGALITH_MPI=$name "$megalith" train $small -np 2 --data synthetic:count=64 --steps 1 --report nowhere/r.html > out 2> err &&
        fail "$name: nowhere: exit code 0"
    [ "$(grep -c 'cannot write nowhere/r.html: ' err)" = 1 ] || fail "$name: nowhere: $(cat err)"
done
for file in *.html; do
    # The one address is a name, that of SVG elements.
    grep -o 'https\?://[^"'"'"' ]*' "$file" | grep -v '^http://www.w3.org/2000/svg$' && fail "$file names an address"
done

if ! command -v chromium > /dev/null; then
    [ $failures = 0 ] && echo "no chromium: pages were not looked at" && exit 77
    exit 1
fi

# Opens a page; what the browser made of it is in dom, what was asked for in net: its own affairs have no page that
# began them.
browse()
{
    timeout 100 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-extensions --disable-sync \
        --disable-background-networking --disable-component-update --no-first-run --window-size=1280,1600 \
        --host-resolver-rules='MAP * ~NOTFOUND' --user-data-dir="$work/profile" --log-net-log="$work/net" "$@" 2> err
}

asked()
{
    grep -o '"initiator":"[^"]*"' net | grep -v '"not an origin"'
}

open_page()
{
    rm -rf profile dom net
    browse --dump-dom "file://$work/$1" > dom || fail "$1: chromium: exit code $?"
    grep -q '<body data-ready="yes">' dom || fail "$1: $(grep -o '<body[^>]*>' dom)"
    grep -q '"constants"' net || fail "$1: no log of the network"
    asked && fail "$1: asks a network"
}

# Would it be seen?
echo '<body><img src="http://127.0.0.1:9/x.png"></body>' > bad.html
rm -rf profile
browse --dump-dom "file://$work/bad.html" > dom
asked > /dev/null || fail "a page that asks a network is not seen to"

# How many elements have this?
count()
{
    grep -o "$1" dom | wc -l
}

expect()
{
    [ "$(count "$2")" = "$3" ] || fail "$page: expected $3 of $1, got $(count "$2")"
}

kernels='data-kernels="[1-9][0-9]*"'
page=plan.html
open_page $page
expect "predicted ranks" "data-what=\"predicted\" $kernels" 4
expect "measured ranks" 'data-what="measured"' 0
expect "shares of time" '<tr class="share"' 4
expect "alternatives" '<tr class="plan ' "$plans"
expect "the chosen plan" '<tr class="plan chosen"' 1
expect "ranks to pick" '<option ' 4
[ "$(count '<tr class="alive"')" -ge 5 ] || fail "$page: too little is alive"
[ "$(count '<tr class="part"')" -ge 1 ] || fail "$page: no critical path"
rm -rf profile
browse --screenshot="$work/shot.png" "file://$work/$page" > out
[ "$(wc -c < shot.png)" -gt 20000 ] || fail "$page: its picture is empty"

page=many.html
open_page $page
[ "$(count 'data-what="predicted"')" -lt 33 ] || fail "$page: all of 1024 ranks are drawn"
[ "$(count 'data-what="predicted"')" -ge 4 ] || fail "$page: stages are missing"
grep -q 'alike' dom || fail "$page: does not say how many are alike"
[ "$(wc -c < many.html)" -lt 4000000 ] || fail "$page: $(wc -c < many.html) bytes"

page=train.html
open_page $page
expect "predicted ranks" "data-what=\"predicted\" $kernels" 1
expect "measured ranks" "data-what=\"measured\" $kernels" 1
for name in $mpi; do
    for page in bench-$name.html train-$name.html; do
        open_page $page
        expect "predicted ranks" "data-what=\"predicted\" $kernels data-messages=\"[1-9]" 2
        expect "measured ranks" "data-what=\"measured\" $kernels data-messages=\"[1-9]" 2
    done
done
[ $failures = 0 ] && echo "all passed:$mpi, chromium"
[ $failures = 0 ]
