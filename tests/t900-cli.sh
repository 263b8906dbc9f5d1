#!/bin/sh
# The command as a user meets it: what it prints, where, its exit codes, and what it leaves behind
# when something goes wrong. No Python: JSON lines are taken apart with sed.
# Usage: t900-cli.sh SOURCE_DIR BUILD_DIR
set -u
. "$1/tests/command.sh"

value() { sed -n "\$s/.*\"$1\": \([^,}]*\).*/\1/p" out; } # of a key in the last line of out

only_json()
{
    has out '^{.*}$'
    ! grep -v '^{.*}$' out > rest || fail "$what: not JSON: $(head -n 1 rest)"
}

nothing_left() # no temporary file in the folder
{
    set -- ./*.tmp
    [ ! -e "$1" ] || fail "$what: left $1 behind"
}

small="--options width=4 --batch 8"
data="--data synthetic:count=24"
endless="--data synthetic:count=512 --epochs 100000 --every 1"

echo "== help, list, doctor"
run 2
has err '^usage: megalith COMMAND'
run 0 help
commands=$(sed -n 's/^  \([a-z]*\) .*/\1/p' out | grep -v megalith)
[ "$(echo "$commands" | wc -l)" -ge 9 ] || fail "help lists too few commands: $commands"
for command in $commands; do
    run 0 "$command" --help
    has out "^usage: megalith $command"
    run 0 help "$command"
done
run 0 train cnn --help
has out 'dropout=X'
for command in train plan bench; do
    run 0 help $command
    has out '^On several ranks those of these that are not given are chosen'
    has out '^  micro replicas stages chunks schedule replications balance assign mesh channels wide zero allreduce bucket recompute$'
done
run 0 --help
run 0 --version
has out '^megalith [0-9]*\.[0-9]*\.[0-9]*$'
run 0 list
for registry in models ops optimizers readers devices; do
    has out "^$registry: "
done
for registry in models ops optimizers readers devices; do
    run 0 list $registry
    names=$(sed -n 's/^\([a-z0-9_-]*\): .*/\1/p' out)
    [ -n "$names" ] || fail "list $registry: no names"
    for name in $names; do
        run 0 list $registry "$name"
    done
done
run 0 list ops conv
has out 'filters=N .*required'
has out 'kernel=3 pad=1'
has out 'paper: LeCun'
run 0 doctor
for line in megalith compiler oneDNN memory cores instructions device data; do
    has out "^$line  *."
done
HWLOC_SYNTHETIC='package:2 numa:2 core:2 pu:2' run 0 doctor # an imaginary machine
has out '; 2 packages, 4 NUMA nodes, 8 cores, 16 processors'

echo "== wrong usage"
refuses 2 'did you mean train' trian
refuses 2 'did you mean --batch' train cnn --bacth 8
refuses 2 'known: .*--momentum' train cnn --xyzzy 8
refuses 2 'unknown option --depth' plan cnn --depth 20
refuses 2 'usage: megalith train MODEL' train
refuses 2 'has no value' plan cnn --batch
refuses 2 'has no value' plan cnn --batch --json
refuses 2 "what is 'more'" plan cnn more
refuses 1 "unknown model 'nonesuch'; known: .*cnn" plan nonesuch
refuses 1 "unknown optimizer 'nonesuch'; known: .*sgd" plan cnn --optimizer nonesuch --momentum 1
refuses 1 "unknown device 'nonesuch'; known: .*ref" plan cnn --device nonesuch
refuses 1 "unknown reader 'nonesuch'" train cnn --data nonesuch:
refuses 1 'no .nonesuch. among the ops' list ops nonesuch
refuses 1 'nothing is listed under' list nonesuch
refuses 1 'batch=many is not a whole number' plan cnn --batch many
refuses 1 "'batch' is given twice" plan cnn --batch 8 --batch=9
refuses 1 "'image' is given twice" plan cnn --image 1x28x28 --options image=1x28x28
refuses 1 'micro=3 does not divide batch=8: use micro=2' plan cnn --batch 8 --micro 3
refuses 1 'mesh=2x: no number from 1 to 1048576 at its end: ' plan cnn --ranks 4 --mesh 2x
refuses 1 "mesh=2, 1: no mesh at ' 1'" plan cnn --ranks 3 --stages 2 --mesh '2, 1'
refuses 1 '6 ranks, but stages=1 mesh=2x2 want 4 or 8: use -np 4 or 8' plan cnn --ranks 6 --mesh 2x2
refuses 1 'which 4 pools do not halve.*(the image is that of synthetic:image=1x28x28' \
    train unet --data synthetic:image=1x28x28
refuses 1 "no model 'nonsense'" help plan nonsense
refuses 1 "no command or word 'nonsense'" help nonsense
refuses 1 'stages=3 is no multiple of chunks=2: use stages=4' plan cnn --ranks 3 --stages 3 --chunks 2
# Messages of a second each: the predicted step is that of all ranks, not of one's kernels.
run 0 plan cnn --stages 2 --goal given --machine 'ranks=2 inside=1s,1GB/s'
has out 'predicted step time  *[2-9][.][0-9]* s'
run 1 plan cnn --machine 'ranks=2 inside=1s'
has err 'no bandwidth'
run 1 plan cnn --machine nowhere.txt
has err 'cannot open machine=nowhere.txt'
run 0 plan cnn --machine 'nodes=2 ranks=2' --alternatives
has out '^auto: [0-9]* plans for 4 ranks'
has out '^  bound '
run 0 plan cnn --alternatives
has err 'alternatives=yes has no effect: nothing is chosen for the ranks that are there; give --ranks or --machine'
run 0 plan cnn --ranks 2 --alternatives --json
has err 'alternatives=yes has no effect with --json'
run 0 plan cnn --ranks 4 --mesh 2x2 --zero 3 --goal given
has out 'micro-batch, sgd, mesh=2x2, zero=3$'
run 0 plan cnn --ranks 2
has out 'micro-batch, sgd$'
run 0 help lr-schedule
has out 'lr_schedule=constant|step|cosine'
run 0 list models unet
has out 'crop=yes|no .*(default no)'
run 0 doctor
has out '^mpi  '

echo "== bad shapes and classes"
refuses 1 'wants CxHxW' plan cnn --image 28x28
refuses 1 'pool' plan cnn --image 1x1x1
refuses 1 'its samples are 1x28x28.*use image=1x28x28' train cnn $data --image 1x32x32
refuses 1 'it has 10 classes.*use classes=10' train cnn $data --classes 4
refuses 1 'its samples are 3x28x28' train cnn $data --test synthetic:image=3x28x28
refuses 1 'batch=32, but the data set has only 24 samples: use batch=24 or less' train cnn $data

echo "== plan, explain"
run 0 plan cnn $small --json
only_json
for key in model parameters batch predicted_peak_bytes predicted_seconds_per_step frame_bytes; do
    [ -n "$(value $key)" ] || fail "$what: no $key"
done
[ "$(value model)" = '"cnn"' ] && [ "$(value batch)" = 8 ] || fail "$what: not what was asked for"
bytes=$(value predicted_peak_bytes)
run 0 plan cnn $small
has out "predicted peak.* $bytes bytes"
run 0 plan cnn $small --budget "$bytes"
refuses 1 "needs $bytes bytes.* $((bytes - 100000)) bytes are missing" \
    plan cnn $small --budget 100000 --goal given
run 0 explain cnn $small
has out 'fwd    conv conv1 :'
has out 'the lower bound'
run 0 explain cnn $small --slots --entry eval
has out '^  slot 0 '
run 0 explain resnet-cifar --device ref --depth 20 --batch 8 --recompute segments
has out '^blocks that are run again in backward:$'
has out '^  layer1.1$'
run 0 explain cnn $small --json
only_json
[ "$(value frame_bytes)" -ge "$(value frame_lower_bound_bytes)" ] &&
    [ "$(value frame_lower_bound_bytes)" -gt 0 ] || fail "$what: placed below the lower bound"
refuses 1 'no last, partial batch' explain cnn $small --entry tail
run 0 explain cnn $small --entry tail --data synthetic:count=21
has out 'entry tail: batch 5'

echo "== train"
for device in ref cpu; do
    run 0 train cnn $small --device $device $data --test synthetic:count=9 --steps 2 --json \
        --save $device.safetensors --trace $device.json
    only_json
    has err '^plan: cnn'
    [ "$(wc -l < out)" = 2 ] || fail "$what: not one line for the epoch and one at the end"
    for key in loss accuracy test_loss test_accuracy epoch seconds_per_step images_per_second \
        peak_rss_bytes parameters; do
        case $(value $key) in
        '' | null) fail "$what: no $key" ;;
        esac
    done
    [ "$(value step)" = 2 ] && [ "$(value final)" = true ] || fail "$what: not the last line"
    [ "$(value measured_peak_bytes)" = "$(value predicted_peak_bytes)" ] ||
        fail "$what: measured $(value measured_peak_bytes) bytes, not $(value predicted_peak_bytes)"
    value loss > $device.loss
    [ -s $device.safetensors ] || fail "$what: saved nothing"
    [ "$(head -c 1 $device.json)" = '{' ] && [ "$(tail -n 1 $device.json)" = ']}' ] ||
        fail "$what: the trace is not whole"
    [ "$(tr -cd '{[' < $device.json | wc -c)" = "$(tr -cd '}]' < $device.json | wc -c)" ] ||
        fail "$what: brackets of the trace do not match"
    grep -q '"name": "conv fwd", "args": {"node": "conv1"' $device.json &&
        grep -q '"name": "step 2"}' $device.json || fail "$what: the trace misses conv1 or step 2"
    nothing_left
done
paste ref.loss cpu.loss | awk '{ d = $1 - $2; exit !($1 > 0 && d * d < 1e-8 * $1 * $1) }' ||
    fail "losses of ref and cpu differ: $(cat ref.loss cpu.loss)"

run 0 train cnn $small $data --epochs 2 --every 1 --flip --shuffle no --lr-schedule=cosine --warmup 0.5
has out '^epoch 2: loss'
has out 'difference 0$'
has err 'step 6/6'
! grep -q '^epoch .* left' out || fail "$what: progress among the results"
run 0 train cnn $small $data --epochs 0 --load cpu.safetensors --test synthetic:count=9 --json
[ "$(value test_loss)" != null ] && [ "$(value loss)" = null ] ||
    fail "$what: did not only evaluate"
run 0 train cnn $small $data --epochs 1 --test synthetic:count=9 --no-test --json
[ "$(value test_loss)" = null ] || fail "$what: evaluates all the same"
run 0 train resnet-cifar --version 2 --depth 11 --width 4 $data --batch 8 --micro 2 --norm 4 \
    --steps 1
has out 'batch 8 in 2 micro-batches'
refuses 1 'no safetensors file' train cnn --batch 8 --json $data --load ref.json
refuses 1 'conv1.weight has another shape' train cnn --batch 8 --json $data --load cpu.safetensors
refuses 1 'cannot write nowhere/x: No such file' train cnn $data --save nowhere/x

echo "== ranks that are not here are as -np starts them"
cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
threads=$((cores < 4 ? 1 : cores / 2))
words="resnet-cifar --options depth=8 --batch 8 --goal given"
run 0 plan $words --ranks 2 --json
only_json
bytes=$(value predicted_peak_bytes)
[ "$(value threads)" = $threads ] || fail "$what: $(value threads) threads a rank, not $threads"
run 0 plan $words --ranks 2 --threads 3 --json
[ "$(value threads)" = 3 ] || fail "$what: --threads does not count"
run 0 plan $words --ranks 1 --json
[ "$(value threads)" = "$cores" ] || fail "$what: $(value threads) threads of one rank, not $cores"
if command -v mpirun > /dev/null && [ $((cores % 2)) = 0 ]; then
    what="train -np 2"
    ASAN_OPTIONS=detect_leaks=0 "$megalith" train $words -np 2 --data synthetic:image=3x32x32 --steps 2 --no-test --json > out 2> err ||
        fail "$what: exit code $?"
    [ "$(value measured_peak_bytes)" = "$bytes" ] || fail "$what: $(value measured_peak_bytes) bytes, plan --ranks 2 said $bytes"
fi

echo "== onnx"
run 0 train cnn --steps 2 --batch 8 --no-test --save net.onnx
run 0 train net.onnx --steps 2 --batch 8 --no-test --save again.onnx --json
has out '"model": "net"'
run 0 plan again.onnx --json
[ "$(value parameters)" -gt 0 ] || fail "$what: no parameters"
run 0 help train net.onnx
has out 'words of model .onnx'
refuses 1 'cut short' plan "$(head -c 1000 net.onnx > cut.onnx && echo cut.onnx)"
refuses 1 'No such file' train missing.onnx
refuses 1 'image=' plan net.onnx --image 3x28x28
nothing_left

echo "== data files that are missing, truncated, damaged"
idx() # SPLIT: a data set of 4 images whose pixels are text
{
    {
        printf '\000\000\010\003\000\000\000\004\000\000\000\034\000\000\000\034'
        seq 1 2000 | head -c 3136
    } | gzip > "idx/$1-images-idx3-ubyte.gz"
    printf '\000\000\010\001\000\000\000\004\001\000\011\005' | gzip > "idx/$1-labels-idx1-ubyte.gz"
}
set_from() # FOLDER: as a reader
{
    echo "fashion-mnist:split=test dir=$work/$1"
}
mkdir idx
idx t10k
run 0 train cnn --options width=4 --batch 2 --steps 1 --data "$(set_from idx)"
for damage in missing truncated damaged short label; do
    cp -r idx $damage
done
images=t10k-images-idx3-ubyte.gz
rm missing/$images
dd if=idx/$images of=truncated/$images bs=200 count=1 2> rest
printf 'damage' | dd of=damaged/$images bs=1 seek=400 conv=notrunc 2> rest
gzip -dc idx/$images | head -c 3000 | gzip > short/$images
printf '\000\000\010\001\000\000\000\004\001\000\012\005' | gzip > label/t10k-labels-idx1-ubyte.gz
refuses 1 'cannot open.*dataset-fashion-mnist' train cnn --data "$(set_from missing)"
refuses 1 'truncated' train cnn --data "$(set_from truncated)"
refuses 1 'damaged\|truncated' train cnn --data "$(set_from damaged)"
refuses 1 'truncated' train cnn --data "$(set_from short)"
refuses 1 'label 2 of .* is 10' train cnn --data "$(set_from label)"
real=/usr/share/datasets/fashion-mnist/$images
if [ -f $real ]; then
    dd if=$real of=truncated/$images bs=100000 count=3 2> rest
    cp $real damaged/$images
    printf 'damage' | dd of=damaged/$images bs=1 seek=1000000 conv=notrunc 2> rest
    refuses 1 'truncated' train cnn --data "$(set_from truncated)"
    refuses 1 'damaged' train cnn --data "$(set_from damaged)"
else
    echo "   (Debian's dataset-fashion-mnist is not installed: only small files were damaged)"
fi

npy() # TYPE SHAPE: the head of a NumPy file, 128 bytes
{
    printf '\223NUMPY\001\000\166\000%-117s\n' \
        "{'descr': '$1', 'fortran_order': False, 'shape': ($2), }"
}
{
    npy '|u1' '4, 1, 28, 28'
    seq 1 2000 | head -c 3136
} > x.npy
{
    npy '|u1' '4,'
    printf '\001\000\011\005'
} > y.npy
head -c 1000 x.npy > cut.npy
refuses 1 'missing.npy' train cnn --data 'npy:images=missing.npy labels=y.npy'
refuses 1 'cut.npy' train cnn --data 'npy:images=cut.npy labels=y.npy'
refuses 1 'out' train cnn --data 'npy:images=out labels=y.npy'

echo "== grads"
grads="--options width=4 --weights ref.safetensors --input x.npy --labels y.npy"
for device in ref ref64 cpu; do
    run 0 grads cnn $grads --device $device --out $device.grads
    only_json
    value loss > $device.loss
    [ -s $device.grads ] || fail "$what: wrote nothing"
done
paste ref64.loss cpu.loss | awk '{ d = $1 - $2; exit !($1 > 0 && d * d < 1e-8 * $1 * $1) }' ||
    fail "losses of ref64 and cpu differ: $(cat ref64.loss cpu.loss)"
run 0 grads cnn $grads --micro 2 --norm 2 --out micro.grads
refuses 1 'cnn has no weights of its own: --weights' grads cnn --input x.npy --labels y.npy --out none.grads
[ ! -e none.grads ] || fail "$what: wrote something"
refuses 1 'it has 10 classes' grads cnn $grads --classes 4 --out none.grads

echo "== bench"
run 0 bench cnn $small --iterations 2 --repeat 2 --warmup 1 --kernels --json
only_json
for key in seconds_per_step images_per_second predicted_peak_bytes peak_rss_bytes parameters \
    predicted_seconds_per_step heap_growth_bytes; do
    [ -n "$(value $key)" ] || fail "$what: no $key"
done
[ "$(value measured_peak_bytes)" = "$(value predicted_peak_bytes)" ] ||
    fail "$what: measured $(value measured_peak_bytes) bytes, not $(value predicted_peak_bytes)"
[ "$(value heap_growth_bytes)" -lt 100000 ] || fail "$what: the heap grows"
has out '"kernel": "conv", "pass": "wgt"'
awk -F'"share": ' '/"kernel"/ { split($2, s, ","); sum += s[1] }
    END { exit !(sum > 0.999 && sum < 1.001) }' out || fail "$what: the shares of the kernels do not add up to 1"
run 0 bench cnn $small --iterations 2 --repeat 2 --kernels
has out 'images/s (mean'
has out '^  conv  *fwd '

echo "== what must not be lost"
cp cpu.safetensors kept
mkdir target
cp kept target/w
in_target()
{
    cmp -s kept target/w || fail "$what: the file that was there has changed"
    [ "$(ls target)" = w ] || fail "$what: left something behind: $(ls target)"
}
run 1 train cnn $small $data --epochs 20 --lr 1e6 --weight-decay 1e6 --save target/w \
    --trace target/t
has err 'megalith: the loss of step [0-9]* is'
in_target
what="a full disk"
(
    ulimit -f 8
    exec "$megalith" train cnn --batch 8 $data --steps 1 --save target/w > out 2> err
)
code=$?
[ $code = 1 ] || fail "$what: exit code $code, not 1"
has err 'cannot write target/w'
in_target
what="a full disk, tracing"
(
    ulimit -f 8
    exec "$megalith" train cnn --batch 8 $data --epochs 5 --trace target/w > out 2> err
)
code=$?
[ $code = 1 ] || fail "$what: exit code $code, not 1"
has err 'cannot write target/w'
in_target
# A file renamed over a device or a pipe would take its place.
mkfifo target/pipe
for words in "train cnn $data --steps 1 --save" "train cnn $data --steps 1 --trace" \
    "plan cnn --save" "show cnn --out"; do
    run 1 $words target/pipe
    has err 'cannot write target/pipe: it is a device or a pipe, not a file'
    [ -p target/pipe ] || fail "$what: the pipe is gone"
done
rm target/pipe
in_target
if [ -c /dev/full ]; then
    what="results to a full disk"
    "$megalith" plan cnn --json > /dev/full 2> err
    code=$?
    [ $code = 1 ] || fail "$what: exit code $code, not 1"
    has err 'could not all be written'
fi

echo "== interrupts"
# interrupt SIGNAL WORDS..: the signal after the first step of an endless training; exit code 130.
interrupt()
{
    signal=$1
    shift
    what="SIG$signal during megalith $*"
    rm -f err
    env --default-signal=INT "$megalith" "$@" > out 2> err &
    child=$!
    waited=0
    until grep -q 'step 2/' err 2> rest || [ $waited -ge 600 ] || ! kill -0 $child; do
        sleep 0.1
        waited=$((waited + 1))
    done
    kill -s "$signal" $child
    wait $child
    code=$?
    [ $code = 130 ] || fail "$what: exit code $code, not 130"
    has err "^megalith: interrupted after step "
}
for signal in INT TERM; do
    interrupt $signal train cnn $small $endless --save $signal.safetensors \
        --trace $signal.json --json
    has err "the weights are in $signal.safetensors"
    [ "$(value interrupted)" = true ] || fail "$what: does not say so"
    [ "$(tail -n 1 $signal.json)" = ']}' ] || fail "$what: the trace is not whole"
    run 0 train cnn $small --data synthetic --epochs 0 --load $signal.safetensors \
        --test synthetic:count=64
    has out 'test accuracy'
done
interrupt TERM train cnn $small $endless
has err 'nothing was saved'
nothing_left

finish
