#!/bin/sh
# Ctrl-C, SIGTERM, SIGHUP under -np when a step takes 5 s: nothing is lost. One rank of two is stopped
# for 5 s in the middle of a step (SIGSTOP, SIGCONT), so that the other waits for it; the signal comes
# meanwhile. Training must end in order, within two steps, with 130, its checkpoint and its weights; a
# second signal must end it at once and name the newest checkpoint. A signal that the launcher drops while
# it begins is not lost. Programs that are not ours get the signal itself. Arguments: source folder, build
# folder.
set -u
build=$2
megalith=$build/megalith
. "$1/tests/mpirun.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/megalith-interrupt.XXXXXX") || exit 1
job=
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work" || exit 1
unset SLURM_JOB_ID
failures=0

fail()
{
    failures=$((failures + 1))
    echo "FAILED: $*"
    sed 's/^/    out: /' out | tail -n 8
    sed 's/^/    err: /' err | tail -n 8
}

# await FILE TEXT: until it is there, or the job has ended.
await()
{
    waited=0
    until grep -q -e "$2" "$1" 2> /dev/null || [ $waited -ge 600 ] || ! kill -0 $job 2> /dev/null; do
        sleep 0.1
        waited=$((waited + 1))
    done
}

words="train cnn --options width=4 --threads 1 --no-test --data synthetic:count=64 --batch 8
    --epochs 1000000 --every 1"

# The processes of the job's ranks.
ranks() { grep -lzx "MEGALITH_TOKEN=$token" /proc/[0-9]*/environ 2> /dev/null | cut -d / -f 3; }
rank() # its number
{
    for pid in $(ranks); do
        grep -qzxE "(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1" "/proc/$pid/environ" 2> /dev/null &&
            [ "$(tr '\0' ' ' < "/proc/$pid/cmdline" | grep -c -- '--epochs')" = 1 ] && echo "$pid"
    done | tail -n 1
}

# begin MPI WORDS..: a job of two ranks in a process group of its own, as a terminal would have it, once
# it has done two steps.
begin()
{
    token=$(basename "$work").$1.$$.$(wc -c < out)
    its=$1
    shift
    : > err
    setsid env --default-signal=INT --default-signal=HUP MEGALITH_MPI=$its MEGALITH_TOKEN=$token \
        "$megalith" $words -np 2 "$@" > out 2> err &
    job=$!
    await err 'step 2/'
    slow=$(rank 1)
    [ -n "$slow" ] || fail "$what: no rank 1"
}

# A process that has ended, or is about to: 10 s are enough.
gone()
{
    for try in $(seq 100); do
        [ -n "$(ranks)" ] || return 0
        sleep 0.1
    done
    return 1
}

# in_order MPI SIGNAL TARGET: one signal during a step of 5 s. TARGET `-` is the process group.
in_order()
{
    what="$1: SIG$2 to ${3:+the group of }the command"
    rm -rf folder w.safetensors
    begin "$1" --checkpoint folder --save w.safetensors
    kill -STOP "$slow"
    kill -s "$2" -- "$3$job"
    sleep 5
    before=$(sed -n 's/.*step \([0-9]*\)\/.*/\1/p' err | tail -n 1)
    kill -CONT "$slow" 2> /dev/null
    wait $job
    code=$?
    [ $code = 130 ] || fail "$what: exit code $code, not 130"
    grep -q 'stopping after this step or the next; once more to end at once' err ||
        fail "$what: does not say what happens"
    grep -q 'interrupted after step [0-9]*; the weights are in w.safetensors' err ||
        fail "$what: does not say that it was interrupted"
    after=$(sed -n 's/.*interrupted after step \([0-9]*\);.*/\1/p' err)
    # The step that was shown last may be one or two behind the one that was being run.
    [ "${after:-999}" -le $((before + 3)) ] || fail "$what: step $before, ended after step $after"
    [ -s w.safetensors ] || fail "$what: no weights"
    [ -s "folder/step-$(printf %08d "${after:-0}")/manifest" ] || fail "$what: no checkpoint"
    gone || fail "$what: ranks are left"
}

# at_once MPI: a second signal during that step.
at_once()
{
    what="$1: a second signal"
    rm -rf folder
    begin "$1" --checkpoint folder --checkpoint-every 1
    kill -STOP "$slow"
    kill -TERM $job
    sleep 0.8
    begun=$(date +%s)
    kill -TERM $job
    wait $job
    code=$?
    [ $code = 143 ] || fail "$what: exit code $code, not 143"
    [ $(($(date +%s) - begun)) -le 8 ] || fail "$what: $(($(date +%s) - begun)) s"
    newest=$(ls folder | grep '^step-[0-9]*$' | sort | tail -n 1)
    grep -q "ended at once; the newest checkpoint is folder/$newest: " err ||
        fail "$what: does not name folder/$newest"
    gone || fail "$what: ranks are left"
}

# early MPI: while the launcher begins it drops SIGUSR1, as Open MPI's does in its first tenths of a second;
# here, so that it does not depend on the machine, for 1.5 s.
early()
{
    what="$1: a signal while the launcher begins"
    real=$(command -v "mpirun.$1")
    mkdir -p begins
    printf '#!/bin/sh\ntrap "" USR1\nsleep 1.5\ntrap - USR1\nexec %s "$@"\n' "$real" > "begins/mpirun.$1"
    chmod +x "begins/mpirun.$1"
    : > err
    PATH=$work/begins:$PATH MEGALITH_MPI=$1 "$megalith" $words -np 2 > out 2> err &
    job=$!
    sleep 0.7
    kill -TERM $job
    await err 'interrupted after step' # no rank may be ready, though: then the job has ended
    kill -0 $job 2> /dev/null && sleep 5
    kill -KILL $job 2> /dev/null # ranks end with it
    wait $job
    code=$?
    [ $code = 130 ] || fail "$what: exit code $code, not 130"
}

# Whatever the launcher makes of it, a foreign program is not sent what it may not know.
foreign()
{
    what="$1: SIGTERM to a program that is not ours"
    : > out
    "$megalith" run -np 2 --mpi "$1" sh -c 'trap "echo USR1" USR1; trap "echo TERM; exit 0" TERM
        echo ready; while :; do sleep 0.1; done' > out 2> err &
    job=$!
    await out ready
    sleep 0.3
    kill -TERM $job
    wait $job
    code=$?
    [ $code = 130 ] || fail "$what: exit code $code, not 130"
    grep -q TERM out || fail "$what: did not get it"
    ! grep -q USR1 out || fail "$what: got SIGUSR1"
}

echo "== one rank: the second signal does not wait for the end of a step of 20 s"
what="one rank, SIGINT twice"
: > err
env --default-signal=INT "$megalith" train cnn --width 64 --batch 128 --device ref --threads 1 \
    --no-test --data 'synthetic:image=3x64x64 count=128' > out 2> err &
job=$!
await out 'predicted step time'
ticks=0
while [ "$ticks" -lt "$((6 * $(getconf CLK_TCK)))" ] && kill -0 $job 2> /dev/null; do
    ticks=$(awk '{ print $14 + $15 }' /proc/$job/stat 2> /dev/null || echo 0)
    sleep 0.1 # after 6 s of work it is within its first step, of 20 s or, with sanitizers, of minutes
done
kill -INT $job
sleep 0.7
begun=$(date +%s)
kill -INT $job
wait $job
code=$?
[ $code = 130 ] || fail "$what: exit code $code, not 130"
[ $(($(date +%s) - begun)) -le 5 ] || fail "$what: $(($(date +%s) - begun)) s"
grep -q 'stopping after this step; once more' err || fail "$what: does not say what happens"
grep -q 'ended at once; there is no checkpoint (--checkpoint' err || fail "$what: no last words"

tested=
for mpi in openmpi mpich; do
    mpi_has $mpi || { echo "$mpi: not in this build"; continue; }
    tested="$tested $mpi"
    echo "== $mpi"
    case $mpi in
    openmpi) in_order $mpi INT - ;;
    mpich) in_order $mpi HUP '' ;;
    esac
    at_once $mpi
    [ $mpi = mpich ] || early $mpi
    foreign $mpi
    what="$mpi: whoever started it ignores SIGCHLD"
    MEGALITH_MPI=$mpi timeout -s KILL 60 env --ignore-signal=CHLD "$megalith" $words --steps 1 -np 2 > out 2> err ||
        fail "$what: exit code $?"
done
[ $failures = 0 ] && [ -z "$tested" ] && exit 77
[ $failures = 0 ] && echo "all passed:$tested"
[ $failures = 0 ]
