#!/bin/sh
# No word is needed. A file of ONNX on four ranks, without a word about them: a few lines say what was chosen and why before the first
# step, and the losses are those of one rank. A network of large images on a machine that could not hold it on one rank. And where
# nothing fits, what would. Arguments: source folder, build folder.
set -u
. "$1/tests/command.sh"
. "$1/tests/mpirun.sh"
export MEGALITH_PRICES=builtin
unset SLURM_JOB_ID

# what_was_chosen FILE: the lines about it, from the first to the plan itself
what_was_chosen() { awk '/^auto: /{ on = 1 } /^plan: /{ on = 0 } on' "$1" > chosen; }

echo "== a file of ONNX on four ranks"
echo "nodes=1 ranks=4 cores=4 memory=1GiB inside=2us,8GB/s" > machine.txt
words="net.onnx --device ref64 --threads 1 --batch 12 --data synthetic:count=48 --no-test --steps 4 --every 1 --json"
run 0 train cnn --options width=2 --batch 12 --data synthetic:count=48 --no-test --steps 1 --save net.onnx
run 0 train $words
sed -n 's/.*"step": *\([0-9]*\), *"step_loss": *\([-+.e0-9]*\).*/\1 \2/p' out > alone
[ "$(wc -l < alone)" = 4 ] || fail "$what: not four steps"
tested=
for mpi in openmpi mpich; do
    mpi_has $mpi || { echo "$mpi: not in this build"; continue; }
    tested="$tested $mpi"
    what="train net.onnx -np 4, $mpi"
    code=0
    MEGALITH_MPI=$mpi "$megalith" train $words -np 4 --machine machine.txt > out 2> err || code=$?
    [ $code = 0 ] || fail "$what: exit code $code"
    what_was_chosen err
    has chosen '^auto: [0-9]* plans for 4 ranks'
    has chosen '^  chosen '
    lines=$(wc -l < chosen)
    [ "$lines" -ge 3 ] && [ "$lines" -le 12 ] || fail "$what: $lines lines about what was chosen, not 3 to 12: $(cat chosen)"
    # One seed, one batch: in double the sums differ by rounding alone.
    sed -n 's/.*"step": *\([0-9]*\), *"step_loss": *\([-+.e0-9]*\).*/\1 \2/p' out | paste -d ' ' - alone | awk '
        { d = $2 - $4; if (d < 0) d = -d }
        $1 != $3 || !($4 > 0) || !(d <= 1e-10 * $4) { print "step", $1, ": loss", $2, "on four ranks,", $4, "on one"; bad = 1 }
        END { exit bad || NR != 4 }' || fail "$what: other losses than one rank"
done

echo "== large images"
run 0 plan unet --image 3x4096x4096 --batch 1 --ranks 8 --machine "nodes=1 ranks=8 cores=8 memory=16GiB inside=2us,8GB/s"
what_was_chosen out
has chosen '^auto: [0-9]* plans for 8 ranks with 16.00 GiB'
has chosen '^  chosen   .*mesh='
[ "$(wc -l < chosen)" -le 12 ] || fail "$what: more than 12 lines: $(cat chosen)"
has out '  the described machine holds it: rank [0-7], which has least to spare, has 16.00 GiB'
has out 'bytes are exact where ranks compute with .* and 1 thread$'
run 0 plan unet --image 3x4096x4096 --batch 1 --ranks 1 --goal given --machine "cores=1 memory=16GiB"
has out 'the described machine has 16.00 GiB: [0-9]* bytes are missing' # or there was nothing to do

echo "== nothing fits"
run 0 plan unet --width 8 --image 3x128x128 --batch 1 --machine "ranks=2 memory=4MiB"
has out '^  nearest  .*does not fit: .* ([0-9]* bytes) are missing'
has out 'rank [01] of the described machine has 4.00 MiB: [0-9]* bytes are missing'
has out 'the nearest of [0-9]* plans for 2 ranks lacks [0-9]* bytes (.*): .*; it would fit on [0-9]* ranks (the described machine has 2): '
ranks=$(sed -n 's/.*it would fit on \([0-9]*\) ranks.*/\1/p' out)
run 0 plan unet --width 8 --image 3x128x128 --batch 1 --machine "ranks=${ranks:-2} memory=4MiB"
has out '^  chosen '
has out 'the described machine holds it'
refuses 1 'lacks [0-9]* bytes (.*): .*; it would fit on [0-9]* ranks: ' \
    plan unet --width 8 --image 3x128x128 --batch 1 --ranks 2 --budget 4MiB

echo "== one rank of a machine with less memory, and the same training with more"
train_alone()
{
    run 0 train vgg11 --image 3x32x32 --width 8 --hidden 64 --classes 10 --batch 64 --no-test \
        --data "synthetic:image=3x32x32 classes=10 count=128" "$@"
}
train_alone --steps 1 --machine memory=4MiB
has out '^  chosen   micro=8 '
train_alone --steps 1 --machine memory=4MiB --checkpoint c
has out '^  chosen   micro=8 '
train_alone --steps 2 --checkpoint c
has out '^auto: the words of c/step-00000001/plan: micro=8 '
has out 'in 8 micro-batches'
rm -r c
train_alone --steps 1 --checkpoint c
train_alone --steps 2 --checkpoint c
has out '^goes on after step 1$'
lacks out '^auto: ' # nothing was to be chosen
[ -n "$tested" ] || echo "no MPI: four ranks were not started"
finish
