#!/bin/sh
# Plans that a search chose are saved, read, edited and taken again: the file has all words, the same program comes out
# of it without a search, and what was made for another network or other ranks, or was damaged, is refused.
# Arguments: source folder, build folder.
set -u
. "$1/tests/command.sh"
machine="nodes=1 ranks=4 cores=4 memory=8MiB inside=2us,8GB/s"
net="resnet-cifar --depth 20 --batch 16 --momentum 0.9" ranks=4

# The programs of all ranks, as `explain` has them; of a plan, as it is made now.
programs()
{
    for rank in $(seq 0 $((ranks - 1))); do
        "$megalith" explain $net --ranks $ranks --rank $rank --machine "$machine" "$@" 2> err || return 1
    done | grep -v '^auto\|^  chosen\|^           '
}

echo "== saved"
run 0 plan $net --ranks 4 --machine "$machine" --save chosen.plan
has out '^auto: '
has out '^  chosen '
chosen=$(sed -n 's/^  chosen  *\([a-z_]*=[^ ]*\( [a-z_]*=[^ ]*\)*\)  .*/\1/p' out)
[ -n "$chosen" ] || fail "this machine was meant to want words; it chose none"
has chosen.plan '^# chosen by a search'
has chosen.plan '^chosen_for=time$'
has chosen.plan '^ranks=4$'
sed -n '/^# chosen/,/^$/p' chosen.plan > section
for word in $chosen; do
    grep -q -x -e "$word" section || fail "$word was chosen, but does not stand under '# chosen': $(cat section)"
done
lacks section '^batch='
sed -n '/^# given/,/^$/p' chosen.plan > section
has section '^batch=16$'
has section '^momentum=0.9$'

echo "== taken again: the same programs, and nothing is searched"
programs > first || fail "explain"
programs --plan chosen.plan > second || fail "explain --plan"
[ "$(wc -l < first)" -gt 400 ] || fail "explain has few lines: $(wc -l < first)"
cmp first second || fail "other programs: $(diff first second | head -5)"
run 0 plan $net --ranks 4 --machine "$machine" --plan chosen.plan
lacks out '^auto: '
programs --goal given > plain || fail "explain --goal given"
! cmp -s first plain || fail "the plan without a search is the same: nothing was compared"

echo "== edited"
sed 's/^zero=.*/zero=1/; s/^bucket=.*/bucket=1MiB/' chosen.plan > edited.plan
run 0 plan $net --ranks 4 --machine "$machine" --plan edited.plan --save again.plan
has again.plan '^zero=1$'
has again.plan '^bucket=1MiB$'
lacks out '^auto: '
programs --plan edited.plan > third || fail "explain --plan edited.plan"
! cmp -s first third || fail "an edited word changes nothing"
printf 'megalith plan 1\nbatch=16 momentum=0.9\n' > short.plan # by hand: what it leaves out is the default
run 0 plan $net --ranks 4 --plan short.plan
lacks out '^auto: '
printf 'megalith plan 1\nbatch=16 momentum=0.9 goal=time\n' > open.plan # unless it says so
run 0 plan $net --ranks 4 --machine "$machine" --plan open.plan
has out '^auto: '

echo "== words that fill the memory know how much there is"
(
    failures=0 ranks=2 net="resnet-cifar --depth 56 --batch 16 --zero 0"
    machine="nodes=1 ranks=2 cores=2 memory=26MiB inside=2us,8GB/s"
    run 0 plan $net --ranks 2 --machine "$machine" --save full.plan
    has full.plan '^recompute=segments$'
    has full.plan '^budget=26MiB$'
    programs > first || fail "explain"
    programs --plan full.plan > second || fail "explain --plan"
    cmp first second || fail "other programs: $(diff first second | head -5)"
    exit $failures
) || failures=$((failures + 1))

echo "== refused"
refuses 1 'chosen.plan was made for 4 ranks, but here are 2: start 4 (-np 4; ' plan $net --ranks 2 --plan chosen.plan
refuses 1 'chosen.plan was made for 4 ranks, but here is 1: ' train $net --plan chosen.plan --data "synthetic:image=3x32x32 count=32"
sed '/^ranks=/d' chosen.plan > any.plan
run 0 plan $net --ranks 8 --plan any.plan --replicas 0
refuses 1 'was made for another graph' plan resnet-cifar --depth 32 --ranks 4 --plan chosen.plan
refuses 1 "zero=1 was given, but chosen.plan has zero=" plan $net --ranks 4 --plan chosen.plan --zero 1
refuses 1 'there can be only one' plan $net --ranks 4 --plan chosen.plan --plan any.plan

echo "== damaged"
: > empty.plan
refuses 1 'empty.plan:1: not a plan: it is empty' plan $net --plan empty.plan
sed 1d chosen.plan > headless.plan
refuses 1 "headless.plan:1: not a plan: its first line must be" plan $net --ranks 4 --plan headless.plan
head -c 200 /dev/zero >> any.plan
refuses 1 'any.plan:[0-9]*: this is no text' plan $net --ranks 4 --plan any.plan
sed 's/^fingerprint=..../fingerprint=xyz/' chosen.plan > print.plan
refuses 1 'print.plan:3: a fingerprint is 16 hexadecimal digits' plan $net --ranks 4 --plan print.plan
sed 's/^ranks=4/ranks=four/' chosen.plan > ranks.plan
refuses 1 'ranks.plan:4: ranks=four' plan $net --ranks 4 --plan ranks.plan
sed 's/^chosen_for=.*/chosen_for=luck/' chosen.plan > goal.plan
refuses 1 'goal.plan:[0-9]*: chosen_for=luck' plan $net --ranks 4 --plan goal.plan
echo 'mesh=h2' >> print.plan
sed 's/^stages=/stagse=/' chosen.plan > word.plan
refuses 1 "word.plan:[0-9]*: unknown word 'stagse' (did you mean stages" plan $net --ranks 4 --plan word.plan
{ cat chosen.plan; echo 'batch=16'; } > twice.plan
refuses 1 "twice.plan:[0-9]*: 'batch' is given again" plan $net --ranks 4 --plan twice.plan
finish
