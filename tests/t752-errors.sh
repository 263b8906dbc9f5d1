#!/bin/sh
# What goes wrong on many ranks is told once, by one message; the exit code is not 0; nothing hangs.
# Arguments: source folder, build folder.
set -u
build=$2
megalith=$build/megalith
. "$1/tests/mpirun.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/megalith-errors.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work" || exit 1
unset SLURM_JOB_ID MEGALITH_MPI
failures=0

fail()
{
    failures=$((failures + 1))
    echo "FAILED: $*"
    sed 's/^/    /;12q' out
}

# verdict PATTERN CODE: of what was run last. One message, which has the pattern.
verdict()
{
    [ "$code" != 0 ] && [ "$code" != 124 ] || fail "$what: exit code $code"
    [ -z "${2:-}" ] || [ "$code" = "$2" ] || fail "$what: exit code $code, not $2"
    count=$(grep '^megalith: ' out | grep -vc '^megalith: warning: ') # as of a loss that grows
    [ "$count" = 1 ] || fail "$what: $count messages"
    grep -q "^megalith: .*$1" out || fail "$what: no message '$1'"
}

# refuses RANKS PATTERN WORDS..
refuses()
{
    ranks=$1 pattern=$2
    shift 2
    what="$mpi, $ranks ranks: $*"
    mpi_run $mpi "$ranks" 60 "$megalith" "$@" > out 2>&1
    code=$?
    verdict "$pattern"
}

# Rank 0 with the first command line, rank 1 with the second: separated by a colon.
apart()
{
    pattern=$1
    shift
    what="$mpi: $*"
    mpi_run $mpi 1 60 "$@" > out 2>&1
    code=$?
    verdict "$pattern"
}

await() # PATTERN: until the job in the background has printed it; half a minute at most
{
    tries=60
    while [ $tries -gt 0 ] && ! grep -q "$1" out; do
        sleep 0.5
        tries=$((tries - 1))
    done
}

npy() # TYPE SHAPE: the head of a NumPy file, 128 bytes
{
    printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '$1', 'fortran_order': False, 'shape': ($2), }"
}
{ npy '|u1' '16, 1, 28, 28'; seq 1 9000 | head -c 12544; } > x.npy
{ npy '|u1' '16,'; printf '\001\002\003\004\005\006\007\000\001\002\003\004\005\006\007\000'; } > y.npy
data='--data synthetic:count=24'
small="--width 4 --batch 8 --no-test $data"

tested=
for mpi in openmpi mpich; do
    mpi_has $mpi || { echo "$mpi: not here"; continue; }
    tested="$tested $mpi"
    echo "== $mpi: plans"
    refuses 7 'stages=7, but cnn has only 6 blocks\|7 stages.*6 blocks\|stages.*1\.\.6' train cnn --stages 7 $small
    refuses 3 '3 ranks, but stages=2 .*use -np 2' train cnn --stages 2 $small
    refuses 3 'replicas=2' train cnn --replicas 2 $small
    refuses 4 'replicas=4, but a micro-batch has only 3' train cnn --width 4 --batch 3 $data --goal given
    refuses 2 'micro=4 splits the normalisation groups of 8 samples: use norm=2' \
        train cnn --stages 2 --micro 4 $small
    refuses 2 "no schedule 'nonesuch'; known: .*1f1b" train cnn --stages 2 --schedule nonesuch $small
    refuses 2 "use .*micro" train cnn --stages 2 --norm 2 --micro 1 --schedule chimera $small
    "$megalith" plan cnn --width 4 --batch 8 --save cnn.plan > out || fail "plan --save"
    refuses 3 'cnn.plan.*made for another graph\|another graph' train cnn --width 8 $data --plan cnn.plan
    refuses 2 'needs .* bytes are missing' train cnn $small --budget 1000
    # Each rank would fit into the machine's memory, both together do not: 0.7 of it each.
    side=$(awk '/^(MemTotal|SwapTotal):/ { kb += $2 } END { print 16 * int(sqrt(0.7 * kb * 1024 / 9428) / 16) }' \
        /proc/meminfo)
    refuses 2 '2 ranks on one machine need [0-9]* bytes' train resnet-cifar --depth 110 --version 2 --batch 2 \
        --data "synthetic:image=3x${side}x$side count=2" --no-test --goal given

    echo "== $mpi: usage, files, devices"
    refuses 3 'unknown option --bogus' train cnn --bogus
    refuses 3 "unknown model 'nonesuch'" train nonesuch
    refuses 3 "unknown device 'nonesuch'" train cnn --device nonesuch
    refuses 3 'threads=x is not' train cnn --threads x
    refuses 3 'missing.npy' train cnn --data 'npy:images=missing.npy labels=y.npy'
    refuses 3 'cannot write nowhere/x' train cnn $small --save nowhere/x
    refuses 3 'missing.safetensors' train cnn $small --load missing.safetensors

    echo "== $mpi: ranks that are not alike"
    # Found beside its plug-in, as the real one is.
    mkdir -p other
    cp "$megalith" other/megalith && echo >> other/megalith
    cp "$build"/libmegalith_mpi_*.so other/
    apart 'rank 1 has another build' "$megalith" train cnn $small : -n 1 other/megalith train cnn $small
    apart 'rank 1: .*unknown option --bogus' "$megalith" train cnn $small : -n 1 "$megalith" train cnn --bogus
    apart 'rank 1 has other options of the plan' "$megalith" train cnn $small : \
        -n 1 "$megalith" train cnn $small --norm 4
    apart 'rank 1 has other options of the trainer' "$megalith" train cnn $small : \
        -n 1 "$megalith" train cnn $small --lr 3
    apart 'rank 1 has another seed' "$megalith" train cnn $small : -n 1 "$megalith" train cnn $small --seed 3
    apart 'rank 1 has another number of samples' "$megalith" train cnn $small : \
        -n 1 "$megalith" train cnn --width 4 --batch 8 --no-test --data synthetic:count=16
    apart 'rank 1 has another model' "$megalith" train cnn $small : \
        -n 1 "$megalith" train cnn --width 5 --batch 8 --no-test $data
    apart 'rank 1 has another command' "$megalith" train cnn $small : -n 1 "$megalith" bench cnn
    apart 'rank 1 has another --steps' "$megalith" train cnn $small --epochs 1 --steps 2 : \
        -n 1 "$megalith" train cnn $small --epochs 1 --steps 3
    apart 'rank 1 has another use of --save' "$megalith" train cnn $small : \
        -n 1 "$megalith" train cnn $small --save a.safetensors
    apart 'rank 1 has another use of --load' "$megalith" train cnn $small --load a.safetensors : \
        -n 1 "$megalith" train cnn $small
    apart 'rank 1: .*missing.npy' "$megalith" train cnn --batch 8 --data 'npy:images=x.npy labels=y.npy' : \
        -n 1 "$megalith" train cnn --batch 8 --data 'npy:images=missing.npy labels=y.npy'
    "$megalith" train cnn $small --steps 1 --save a.onnx > out 2>&1 || fail "save a.onnx"
    "$megalith" train cnn $small --steps 2 --save b.onnx > out 2>&1 || fail "save b.onnx"
    mkdir -p mine && cp b.onnx mine/a.onnx
    apart 'rank 1 has other weights in its model file' "$megalith" train a.onnx --batch 8 $data : \
        -n 1 "$megalith" train mine/a.onnx --batch 8 $data

    echo "== $mpi: in the middle of training"
    refuses 2 'the loss of step .* is .*smaller lr' train resnet-cifar --depth 8 --width 4 --batch 8 \
        --data 'synthetic:image=3x16x16 count=24' --lr 1e6 --momentum 0.9 --epochs 20

    # A file that ends while it is read, of one rank: the whole job ends.
    what="$mpi: a file cut short during training"
    cp x.npy cut.npy
    : > out # or `await` may see what the job before has printed
    replicas="--goal given --replicas 2" # both ranks read images
    mpi_run $mpi 1 60 "$megalith" train cnn --width 4 --batch 8 --epochs 1000000 --every 1 $replicas \
        --data 'npy:images=x.npy labels=y.npy' : -n 1 "$megalith" train cnn --width 4 --batch 8 $replicas \
        --epochs 1000000 --every 1 --data 'npy:images=cut.npy labels=y.npy' > out 2>&1 &
    job=$!
    await 'step 3/'
    : > cut.npy
    wait $job
    code=$?
    verdict 'rank 1: .*cut.npy'

    # A signal to one rank: all stop after the same step, in order.
    what="$mpi: SIGTERM to one rank"
    rm -f pid.*
    : > out
    mpi_run $mpi 3 60 sh -c 'echo $$ > pid.${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}; exec "$@"' sh \
        "$megalith" train cnn --width 4 --batch 8 --epochs 1000000 --every 1 $data > out 2>&1 &
    job=$!
    await 'step 3/'
    kill -TERM "$(cat pid.1)"
    wait $job
    code=$?
    verdict 'interrupted after step [0-9]*; nothing was saved' 130
    grep -q '^interrupted cnn: [0-9]* steps' out || fail "$what: no figures"
done
[ -n "$tested" ] || { echo "no MPI in this build"; exit 77; }
[ $failures = 0 ] && echo "all passed:$tested"
[ $failures = 0 ]
