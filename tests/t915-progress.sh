#!/bin/sh
# What takes long shows how far it is: bench, evaluation and forward by a line on a terminal that goes in
# the end, and not elsewhere; the build of ./do by a line that moves on a terminal, by a few elsewhere.
# Arguments: source folder, build folder.
set -u
source=$1 megalith=$2/megalith
command -v script > /dev/null || { echo "there is no script(1) to make a terminal"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/megalith-progress.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
fail()
{
    failures=$((failures + 1))
    echo "FAILED: $*"
    tr '\r' '\n' < out | tail -n 8
}

# shows PATTERN COMMAND: on a terminal it does, and takes it away again; elsewhere it does not. A quick machine is
# done before there is anything to show: the command, whose N is how many, is run with more, then.
shows()
{
    for many in 40 500 4000 32000; do
        command=$(echo "$2" | sed "s/\<N\>/$many/")
        script -qec "$command" /dev/null > out < /dev/null || fail "$command: exit code $?"
        ! grep -q "$1" out || break
    done
    grep -q "$1" out || fail "$command: does not show '$1'"
    tr '\r' '\n' < out | tail -n 1 | grep -q "$1" && fail "$command: leaves it there"
    sh -c "$command" > out 2>&1 || fail "$command: exit code $?"
    ! grep -q "$1" out || fail "$command: shows it in a file"
}

clear=$(printf '\r\033\\[K')
slow="--device ref --threads 1 --width 4"
shows "${clear}bench: step  [1-9][0-9]*/[0-9]*  [0-9:]* left" \
    "$megalith bench cnn $slow --batch 16 --iterations N --repeat 1 --warmup 1"
shows "${clear}evaluating  [1-9][0-9]*/[0-9]*  [0-9:]* left" \
    "$megalith train cnn $slow --epochs 0 --batch 16 --data synthetic:count=16 --test synthetic:count=N"

# A file with 600 images of zeros.
"$megalith" train cnn --width 8 --steps 1 --batch 4 --no-test --data synthetic:count=8 --save cnn.onnx \
    > out 2>&1 || fail "save cnn.onnx"
head='{"image":{"dtype":"F32","shape":[600,1,28,28],"data_offsets":[0,1881600]}}  '
{
    printf "\\$(printf %03o ${#head})\\000\\000\\000\\000\\000\\000\\000%s" "$head"
    head -c 1881600 /dev/zero
} > x.safetensors
shows "${clear}computing nodes  [1-9][0-9]*/[0-9]*  [0-9:]* left" \
    "$megalith forward cnn.onnx --input x.safetensors --out y.safetensors"

echo "== ./do"
# The part of ./do that reads what ninja says.
{
    echo 'set -eu; say() { echo "do: $*" >&2; }'
    sed -n '/^show_progress()/,/^}/p' "$source/do"
    echo 'for i in $(seq "$1"); do echo "[$i/$1] Building"; done | show_progress log'
} > part
: > log
sh part 100 > out 2>&1 || fail "do: $?"
[ "$(wc -l < out)" = 5 ] || fail "do: not 5 lines in a file"
[ "$(wc -l < log)" = 100 ] || fail "do: the log has not all lines"
sh part 3 > out 2>&1
[ ! -s out ] || fail "do: says something of a short build"
script -qec "sh part 100" /dev/null > out < /dev/null
grep -q "${clear}do: building 57/100" out || fail "do: shows no line on a terminal"
[ $failures = 0 ] && echo "all passed"
[ $failures = 0 ]
