#!/bin/sh
# `show` and plan files as a user meets them: tables, drawings, plans that are written, edited, used.
# Usage: t905-show.sh SOURCE_DIR BUILD_DIR
set -u
. "$1/tests/command.sh"

echo "== show"
run 0 show resnet50
has out '^resnet50: image 3x224x224, 25557032 parameters, .* 177 nodes in 20 groups$'
has out '^layer1.0  *256x56x56  *75008 .*conv 4, batchnorm 4, relu 3, add$'
run 0 show resnet50 --level module
has out ' in 8 groups$'
run 0 show resnet-cifar --level layer
has out '^layer1.0.add .*<- relu1$' # a skip
run 0 show amoebanet-d
has out '^cells.21  *3328x7x7 .*<- cells.19$' # a cell reads the two before it
run 0 show unet
has out '^dec4 .*<- enc4$'
run 0 show unet --format dot
has out '^digraph "unet" {$'
has out 'n[0-9]* -> n[0-9]* \[constraint=false\];$'
run 0 show unet --format svg --out unet.svg
[ ! -s out ] || fail "$what: prints what goes to a file"
has unet.svg '^<svg xmlns='
has unet.svg '>enc1</text>$'
[ "$(grep -c 'class="skip"' unet.svg)" = 4 ] || fail "$what: not 4 skips"
[ "$(tail -n 1 unet.svg)" = '</svg>' ] || fail "$what: does not end"
# Viewers take 32,767 pixels: long networks go on in further columns; every box is still there, and apart.
for words in 'resnet-cifar --options "depth=1001 version=2"' 'gpt --options layers=120' resnet152; do
    eval "run 0 show $words --level layer --format svg"
    set -- $(sed -n '1s/.* width="\([0-9]*\)" height="\([0-9]*\)" .*/\1 \2/p' out)
    [ "$1" -lt 32767 ] && [ "$2" -lt 32767 ] || fail "$what: $1 x $2 pixels"
    [ "$1" -gt 1000 ] && [ "$2" -gt 1000 ] || fail "$what: $1 x $2 pixels: no columns"
    sed -n 's/^<rect x="\([0-9]*\)" y="\([0-9]*\)" width="\([0-9]*\)" height="\([0-9]*\)".*/\1 \2 \3 \4/p' out |
        sort -n -k 1,1 -k 2,2 | awk -v wide="$1" -v tall="$2" '
            $1 == x && $2 < end { print "boxes overlap at", $1, $2; bad = 1 }
            $1 != x && NR > 1 && $1 < x + w { print "columns overlap at", $1; bad = 1 }
            $1 + $3 > wide || $2 + $4 > tall { print "outside:", $0; bad = 1 }
            { x = $1; w = $3; end = $2 + $4 }
            END { print NR, "boxes"; exit bad || NR < 500 }' || fail "$what: boxes"
done
run 0 show "$source/tests/golden/onnx/tokens.onnx" # several outputs: shown without a loss
run 0 show "$source/tests/golden/onnx/cnn.onnx" --format svg
run 2 show cnn --lvl block
run 1 show cnn --level atom
has err "layer|block|module"
run 1 show cnn --out /nowhere/a.svg

echo "== plan files"
run 0 plan cnn --batch 16 --micro 2 --norm 8 --optimizer adam --save cnn.plan
cp out summary
[ "$(head -n 1 cnn.plan)" = 'megalith plan 1' ] || fail "$what: first line"
has cnn.plan '^batch=16$'
has cnn.plan '^optimizer=adam$'
has cnn.plan '^fingerprint=[0-9a-f]\{16\}$'
run 0 plan cnn --plan cnn.plan --save again.plan
words_of() { grep -v '^#\|^$' "$1" | sort; } # the second one's words are all given, by the first
[ "$(words_of cnn.plan)" = "$(words_of again.plan)" ] || fail "$what: another plan"
sed 's/batch=16/batch=32/' cnn.plan > edited.plan
run 0 plan cnn --plan edited.plan
has out 'batch 32 in 2 micro-batches, adam'
run 1 plan cnn --plan cnn.plan --batch 8
has err 'batch=8 was given, but cnn.plan has batch=16'
run 0 plan cnn --plan cnn.plan --batch 16
run 1 plan cnn --plan cnn.plan --momentum 0.9
has err 'momentum=0.9 is a word of optimizer=sgd, but the optimizer is adam'
run 1 explain cnn --classes 7 --plan cnn.plan
has err 'cnn.plan was made for another graph'
run 1 plan cnn --plan nothing.plan
has err 'cannot open plan nothing.plan: No such file'
has err 'plans that need no file: hyfi-5 hyfi-8 hyfi-9 hyfi-12'
run 1 plan cnn --plan summary
has err "summary:1: not a plan"
run 0 bench cnn --plan cnn.plan --device ref --warmup 1 --repeat 1 --iterations 1
run 0 explain cnn --plan cnn.plan

echo "== plans with names"
run 0 list plans hyfi-8
has out 'words: stages=5 mesh=2x2,1,1,1,1 schedule=master micro=2'
has out 'paper: Jain et al., Hy-Fi'
run 0 plan resnet-cifar --ranks 8 --plan hyfi-8 --batch 8 --norm 4
has out '1 replica of 5 stages, master, batch 8 in 2 micro-batches'
has out '^ *0 *0 *0,4 '
has out '^ *6 *0 *0,3 '
run 0 plan resnet-cifar --ranks 10 --plan hyfi-5 --batch 8
has out '2 replicas of 2 stages, 1f1b, batch 8 in 1 micro-batch'
run 0 plan resnet-cifar --ranks 8 --plan hyfi-8 --batch 8 --norm 2 --micro 4 --schedule gpipe
has out '1 replica of 5 stages, gpipe, batch 8 in 4 micro-batches'
run 0 explain resnet-cifar --ranks 12 --rank 11 --plan hyfi-12 --batch 8 --norm 4
run 1 plan resnet-cifar --ranks 6 --plan hyfi-8 --batch 8 --norm 4
has err '6 ranks, but .*want 8: use -np 8'
run 0 plan resnet-cifar --ranks 8 --plan hyfi-8 --batch 8 --norm 4 --save hyfi-5
run 0 plan resnet-cifar --ranks 8 --plan ./hyfi-5 # a file of that name, by its path
has out '5 stages, master'

echo "== files of plans in training"
small="--data synthetic:image=1x28x28\ classes=10\ count=32"
eval run 0 train cnn $small --plan cnn.plan --epochs 1 --device ref --save w.safetensors --shard 40KB
[ -e w.safetensors.index.json ] || fail "$what: no index"
eval run 0 train cnn $small --plan cnn.plan --epochs 1 --device ref --load w.safetensors
eval run 1 train cnn $small --plan cnn.plan --epochs 1 --batch 4
rm -f w-00002-of-*
eval run 1 train cnn $small --epochs 1 --device ref --load w.safetensors.index.json
has err 'shard w-00002-of-0000[0-9].safetensors is missing'

finish
