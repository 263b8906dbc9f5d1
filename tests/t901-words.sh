#!/bin/sh
# Words of the command line that have no effect, that are not known, or that mean something else:
# what is refused, what is warned about, and what the message advises. Learning rates, a loss that
# grows, real targets, a finished checkpoint.
# Usage: t901-words.sh SOURCE_DIR BUILD_DIR
set -u
. "$1/tests/command.sh"

extra() # what is not to be measured need not be probed
{
    case "$*" in
    *--device* | *--threads*) ;;
    plan* | explain*) echo --device ref ;;
    train*) echo --threads 1 ;;
    esac
}

has() { grep -q -F -e "$2" "$1" || fail "$what: $1 has no '$2'"; } # a text, no pattern

warns() # TEXT WORDS..: does what was asked, and says so once
{
    text=$1
    shift
    run 0 "$@"
    has err "$text"
    [ "$(grep -c 'warning: ' err)" = 1 ] || fail "$what: not one warning"
}

silent() # WORDS..: no warning
{
    run 0 "$@"
    lacks err 'warning: '
}

small="--options width=4 --batch 8 --data synthetic:count=16"

echo "== words without effect, refused: they are about what is learned or kept"
for words in '--resume yes' '--resume no' '--checkpoint-every 5' '--keep 3'; do
    refuses 1 'has no effect' train cnn $small $words
    has err 'checkpoint=FOLDER'
done
for words in '--drop 0.1' '--drop-every 2' '--drop 0.5 --lr-schedule cosine'; do
    refuses 1 'it is for lr_schedule=step' train cnn $small $words
done
refuses 1 'nesterov=yes has no effect without momentum' train cnn $small --nesterov
refuses 1 'nesterov=yes has no effect without momentum' plan cnn --nesterov
refuses 2 'it is a word of optimizer sgd, not of adam' train cnn $small --optimizer adam --momentum 0.9
refuses 2 'it is a word of optimizer adam, not of sgd' train cnn $small --beta1 0.9
refuses 2 'it is a word of optimizer sgd, not of adamw' train cnn $small --optimizer adamw --nesterov
refuses 1 'steps=0 trains nothing: use 1 or more' train cnn $small --steps 0
refuses 1 'epochs=0 trains nothing' train cnn $small --epochs 0
refuses 1 'extent=4 has no effect' train cnn --data 'synthetic:extent=4'
printf 'megalith plan 1\nbatch=8 nesterov=yes\n' > wrong.plan
refuses 1 'nesterov=yes has no effect without momentum' plan cnn --plan wrong.plan

echo "== words without effect, warned about: they are about speed and place, or likely in scripts"
warns 'schedule=gpipe has no effect' plan cnn --schedule gpipe
warns 'level=layer has no effect' plan cnn --level layer
warns 'balance=memory has no effect' plan cnn --balance memory
warns 'balance=memory has no effect: assign= says' plan cnn --ranks 2 --stages 2 --assign conv3 \
    --balance memory
warns 'assign=conv2 has no effect' plan cnn --assign conv2
warns 'channels=filter has no effect' plan cnn --ranks 2 --channels filter
warns 'zero=3 has no effect: no ranks share' plan cnn --zero 3
warns 'zero=1 has no effect: no ranks share' plan cnn --ranks 2 --stages 2 --zero 1
warns 'zero=1 has no effect: this optimizer keeps no states' plan cnn --ranks 2 --zero 1
warns 'allreduce=halving_doubling has no effect' plan cnn --allreduce halving_doubling
warns 'bucket=1MiB has no effect' plan cnn --bucket 1MiB
warns 'norm=4 has no effect: this network has no batch norm' plan unet --norm 4 --width 4 \
    --image 3x32x32
warns 'threads=2 has no effect' plan cnn --device ref --threads 2
warns 'pin=no has no effect' plan cnn --pin no
warns 'slots=yes has no effect with --json' explain cnn --slots --json
warns 'test=synthetic:count=8 has no effect with --no-test' train cnn $small --test synthetic:count=8 \
    --no-test
warns 'shard=1GB has no effect' train cnn $small --shard 1GB
warns 'epochs=3 has no effect' train cnn $small --epochs 3 --steps 1
warns 'warmup=3 is longer than the training' train cnn $small --warmup 3
warns 'lr_schedule=step has no effect: training ends' train cnn $small --lr-schedule step
for words in '--lr 0.2' '--lr-schedule cosine' '--warmup 1' '--flip' '--shift 2' '--momentum 0.9' \
    '--weight-decay 1e-4' '--optimizer adam' '--shuffle no' '--every 3'; do
    warns 'has no effect: with --epochs 0 nothing is trained' train cnn $small --epochs 0 \
        --test synthetic:count=8 $words
done
warns 'checkpoint_every=5 has no effect: with --epochs 0 nothing is trained' train cnn $small --epochs 0 \
    --test synthetic:count=8 --checkpoint fresh --checkpoint-every 5
silent train cnn $small --epochs 0 --test synthetic:count=8 --lr-schedule constant --warmup 0 --flip no \
    --shift 0 --momentum 0 --optimizer sgd --shuffle yes --every 0
silent train cnn $small --epochs 0 --test synthetic:count=8 --checkpoint fresh --momentum 0.9
silent train cnn $small --epochs 0 --steps 1 --lr-schedule cosine --lr 0.2
run 0 plan cnn --schedule gpipe --log quiet
[ ! -s err ] || fail "$what: --log quiet is not"

echo "== words with their defaults, and words with an effect, are fine"
silent plan cnn --save one.plan
silent plan cnn --plan one.plan
silent plan cnn --ranks 2 --zero 1 --momentum 0.9 --bucket 1MiB --nesterov
silent plan cnn --ranks 2 --stages 2 --schedule gpipe --level layer --balance memory
silent plan cnn --ranks 2 --mesh c2 --channels filter
silent train cnn $small --nesterov no --resume auto --checkpoint-every 0 --flip no --warmup 0.5
silent train cnn $small --shard 0
silent train cnn $small --lr-schedule step --drop 0.5 --drop-every 0.5 --epochs 1
silent train cnn $small --checkpoint kept --checkpoint-every 1 --keep 1 --resume no

echo "== names that are not known: the nearest, and all"
refuses 2 'did you mean --lr?' train cnn --learning-rate 0.1
refuses 2 'did you mean --batch?' train cnn --batch-size 8
refuses 2 'did you mean --ranks? it plans for so many, and starts none' plan cnn -np 4
refuses 2 'did you mean --np?' train cnn --ranks 4
refuses 2 'did you mean train?' trian
refuses 2 'did you mean bench?' benchmark cnn
refuses 1 "unknown model 'resnet5' (did you mean resnet50?); known: alexnet" plan resnet5
refuses 1 "unknown model 'ResNet50' (did you mean resnet50?)" plan ResNet50
refuses 1 "unknown device 'cuda' (did you mean cpu? GPUs are not there yet); known: cpu ref" \
    plan cnn --device cuda
refuses 1 "unknown optimizer 'adma' (did you mean adam?); known: adam adamw sgd" \
    plan cnn --optimizer adma
refuses 1 "there is no schedule 'gpip' (did you mean gpipe?)" plan cnn --schedule gpip
refuses 1 "unknown allreduce 'rings' (did you mean ring?)" plan cnn --allreduce rings
refuses 1 "unknown reader 'fashion' (did you mean fashion-mnist?)" train cnn --data fashion
refuses 1 'lr_schedule=cosin is not known (did you mean cosine?)' train cnn --lr-schedule cosin
refuses 1 "unknown word 'cuont' (did you mean count?)" train cnn --data synthetic:cuont=3
refuses 1 "has no block 'conv33' (did you mean conv3?)" plan cnn --ranks 2 --stages 2 --assign conv33
refuses 1 "has no group 'fc11' (did you mean fc1?)" plan cnn --ranks 2 --mesh 2x1/fc11:n2
refuses 1 "no command or word 'trian' (did you mean train?)" help trian
refuses 1 "no command or word 'learning-rate' (did you mean lr?)" help learning-rate
refuses 1 "no model 'resnet5' (did you mean resnet50?)" help train resnet5
refuses 1 "nothing is listed under 'model' (did you mean models?)" list model
refuses 1 "no 'linear' among the ops (did you mean dense?)" list ops linear
refuses 1 "unknown MPI 'openmip' (did you mean openmpi?)" run -np 2 --mpi openmip true
printf 'megalith plan 1\nbach=8\n' > wrong.plan
refuses 1 "unknown word 'bach' (did you mean batch?)" plan cnn --plan wrong.plan

echo "== numbers out of range"
refuses 1 'batch=-3 is out of range: use 1..' plan cnn --batch -3
refuses 1 'batch=99999999999999999999 is out of range' plan cnn --batch 99999999999999999999
refuses 1 'batch=1e99 is not a whole number: write it in digits' plan cnn --batch 1e99
refuses 1 'lr=-1 is out of range: use 0..' train cnn $small --lr -1
refuses 1 'lr=1e999 is out of range' train cnn $small --lr 1e999
refuses 1 'lr=nan is not a number' train cnn $small --lr nan
refuses 1 'threads=-1 is out of range' plan cnn --threads -1
refuses 1 'epochs=-1 is out of range' train cnn $small --epochs -1
refuses 1 'steps=-1 is out of range' train cnn $small --steps -1
refuses 1 'np=0 is out of range: use 1..' train cnn $small -np 0

echo "== files of others"
for file in model.pt model.pth; do
    refuses 1 "$file is a PyTorch file, not a network that can be read: export" plan $file
    has err 'torch.onnx.export('
done
refuses 1 'tf2onnx.convert' plan model.h5
refuses 1 'tf2onnx.convert' plan model.keras
refuses 1 'and the weights with --load' plan model.safetensors
printf 'PK\003\004 and what torch.save writes' > model.pt
printf '\211HDF\r\n\032\n and more' > model.h5
printf '\223NUMPY\001\000 and more' > array.npy
cp model.pt zip.safetensors
cp array.npy array.safetensors
for file in model.pt zip.safetensors; do
    refuses 1 'safetensors.torch.save_file(model.state_dict(), ' train cnn $small --load $file
done
for file in model.h5 array.npy array.safetensors; do
    refuses 1 'but weights are wanted as safetensors' train cnn $small --load $file
    has err 'safetensors.numpy.save_file('
done
refuses 1 'No such file' train cnn $small --load none.pt
refuses 1 'kept is a folder of checkpoints, not of weights: use kept/step-00000002' \
    train cnn $small --load kept
has err 'or checkpoint=kept to go on'
mkdir empty
refuses 1 'empty is a folder without model.safetensors' train cnn $small --load empty
run 1 train cnn $small --checkpoint kept/step-00000002
has err 'kept/step-00000002 is itself a checkpoint'
run 0 train cnn $small --load kept/step-00000002

echo "== a checkpoint that is finished"
run 0 train cnn $small --checkpoint kept
has out 'nothing left to train: the checkpoint in kept is of step 2 of 2'
has out 'give more --epochs'
! grep -q 'measured 0 bytes' out || fail "$what: figures of no step"
run 0 train cnn $small --checkpoint kept --json
has err 'nothing left to train'
has out '"loss": null'
run 0 train cnn $small --checkpoint kept --epochs 2 --load kept/step-00000002
has out 'goes on after step 2'
has out '--load kept/step-00000002 is not read'

echo "== the learning rate"
run 0 train cnn $small --optimizer adam --every 1
has err '  lr 0.001  '
has out ', lr 0.001, '
run 0 train cnn $small --optimizer adamw --json --every 1
has out '"step_loss": '
[ "$(grep -c '"lr": 0.001[,}]' out)" = 4 ] || fail "$what: not every object has lr 0.001"
run 0 train cnn $small --json
has out '"lr": 0.1,'
run 0 train cnn $small --optimizer adam --lr 0.1
has out ', lr 0.1, '
run 0 list optimizers adam
has out 'lr: 0.001'
warns 'the loss has grown far past its start' train cnn $small --epochs 4 --lr 3
has err 'use a smaller lr (now 3) or a warm-up'
silent train cnn $small --epochs 4 --lr 0.05

echo "== real targets"
volumes='synthetic:image=1x8x8x8 labels=real extent=4'
cosmo="--batch 4 --options pools=1 --width 2"
run 0 train cosmoflow $cosmo --data "$volumes count=8" --test "$volumes count=6 seed=1" --every 1
has err '  MAE 0.'
has out ', test MAE 0.'
has out '  test MAE  '
! grep -q accuracy out err || fail "$what: has an accuracy"
run 0 train cosmoflow $cosmo --data "$volumes count=8" --test "$volumes count=6 seed=1" --json
has out '"accuracy": null'
has out '"mae": 0.'
has out '"test_mae": 0.'
run 0 train cnn $small --json
has out '"mae": null'
# Of one target the loss (mse) is the square of the MAE.
run 0 train cosmoflow --batch 1 --options pools=1 --width 2 --targets 1 --json \
    --data 'synthetic:image=1x8x8x8 labels=real extent=1 count=1'
sed -n 's/.*"final".*"loss": \([0-9.e-]*\),.*"mae": \([0-9.e-]*\),.*/\1 \2/p' out > pair
awk '{ d = $1 - $2 * $2; bad = d * d > 1e-10 * $1 * $1 } END { exit bad || NR != 1 }' pair ||
    fail "$what: loss and MAE are $(cat pair)"

finish
