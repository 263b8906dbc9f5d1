#!/bin/sh
# `compare`: the best plans of a search, or plans that are named, take turns in one job, and predicted is set beside
# measured. What is asserted does not depend on the hour: rows, bytes, records, reasons; not seconds.
# Arguments: source folder, build folder.
set -u
. "$1/tests/command.sh"
. "$1/tests/mpirun.sh"
machine="nodes=1 ranks=2 cores=2 memory=1GiB inside=2us,8GB/s"
words="cnn --options width=2 --device ref --threads 1 --batch 12 --norm 3"

# compare WORDS.. on two ranks
compare()
{
    code=0 what="compare $*"
    mpi_run $mpi 2 250 "$megalith" compare $words --machine "$machine" --rounds 3 --steps 1 "$@" > out 2> err || code=$?
}

records() { grep -c "$1" out; }

# The values of a key, in the order of the rows.
values() { sed -n "/\"words\"/s/.*\"$1\": \"*\([^,\"}]*\).*/\1/p" out; }

tested=
for mpi in openmpi mpich; do
    mpi_has $mpi || { echo "$mpi: not in this build"; continue; }
    [ -z "$tested" ] || continue
    tested=$mpi
    echo "== what a search finds"
    compare
    [ $code = 0 ] || fail "$what: exit code $code"
    has out '^auto: [0-9]* plans for 2 ranks'
    has out '^cnn on 2 ranks: 4 plans in turn, 3 rounds of 1 step'
    has out '  0  auto  \((replicas alone: no more words)\|recompute=none\)$'
    has out '  0        stages=2 '
    has out '  0        mesh=c2'
    has out '  0        .*mesh=h2'
    has out '^order: '
    has out '^auto takes '
    [ "$(grep -c '^ .*  0  \(auto\|    \)  ' out)" = 4 ] || fail "$what: not 4 rows whose bytes are as predicted"

    echo "== every figure as JSON"
    compare --json --top 2
    [ $code = 0 ] || fail "$what: exit code $code"
    [ "$(records '"round"')" = 6 ] || fail "$what: $(records '"round"') rounds, not 2 x 3"
    [ "$(records '"words"')" = 2 ] || fail "$what: $(records '"words"') plans, not 2"
    [ "$(records '"auto": true')" = 1 ] || fail "$what: which one is chosen?"
    [ "$(values predicted_peak_bytes)" = "$(values measured_peak_bytes)" ] || fail "$what: bytes differ"
    values predicted_seconds_per_step | sort -g -c || fail "$what: not in the order of predictions"
    has out '"final": true, .*"plans": 2, "rounds": 3, "pairs": 1, "pairs_as_predicted": [01], "best_plan": [01], "auto_plan": [01], "auto_slower": [0-9]'
    # The verdict is that of the rows.
    awk -F'"seconds_per_step": ' '/"words"/ { split($2, a, ","); t[n++] = a[1] }
        /"final"/ { match($0, /"best_plan": [0-9]/); best = substr($0, RSTART + 13, 1)
                    match($0, /"pairs_as_predicted": [0-9]/); right = substr($0, RSTART + 22, 1)
                    exit !(best == (t[1] < t[0]) && right == (t[0] <= t[1])) }' out || fail "$what: another verdict"

    echo "== plans that are named; those that fail are rows"
    "$megalith" plan $words --momentum 0.9 --ranks 2 --machine "$machine" --mesh w2 --goal given --save w2.plan > /dev/null || fail "plan --save"
    "$megalith" plan $words --ranks 4 --goal given --save four.plan > /dev/null || fail "plan --save"
    compare --json --plan w2.plan --candidates 'auto; stages=9; weight_decay=1000000 ;stages=2 micro=2 norm=6'
    [ $code = 0 ] || fail "$what: exit code $code"
    [ "$(records '"words"')" = 5 ] || fail "$what: $(records '"words"') plans, not 5"
    has out '"words": "w2.plan", "predicted.*"steps": 3,'
    has out '"words": "stages=2 micro=2 norm=6", .*"steps": 3,'
    has out '"words": "\((replicas alone: no more words)\|recompute=none\)", "auto": true'
    has out '"words": "stages=9", "predicted_seconds_per_step": null, .*"error": ".*stages=9'
    has out '"words": "weight_decay=1000000", .*"error": "the loss of step [0-9]* is '
    has out '"final": true, .*"plans": 5, .*"pairs": 3,'
    compare --json --candidates 'auto; replicas=2; replicas=2 recompute=none'
    has out '"final": true, .*"plans": 3, '
    taken=$(sed -n 's/.*"words": "\(.*\)", "auto": true.*/\1/p' out)
    case $taken in "("*) taken=stages=1 ;; esac
    compare --json --candidates "auto; $taken replicas=2"
    has out '"auto_slower": 0, "auto_slower_most": 0' # one plan, by other words
    compare --candidates 'stages=9;stages=8'
    [ $code = 1 ] || fail "$what: exit code $code"
    has err 'none of the plans ran to its end; the first: .*stages='
    compare --plan four.plan
    [ $code = 1 ] || fail "$what: exit code $code"
    has err 'four.plan was made for 4 ranks, but here are 2'
    compare --top 3 --candidates 'auto'
    has err 'top=3 has no effect'

    echo "== turns at another pace are made again, as many count as without"
    compare --reference --json --top 2
    [ $code = 0 ] || fail "$what: exit code $code"
    has out '"final": true, .*"turns": 6, "turns_repeated": [0-9]*, "turns_uneven": [0-9]*,'
    [ "$(records '"round"')" = 6 ] || fail "$what: $(records '"round"') rounds, not 6"

    echo "== with too little memory for all of them at once, each is opened for its turn"
    export MEGALITH_MEMORY=2MiB # the ranks of a plan need 0.4 to 0.8 together
    compare
    unset MEGALITH_MEMORY
    [ $code = 0 ] || fail "$what: exit code $code"
    has out 'rounds of 1 step; each is opened anew for its turn, for want of memory$'
    [ "$(grep -c '^ .*  0  \(auto\|    \)  ' out)" = 4 ] || fail "$what: not 4 rows whose bytes are as predicted"
done
[ -n "$tested" ] || exit 77

echo "== one rank"
run 0 compare $words --rounds 3 --steps 1 --machine "nodes=1 ranks=1 cores=1 memory=1GiB" --top 2
has out '^cnn on 1 rank: 2 plans in turn'
has out '  auto  (replicas alone: no more words)$'
finish
