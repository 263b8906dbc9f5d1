#!/bin/sh
# `forward` and `grads` of ONNX files as a user meets them: arrays of NumPy go in, outputs have the axes
# that the file gives them, weights are the file's where none are named.
# Usage: t906-forward.sh SOURCE_DIR BUILD_DIR
set -u
. "$1/tests/command.sh"

golden=$source/tests/golden
same() { cmp -s "$1" "$2" || fail "$what: $1 and $2 differ"; }

net=$golden/torch/tokens.onnx x=$golden/torch/x.npy y=$golden/torch/y.npy

echo "== logits of tokens have the file's axes, with a loss and without"
run 0 forward "$net" --input "$x" --out loss.safetensors
has loss.safetensors '"shape":\[4,3,7\]'
run 0 forward "$net" --input "$x" --out none.safetensors --loss none
same loss.safetensors none.safetensors

echo "== and so has the file that is written after training"
data="npy:images='$x' labels='$y' tokens=1 classes=7"
run 0 train "$net" --data "$data" --batch 4 --epochs 0 --save again.onnx --no-test
run 0 forward again.onnx --input "$x" --out again.safetensors
same loss.safetensors again.safetensors
run 0 train again.onnx --data "$data" --batch 4 --epochs 0 --save third.onnx --no-test
run 0 forward third.onnx --input "$x" --out third.safetensors --loss none
same loss.safetensors third.safetensors

echo "== inputs: arrays of other shapes, several inputs"
run 1 forward "$net" --input "$golden/torch/none.npy" --out o.safetensors
has err 'cannot open'
run 1 forward "$golden/onnx/cnn.onnx" --input "$x" --out o.safetensors
has err "^megalith: input '.*' has another shape or type than cnn takes"
[ ! -e o.safetensors ] || fail "a refusal wrote something"

echo "== grads with the file's weights"
run 0 train "$net" --data "$data" --batch 4 --epochs 0 --save w.safetensors --no-test
run 0 grads "$net" --input "$x" --labels "$y" --out without.grads
run 0 grads "$net" --input "$x" --labels "$y" --out with.grads --weights w.safetensors
same without.grads with.grads
run 0 grads "$net" --input "$x" --labels "$y" --out state.grads --weights "$golden/torch/state.safetensors"
! cmp -s with.grads state.grads || fail "the state dict was not read"
run 1 grads cnn --input "$x" --labels "$y" --out none.grads
has err 'cnn has no weights of its own: --weights'

finish
