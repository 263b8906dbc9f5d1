#!/bin/sh
# Training on several ranks, by the command, under every MPI of this build: the losses of five steps
# are one rank's (in double, to 1e-10), and so are those of a test set; memory is as predicted on
# every rank; results and progress come once. Arguments: source folder, build folder.
set -u
build=$2
megalith=$build/megalith
. "$1/tests/mpirun.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/megalith-many.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work" || exit 1
unset SLURM_JOB_ID MEGALITH_MPI
failures=0

fail()
{
    failures=$((failures + 1))
    echo "FAILED: $*"
    sed 's/^/    out: /;8q' out
    sed 's/^/    err: /;8q' err
}

losses() { sed -n 's/.*"\(step_loss\|test_loss\)": \([0-9][0-9.e+-]*\).*/\2/p' out; }

# same FILE: the losses are those of the file, to 1e-10, and vary: a constant would prove nothing.
same()
{
    losses > mine
    paste "$1" mine | awk '
        NF != 2 { bad = 1 }
        { d = $1 - $2; if (d * d > 1e-20 * $1 * $1 || $1 <= 0) bad = 1; seen[$1] = 1 }
        END { for (x in seen) kinds++; exit bad || NR < 6 || kinds < 4 }'
}

words='--device ref64 --batch 12 --lr 0.05 --momentum 0.9 --steps 5 --every 1 --json'

train() # RANKS MPI MODEL WORDS..: 0 ranks: the command alone
{
    ranks=$1 by=$2 model=$3
    shift 3
    case $model in
    cnn) set -- cnn --width 4 --dropout 0.5 --data synthetic:count=44 --test synthetic:count=21 "$@" ;;
    cifar) set -- resnet-cifar --depth 8 --width 4 --data 'synthetic:image=3x11x13 classes=5 count=36' \
        --test 'synthetic:image=3x11x13 classes=5 count=9' --flip "$@" ;;
    esac
    what="$by, $ranks ranks: train $* $words"
    if [ "$ranks" = 1 ]; then "$megalith" train "$@" $words > out 2> err
    else mpi_run "$by" "$ranks" 120 "$megalith" train "$@" $words > out 2> err
    fi
    code=$?
    [ $code = 0 ] || fail "$what: exit code $code"
}

tested=
for mpi in openmpi mpich; do
    mpi_has $mpi && tested="$tested $mpi"
done
[ -n "$tested" ] || { echo "no MPI in this build"; exit 77; }

# norm= is the same in all cases of a model, else they would not compute the same.
train 1 alone cnn --norm 3
losses > cnn.losses
train 1 alone cifar --norm 2
losses > cifar.losses
train 1 alone cifar # the whole batch is one group
losses > whole.losses

check() # FILE RANKS MODEL WORDS..
{
    file=$1
    shift
    for mpi in $tested; do
        ranks=$1
        train "$ranks" $mpi "$2" $3
        same "$file" || fail "$what: losses $(tr '\n' ' ' < mine) instead of $(tr '\n' ' ' < "$file")"
        [ "$(grep -c '"final": true' out)" = 1 ] || fail "$what: not one result"
        [ "$(grep -c 'step 3/5' err)" = 1 ] || fail "$what: progress not once"
        grep -q "\"ranks\": $ranks" out || fail "$what: not on $ranks ranks"
        predicted=$(sed -n 's/.*"final".*"predicted_peak_bytes": \([0-9]*\).*/\1/p' out)
        measured=$(sed -n 's/.*"final".*"measured_peak_bytes": \([0-9]*\).*/\1/p' out)
        [ -n "$predicted" ] && [ "$predicted" = "$measured" ] ||
            fail "$what: predicted $predicted bytes, measured $measured"
    done
}
check cnn.losses 2 cnn '--norm 3'
check cnn.losses 3 cnn '--norm 3'
check cnn.losses 2 cnn '--norm 3 --stages 2 --micro 4'
check cifar.losses 3 cifar '--norm 2 --stages 3 --micro 6 --schedule gpipe'
check cifar.losses 4 cifar '--norm 2 --stages 2 --replicas 2 --micro 2 --schedule chimera'
check cifar.losses 8 cifar '--norm 2 --plan hyfi-8' # tiles and both directions, by name
check whole.losses 3 cifar '' # norms are reduced over the ranks
check whole.losses 2 cifar '--allreduce mpi --bucket 0'

echo "== weights, gradients"
for mpi in $tested; do
    train 1 alone cnn --norm 3 --save one.safetensors
    train 2 $mpi cnn --norm 3 --stages 2 --micro 4 --save two.safetensors
    [ "$(wc -c < one.safetensors)" = "$(wc -c < two.safetensors)" ] || fail "$what: other weights"
    words_before=$words words="$words --load one.safetensors"
    train 3 $mpi cnn --norm 3
    losses | head -n 1 > three
    train 1 alone cnn --norm 3
    losses | head -n 1 > one
    cmp -s one three || paste one three | awk '{ d = $1 - $2; exit d * d > 1e-20 * $1 * $1 }' ||
        fail "$what: goes on with $(cat three) instead of $(cat one)"
    words=$words_before
done

echo "== bench"
for mpi in $tested; do
    for plan in '--replicas 2' '--stages 2 --micro 4 --norm 2'; do
        what="$mpi: bench $plan"
        MEGALITH_MPI=$mpi timeout 120 "$megalith" bench cnn -np 2 $plan --batch 8 --iterations 2 --repeat 2 \
            > out 2> err || fail "$what: exit code $?"
        grep -q 'images/s (mean' out || fail "$what: no images/s"
        grep -q 'difference 0$' out || fail "$what: memory is not as predicted"
        grep -q 'exposed communication  .* s,' out || fail "$what: no exposed communication"
        [ "$(grep -c '^repeat 1' err)" = 1 ] || fail "$what: progress not once"
    done
done
[ $failures = 0 ] && echo "all passed:$tested"
[ $failures = 0 ]
