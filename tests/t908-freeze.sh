#!/bin/sh
# --freeze and --train on the command line: what is planned, and what is refused.
# Usage: t908-freeze.sh SOURCE_DIR BUILD_DIR
set -u
. "$1/tests/command.sh"

extra() { echo --batch 4 --threads 1; }

peak()
{
    sed -n 's/^  predicted peak (arena) *\([0-9]*\) bytes.*/\1/p' out
}

run 0 plan cnn --momentum 0.9
all=$(peak)
run 0 plan cnn --momentum 0.9 --freeze 'conv*,bn*' --freeze fc1.weight --train bn3.weight
[ "$(peak)" -lt "$all" ] || fail "$what: it takes as much as with all weights trained"
has out '^  [0-9]* parameters'
run 0 train cnn --data synthetic:count=16 --steps 2 --freeze 'conv*'
has out 'difference 0'
run 0 bench cnn --warmup 1 --iterations 1 --repeat 1 --freeze 'conv*'
run 1 plan cnn --freeze conv1.wieght
has err 'no weight of cnn has such a name (did you mean conv1.weight?)'
run 1 plan cnn --freeze 'fc7.*'
has err 'did you mean fc1.\*?'
run 1 plan cnn --freeze fc2
has err 'did you mean fc2.\*?'
run 1 plan cnn --train nothing.of.the.kind
has err 'has such a name; it has conv1.weight, '
run 1 train cnn --data synthetic:count=16 --steps 1 --freeze '*'
has err 'nothing to train'
run 0 train cnn --data synthetic:count=16 --steps 1 --freeze '*' --train bn1.bias

# Words without effect: what is trained anyway, and what is frozen only until the other word undoes it.
for words in "--train conv1*" "--freeze fc* --train bn3.weight,conv1.*" "--freeze conv* --train conv1.*,fc1.bias"; do
    run 1 plan cnn $words
    has err 'are trained anyway.*give freeze=\*, too'
done
for words in "--freeze conv1.* --train conv*" "--freeze fc*,bn2.bias --train bn2.*" "--freeze conv1.weight --train conv1.weight"; do
    run 1 plan cnn $words
    has err 'has no effect: train= names all of these weights'
done
run 0 plan cnn --freeze 'conv*,bn1.*' --train 'conv2.*,bn1.bias'


# What is frozen keeps every bit, what is not does not: of unet's weights three biases, 12 bytes, may change.
# (It has no running statistics, which would move.)
data='synthetic:image=1x16x16 labels=pixels classes=3 count=8'
unet='train unet --width 4 --image 1x16x16 --no-test --steps 2'
run 0 $unet --data "$data" --lr 0 --save before.safetensors
run 0 $unet --data "$data" --freeze '*' --train head.bias --save after.safetensors
changed=$(cmp -l before.safetensors after.safetensors | wc -l)
[ "$changed" -ge 3 ] && [ "$changed" -le 12 ] || fail "$what: $changed bytes have changed, not 3 to 12"

finish
