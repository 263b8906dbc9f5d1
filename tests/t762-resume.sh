#!/bin/sh
# A training that moves: 10 steps on a pipeline of four ranks, 10 on three data-parallel ones, 2 on two
# that share each image, 2 on four that share channels, samples and the optimizer's states, 2 on three
# that share the weights, 4 on one rank, each from the last one's checkpoint. Losses are those of 30
# steps on one rank that nothing disturbed: weights, Adam's moments, learning rate, order and
# augmentation of samples, dropout, all go on. Arguments: source folder, build folder.
set -eu
build=$2
. "$1/tests/mpirun.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; tail -n 20 "$work"/*.err; exit 1; }

words="train cnn --options width=2 --device ref64 --threads 1 --no-test --data synthetic:count=96
    --batch 12 --norm 3 --optimizer adamw --lr 0.004 --lr-schedule cosine --warmup 0.5 --epochs 3.75
    --shift 2 --flip --json --every 1"

losses() { sed -n 's/.*"step": *\([0-9]*\), *"step_loss": *\([-+.e0-9]*\).*/\1 \2/p' "$1"; }

# The same steps, the same losses to 1e-10.
compare()
{
    losses "$1" > "$work/a"
    losses "$2" > "$work/b"
    paste -d ' ' "$work/a" "$work/b" | awk '
        { d = $2 - $4; if (d < 0) d = -d; if (d > most) most = d }
        $1 != $3 || !(d <= 1e-10 * $4) { print "step", $1, ": loss", $2, "undisturbed", $4; bad = 1 }
        END { print NR, "steps, largest difference", most + 0; exit bad || NR != 30 }'
}

# Two files of weights: the same names and shapes, the same numbers to 1e-10. They are doubles behind a
# head, whose length comes first.
same_weights()
{
    head=$(($(od -An -t u8 -N 8 "$1") + 8))
    cmp -n "$head" "$1" "$2" || return 1
    od -An -v -w8 -t f8 -j "$head" "$1" > "$work/a"
    od -An -v -w8 -t f8 -j "$head" "$2" > "$work/b"
    paste -d ' ' "$work/a" "$work/b" | awk '
        { d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d; if ($1 != 0) any = 1 }
        END { print NR, "numbers, largest difference", most + 0; exit !(most <= 1e-10 && any) }'
}

"$build/megalith" $words --steps 26 --save "$work/26.safetensors" > "$work/26" 2> "$work/26.err" ||
    fail "26 steps"
"$build/megalith" $words --steps 30 > "$work/whole" 2> "$work/whole.err" || fail "undisturbed"

tested=
for mpi in openmpi mpich; do
    mpi_has $mpi || { echo "$mpi: not in this build"; continue; }
    dir=$work/$mpi tested="$tested $mpi"
    : > "$work/moved"
    mpi_run $mpi 4 100 "$build/megalith" $words --stages 4 --micro 4 --schedule 1f1b --steps 10 \
        --checkpoint "$dir" >> "$work/moved" 2> "$work/1.err" || fail "$mpi: four stages"
    mpi_run $mpi 3 100 "$build/megalith" $words --replicas 3 --steps 20 \
        --checkpoint "$dir" --resume yes >> "$work/moved" 2> "$work/2.err" || fail "$mpi: three replicas"
    mpi_run $mpi 2 100 "$build/megalith" $words --mesh 2x1 --steps 22 \
        --checkpoint "$dir" --resume yes >> "$work/moved" 2> "$work/5.err" || fail "$mpi: pixels"
    mpi_run $mpi 4 100 "$build/megalith" $words --mesh c2 --replicas 2 --zero 1 --steps 24 \
        --checkpoint "$dir" --resume yes >> "$work/moved" 2> "$work/6.err" || fail "$mpi: channels"
    mpi_run $mpi 3 100 "$build/megalith" $words --replicas 3 --zero 3 --steps 26 \
        --checkpoint "$dir" --resume yes --save "$work/parts.safetensors" \
        >> "$work/moved" 2> "$work/7.err" || fail "$mpi: weights"
    same_weights "$work/parts.safetensors" "$work/26.safetensors" || fail "$mpi: other weights"
    "$build/megalith" $words --steps 30 --checkpoint "$dir" --resume yes \
        >> "$work/moved" 2> "$work/3.err" || fail "one rank"
    grep -q 'goes on after step 26$' "$work/3.err" || fail "one rank: where did it go on?"
    compare "$work/moved" "$work/whole" || fail "$mpi: other losses"

    # An error of the rank that reads is one message and the end of all.
    status=0
    mpi_run $mpi 2 60 "$build/megalith" $words --replicas 2 --steps 30 --seed 7 \
        --checkpoint "$dir" > "$work/4.err" 2>&1 || status=$?
    [ $status != 0 ] && [ $status != 124 ] || fail "$mpi: another seed: status $status"
    [ "$(grep -c 'was trained with seed=1' "$work/4.err")" = 1 ] || fail "$mpi: another seed"
done
[ -n "$tested" ] || exit 77
