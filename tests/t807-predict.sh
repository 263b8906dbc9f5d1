#!/bin/sh
# `predict` as a user meets it: samples without labels in, an array of NumPy out, the same on one rank and on two.
# Usage: t807-predict.sh SOURCE_DIR BUILD_DIR
set -u
. "$1/tests/command.sh"
. "$1/tests/mpirun.sh"

same() { cmp -s "$1" "$2" || fail "$what: $1 and $2 differ"; }
golden=$source/tests/golden
net=$golden/torch/tokens.onnx x=$golden/torch/x.npy y=$golden/torch/y.npy

echo "== without labels; labels do not matter"
run 0 predict "$net" --data "npy:images='$x' labels=none tokens=1" --out none.npy
has out '^tokens: .* of 4 samples, 4x3x7, in .* s: none.npy$'
run 0 predict "$net" --data "npy:images='$x' labels='$y' tokens=1 classes=7" --out with.npy
same none.npy with.npy
head -c 10 none.npy | od -An -tx1 | grep -q '^ 93 4e 55 4d 50 59 01 00' || fail "no array of NumPy"
head -c 128 none.npy | grep -aq "'descr': '<f4', 'fortran_order': False, 'shape': (4, 3, 7)" || fail "header"

echo "== the numbers are those of forward, to the bit on the same device"
run 0 predict "$net" --data "npy:images='$x' labels=none tokens=1" --out ref.npy --device ref
run 0 forward "$net" --input "$x" --out forward.safetensors
numbers=$((4 * 3 * 7 * 4))
tail -c $numbers ref.npy > ref.raw
tail -c $numbers forward.safetensors > forward.raw
same ref.raw forward.raw

echo "== a batch of any size; several ranks"
run 0 predict "$net" --data "npy:images='$x' labels=none tokens=1" --out three.npy --device ref --batch 3
same ref.npy three.npy
if mpi_has openmpi; then
    for words in "--stages 2" "--replicas 2"; do
        run 0 predict "$net" --data "npy:images='$x' labels=none tokens=1" --out two.npy --device ref --batch 2 \
            -np 2 $words
        same ref.npy two.npy
    done
fi

echo "== weights of a file; what is missing is said"
run 0 train "$net" --data "npy:images='$x' labels='$y' tokens=1 classes=7" --batch 4 --epochs 0 --save w.safetensors --no-test
run 0 predict "$net" --data "npy:images='$x' labels=none tokens=1" --weights w.safetensors --out w.npy
same none.npy w.npy
run 1 predict cnn --data synthetic:count=8 --out o.npy
has err 'cnn has no weights of its own: --weights FILE.safetensors names some'
run 1 train "$net" --data "npy:images='$x' labels=none tokens=1" --batch 4
has err 'has no labels to compare with: give it some, or predict'
run 1 predict "$net" --data "npy:images='$x' labels=none tokens=1" --out o.npy --output nothing
has err 'output nothing: tokens has '
[ ! -e o.npy ] || fail "a refusal wrote something"
finish
