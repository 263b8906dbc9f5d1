#!/bin/sh
# Words that a search chose are saved with checkpoints, and training goes on with them: on as many ranks, whatever a
# search would choose now. On other ranks, with other words, or where they do not fit any more, words are looked for
# anew, and a line says why. Losses are those of a training that nothing disturbed, in every case. Checkpoints of old, without
# words, still load. Arguments: source folder, build folder.
set -u
. "$1/tests/command.sh"
. "$1/tests/mpirun.sh"

slow="nodes=1 ranks=2 cores=2 memory=1GiB inside=20ms,8GB/s"  # few messages are better: stages
quick="nodes=1 ranks=2 cores=2 memory=1GiB inside=2us,8GB/s"  # replicas
words="cnn --options width=2 --device ref64 --threads 1 --batch 12 --norm 3 --optimizer adamw"
rest="--no-test --data synthetic:count=96 --lr 0.004 --lr-schedule cosine --epochs 2 --json --every 1"

# train RANKS STEPS MACHINE WORDS..: its records in `out`, what it says in `err`
train()
{
    ranks=$1 steps=$2 machine=$3
    shift 3
    what="train on $ranks ranks to step $steps $*"
    code=0
    mpi_run $mpi $ranks 250 "$megalith" train $words $rest --steps $steps --machine "$machine" "$@" > out 2> err || code=$?
}

trains() { train "$@"; [ $code = 0 ] || fail "$what: exit code $code"; }

# The steps of `out` from $1 to $2 have the losses of the undisturbed training.
compare()
{
    for file in out whole; do
        sed -n 's/.*"step": *\([0-9]*\), *"step_loss": *\([-+.e0-9]*\).*/\1 \2/p' $file |
            awk -v a="$1" -v b="$2" '$1 >= a && $1 <= b' > $file.losses
    done
    paste -d ' ' out.losses whole.losses | awk -v want=$(($2 - $1 + 1)) '
        { d = $2 - $4; if (d < 0) d = -d }
        $1 != $3 || !(d <= 1e-10 * $4) { print "step", $1, ": loss", $2, "undisturbed", $4; bad = 1 }
        END { exit bad || NR != want }' || fail "$what: other losses than undisturbed, or other steps than $1 to $2"
}

searched() { has err '^auto: [0-9]* plans for '; }
taken() { has err "^auto: the words of $1/plan: .*micro=2"; lacks err "^auto: [0-9]* plans for "; }

run 0 plan $words --ranks 2 --machine "$quick"
has out '^  chosen   (replicas alone'
run 0 train $words $rest --steps 16
cp out whole

tested=
for mpi in openmpi mpich; do
    mpi_has $mpi || { echo "$mpi: not in this build"; continue; }
    [ -z "$tested" ] || continue # files and words are no affair of the MPI
    tested=$mpi
    echo "== chosen, and kept"
    trains 2 4 "$slow" --checkpoint kept
    searched
    has err '^  chosen   stages=2 schedule=[a-z0-9_]* micro=2 '
    compare 1 4
    has kept/step-00000004/plan '^chosen_for=time$'
    has kept/step-00000004/plan '^stages=2$'
    has kept/step-00000004/manifest ' plan$'

    echo "== taken again, although a search would choose others now"
    trains 2 8 "$quick" --checkpoint kept --resume yes
    taken kept/step-00000004
    has err 'of 2 stages'
    compare 5 8
    has kept/step-00000008/plan '^chosen_for=time$'
    has kept/step-00000008/plan '^micro=2$'
    trains 2 12 "$quick" --checkpoint kept --stages 2 --goal time # the same words, given
    taken kept/step-00000008
    compare 9 12
    grep -v '^#' kept/step-00000004/plan | sort > a
    grep -v '^#' kept/step-00000012/plan | sort > b
    cmp a b || fail "words changed on the way: $(diff a b)"

    echo "== not taken"
    for case in 'micro=1 is given, but there it is micro=2|--micro 1' 'schedule=1f1b is given, but there|--schedule 1f1b' \
        'goal=memory is given, but there it is goal=time|--goal memory'; do
        rm -rf copy
        cp -r kept copy
        trains 2 14 "$quick" --checkpoint copy ${case#*|}
        has err "^auto: the words of copy/step-00000012/plan are not taken: ${case%|*}"
        searched
        compare 13 14
    done
    rm -rf copy
    cp -r kept copy
    trains 2 14 "nodes=1 ranks=2 cores=2 memory=600KiB inside=2us,8GB/s" --checkpoint copy
    has err '^auto: the words of copy/step-00000012/plan: .*; they are not taken: they do not fit'
    searched
    compare 13 14
    rm -rf copy
    cp -r kept copy
    trains 2 14 "$quick" --checkpoint copy --goal given
    lacks err '^auto: '
    compare 13 14
    trains 2 2 "$quick" --checkpoint fresh --resume no
    lacks err 'the words of'
    searched

    echo "== on other ranks"
    rm -rf copy
    cp -r kept copy
    trains 4 14 "nodes=1 ranks=4 cores=4 memory=1GiB inside=2us,8GB/s" --checkpoint copy
    has err '^auto: the words of copy/step-00000012/plan are not taken: it was made on 2 ranks, now there are 4$'
    has err '^auto: [0-9]* plans for 4 ranks'
    compare 13 14
    run 0 train $words $rest --steps 16 --checkpoint copy # one rank has nothing to choose
    lacks err '^auto: '
    compare 15 16

    echo "== what is learned must agree still"
    rm -rf copy
    cp -r kept copy
    train 2 14 "$quick" --checkpoint copy --seed 7
    [ $code != 0 ] || fail "$what: another seed"
    has err 'was trained with seed=1'
    words_before=$words words=$(echo "$words" | sed 's/--batch 12/--batch 24/')
    train 2 14 "$quick" --checkpoint copy
    words=$words_before
    [ $code != 0 ] || fail "$what: another batch"
    has err 'was trained with batch=12, but this is 24'

    echo "== an old checkpoint, without words"
    rm -rf copy
    mkdir copy
    cp -r kept/step-00000012 copy
    old=copy/step-00000012/manifest
    rm copy/step-00000012/plan
    grep -v ' plan$\|^end ' $old > text
    cp text $old
    gzip -c text | tail -c 8 | od -An -t x4 -N 4 | sed 's/^ */end /' >> $old
    trains 2 16 "$quick" --checkpoint copy --resume yes
    searched
    lacks err 'the words of'
    compare 13 16

    echo "== damaged words: as any other file of a checkpoint"
    rm -rf copy
    cp -r kept copy
    sed 's/^stages=2/stages=3/' kept/step-00000012/plan > copy/step-00000012/plan
    trains 2 12 "$quick" --checkpoint copy
    has err 'step-00000012/plan is damaged.*the next older checkpoint is tried'
    taken copy/step-00000008
    compare 9 12
done
[ -n "$tested" ] || exit 77
finish
