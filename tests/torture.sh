#!/bin/sh
# Kills ranks of a training, over and over: ./do torture [ROUNDS [SEED]]
#
# Each round starts a training on four ranks that writes checkpoints all the time, and ends one of
# its ranks with kill -9: at a random moment, or (every other round) while a checkpoint is being
# written. Then must hold:
#
#     the job ends within 10 s, not with success, and says that a rank was killed
#     the newest checkpoint is sound, and training goes on from it, on one rank as well
#
# In the end the training, killed so many times, is brought to its end, and must have the weights of
# one that was never disturbed, to the bit. Rounds alternate between the MPIs that are here.
source=$1 build=$2 rounds=${3:-50} seed=${4:-$$}
case $rounds$seed in
*[!0-9]*) echo "torture: ROUNDS and SEED are numbers" >&2; exit 2 ;;
esac
program=$build/megalith
. "$source/tests/mpirun.sh"
mpis=
for name in openmpi mpich; do
    if mpi_has $name; then mpis="$mpis $name"; fi
done
[ -n "$mpis" ] || { echo "torture: no MPI here: skipped"; exit 77; }

work=$(mktemp -d)
token=$(basename "$work")
dir=$work/checkpoints
job=
trap 'if [ -n "$job" ]; then kill -9 $job $pids; fi 2> /dev/null; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

words="train cnn --options width=8 --device ref --threads 1 --no-test --data synthetic:count=64
    --batch 8 --norm 2 --optimizer adam --lr 0.001"
four="--replicas 2 --stages 2 --micro 2"
many=1000000 # steps: a job that is killed never gets there

fail() { echo "torture: round $round (seed $seed): $*" >&2; tail -n 60 "$work/log" >&2; exit 1; }
now() { date +%s%N; }
newest() { ls "$dir" 2> /dev/null | grep '^step-[0-9]*$' | sort | tail -n 1 | sed 's/step-0*//'; }

# A rank, and how long to wait, in two measures; the same for the same seed. While a checkpoint is
# written rank 0 is the one to be feared, so it is drawn every other time.
draw()
{
    awk -v s="$((seed * 1000 + round))" -v writing=$((round % 2 == 0)) 'BEGIN {
        srand(s)
        rank = int(4 * rand())
        if (writing && rand() < 0.4) rank = 0
        print rank + 1, 2.5 * rand(), 0.02 * rand() * (rand() < 0.5)
    }'
}

# The processes of this job's ranks, rank 0 first, once all four are there.
find_ranks()
{
    pids=
    for try in $(seq 300); do
        found=$(grep -lzx "MEGALITH_TORTURE=$token.$round" /proc/[0-9]*/environ 2> /dev/null)
        pids=
        for r in ${found:+0 1 2 3}; do
            pids="$pids $(grep -lzxE "(OMPI_COMM_WORLD_RANK|PMI_RANK)=$r" $found 2> /dev/null |
                sed 's|/proc/||; s|/environ||')"
        done
        [ "$(echo "$pids" | wc -w)" != 4 ] || return 0
        kill -0 "$job" 2> /dev/null || return 1
        sleep 0.1
    done
    return 1
}

# Until a checkpoint is being written.
wait_for_writing()
{
    for try in $(seq 3000); do
        set -- "$dir"/*.tmp
        [ ! -e "$1" ] || return 0
        kill -0 "$job" 2> /dev/null || return 1
        sleep 0.005
    done
    return 1
}

start_job() # MPI, further words
{
    mpi=$1
    shift
    MEGALITH_TORTURE=$token.$round "$program" run --mpi "$mpi" -np 4 $words $four "$@" \
        > "$work/log" 2>&1 &
    job=$!
}

# What was killed must be over soon, and say why.
check_end()
{
    begin=$(now)
    while kill -0 "$job" 2> /dev/null; do
        [ $((($(now) - begin) / 1000000)) -lt 10000 ] || fail "the job did not end within 10 s"
        sleep 0.05
    done
    spent=$((($(now) - begin) / 1000000))
    [ $spent -le "$slowest" ] || slowest=$spent
    wait "$job" && fail "the job ended with success, though a rank was killed"
    job=
    # Open MPI is quiet, so we tell it; MPICH tells it, though perhaps of a rank that the death of the
    # first one took along (UCX reads from its memory, and aborts).
    grep -qE 'megalith: a rank was ended by signal|BAD TERMINATION' "$work/log" ||
        fail "the job said nothing"
}

# A copy goes on on one rank: that changes the numbers a little.
check_newest()
{
    step=$(newest)
    [ -n "$step" ] || return 0
    rm -rf "$work/copy"
    cp -r "$dir" "$work/copy"
    "$program" $words --checkpoint "$work/copy" --resume yes --steps $((step + 2)) \
        > "$work/log" 2>&1 || fail "the checkpoint of step $step does not load"
    grep -q "goes on after step $step\$" "$work/log" || fail "not resumed from step $step"
    if grep -q warning "$work/log"; then fail "a checkpoint is damaged"; fi
}

slowest=0 during=0 round=0
while [ $round -lt "$rounds" ]; do
    round=$((round + 1))
    set -- $mpis
    [ $((round / 2 % 2)) = 0 ] || [ $# = 1 ] || shift
    start_job "$1" --checkpoint "$dir" --checkpoint-every 3 --steps $many
    find_ranks || fail "the job did not start"
    set -- $(draw)
    victim=$(echo $pids | cut -d ' ' -f "$1")
    if [ $((round % 2)) = 0 ]; then
        wait_for_writing || fail "no checkpoint is written"
        [ "$3" = 0 ] || sleep "$3"
    else
        sleep "$2"
    fi
    kill -9 "$victim"
    check_end
    set -- "$dir"/*.tmp
    [ ! -e "$1" ] || during=$((during + 1))
    check_newest
done

# To the end, and once more without any trouble.
last=$(($(newest) + 7))
set -- $mpis
start_job "$1" --checkpoint "$dir" --steps $last --save "$work/killed.safetensors"
wait "$job" || fail "the training could not be brought to its end"
start_job "$1" --steps $last --save "$work/whole.safetensors"
wait "$job" || fail "the undisturbed training failed"
job=
cmp "$work/killed.safetensors" "$work/whole.safetensors" || fail "other weights than undisturbed"
echo "torture: $rounds rounds, $last steps, $during kills within a checkpoint; slowest end" \
    "$slowest ms; weights as undisturbed, to the bit"
