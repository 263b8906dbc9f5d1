#!/bin/sh
# Words of several thousand bytes: a cut by hand into many stages, a mesh for each of them, a folder with a long name; on the
# command line, in a plan file, and when training goes on from a checkpoint. Nothing is cut short: a mistake in the last name
# is found. Arguments: source folder, build folder.
set -eu
megalith=$2/megalith
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; tail -n 20 "$work"/*.err; exit 1; }

model="resnet-cifar --depth 56 --version 2 --width 4 --image 3x8x8"
names=$("$megalith" show $model --level layer | awk '/^layer[0-9]/ { print $1 }')
stages=$(($(echo "$names" | wc -l) + 1))
assign=$(echo $names | tr ' ' ',')
mesh=$(for name in x $names; do printf 'n1c1d1h1w1,'; done)
mesh=${mesh%,}
[ ${#assign} -gt 2000 ] && [ ${#mesh} -gt 1500 ] || fail "assign= has ${#assign} bytes, mesh= ${#mesh}"
few="--batch 2 --norm 1 --micro 2 --device ref64 --threads 1"
many="--level layer --stages $stages --chunks $stages --schedule interleaved"

"$megalith" plan $model $few $many --assign "$assign" --mesh "$mesh" --save "$work/plan" > "$work/words" 2> "$work/1.err" ||
    fail "words"
grep -qxF "assign=$assign" "$work/plan" && grep -qxF "mesh=$mesh" "$work/plan" || fail "the plan file has other words"
"$megalith" plan $model --plan "$work/plan" --device ref64 --threads 1 > "$work/read" 2> "$work/2.err" || fail "plan file"
cmp "$work/words" "$work/read" || fail "the plan file makes another plan"
"$megalith" plan $model --plan "$work/plan" --device ref64 --threads 1 --assign "$assign" > "$work/both" 2> "$work/2.err" ||
    fail "plan file and the same word"

for wrong in "assign=$assign" "mesh=$mesh"; do # the last name, the last stage
    word=${wrong%%=*}
    "$megalith" plan $model $few $many --assign "$assign" --mesh "$mesh" "--$word" "${wrong#*=}q" > "$work/out" 2> "$work/3.err" &&
        fail "--$word is cut short"
    grep -q "given twice" "$work/3.err" || fail "$word given twice"
done
if "$megalith" plan $model $few $many --assign "${assign}q" --mesh "$mesh" > "$work/out" 2> "$work/3.err"; then
    fail "the last name of --assign is not looked at"
fi
grep -q "no layer '.*q'" "$work/3.err" || fail "assign: the last name is not named"
if "$megalith" plan $model $few $many --assign "$assign" --mesh "${mesh}q" > "$work/out" 2> "$work/3.err"; then
    fail "the last stage of --mesh is not looked at"
fi
grep -q "mesh=n1c1.*\.\.\.: .* at 'q': use letters" "$work/3.err" || fail "mesh: what is wrong is not said"

folder=$work/$(printf '%0100d/%0100d/%0100d' 1 2 3)
mkdir -p "$folder"
train() { "$megalith" train $model $few --no-test --data "synthetic:image=3x8x8 count=8" --epochs 1 --json --every 1 "$@"; }
losses() { sed -n 's/.*"step": *\([0-9]*\), *"step_loss": *\([-+.e0-9]*\).*/\1 \2/p' "$@"; }
train --goal given > "$work/whole" 2> "$work/4.err" || fail "one stage"
train $many --assign "$assign" --mesh "$mesh" --steps 2 --checkpoint "$folder/kept" > "$work/a" 2> "$work/5.err" ||
    fail "two steps"
train $many --assign "$assign" --mesh "$mesh" --checkpoint "$folder/kept" --resume yes > "$work/b" 2> "$work/6.err" ||
    fail "going on"
losses "$work/whole" > "$work/expected"
losses "$work/a" "$work/b" > "$work/moved"
paste -d ' ' "$work/expected" "$work/moved" | awk '
    { d = $2 - $4; if (d < 0) d = -d }
    $1 != $3 || !(d <= 1e-10 * $2) { print "step", $3, ": loss", $4, "of one stage", $2; bad = 1 }
    END { print NR, "steps agree"; exit bad || NR != 4 }' || fail "losses differ"
