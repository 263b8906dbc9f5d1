# Sourced by tests that run inside network.sh: what must hold on its hosts. Needs $build, $folder and
# `launch MPI RANKS program words ..`, which starts ranks, one on a host.
out=$folder/out
fail() { echo "FAILED: $*"; cat "$out"; exit 1; }

# watched SECONDS SIGN MPI RANKS program ..: output in $out, its errors beside. Returns what the launcher
# does, or 124 when time is up. SIGN is in the last line of a program that is through: if it does not
# end then, it hangs in MPI_Finalize, as any program does now and then under MPICH 4.0.2 on UCX over
# TCP (one rank waits for messages of others that already wait for the launcher). That is said.
watched()
{
    left=$(($1 * 5)) sign=$2 through=0
    shift 2
    (launch "$@") > "$out" 2> "$out.err" &
    job=$!
    while kill -0 $job 2> /dev/null; do
        sleep 0.2
        left=$((left - 1))
        ! grep -q "$sign" "$out" || through=$((through + 1))
        [ $left -gt 0 ] && [ $through -lt 25 ] && continue
        # Its ranks, too: in this space of process numbers there are no others.
        kill -9 $job $(pgrep -x megalith) 2> /dev/null || :
        wait $job 2> /dev/null || :
        [ $through = 0 ] && cat "$out.err" >> "$out" && return 124
        echo "$1: through, but hangs in MPI_Finalize: ended"
        return 0
    done
    wait $job && return 0
    status=$?
    cat "$out.err" >> "$out"
    return $status
}

check_allreduce() # MPI
{
    watched 60 MiB "$1" 4 "$build/megalith" allreduce --min 1MiB --max 1MiB --repeat 3 ||
        fail "$1: allreduce"
    cat "$out"
    grep -q '4 ranks on 4 nodes' "$out" || fail "$1: not four nodes"
    # 1.5 MiB must leave every host: at 1 Gbit/s that lasts 12.6 ms. Bursts of 256 KB are free.
    awk '/MiB/ { for (i = 3; i <= NF; i += 2) if ($i < 9000) exit 1 }' "$out" ||
        fail "$1: faster than the links: it found another way"
}

small="train resnet-cifar --depth 8 --batch 20 --micro 2 --norm 10 --steps 4 --device ref64 --threads 1
    --json --every 1"

# The losses of a run's steps.
losses() { sed -n 's/.*"step_loss": \([^,}]*\).*/\1/p' "$out"; }

one_rank() # whose losses the others are compared with
{
    "$build/megalith" $small --data 'synthetic:image=3x9x9 count=40' > "$out" 2>&1 || fail "one rank"
    losses > "$folder/one"
    [ "$(sort -u "$folder/one" | wc -l)" = 4 ] || fail "one rank: not 4 different losses"
}

check_losses() # MPI, ranks, words of the plan
{
    mpi=$1 ranks=$2
    shift 2
    watched 100 '"final"' $mpi $ranks "$build/megalith" $small \
        --data 'synthetic:image=3x9x9 count=40' "$@" || fail "$mpi, $*: status $?"
    losses | paste "$folder/one" - | awk -v what="$mpi, $*" '
        { d = ($1 - $2) / $1; if (d < 0) d = -d; if (NF < 2 || d > worst) worst = NF < 2 ? 1 : d }
        END { if (NR != 4) worst = 1
              printf "%s: losses differ from those of one rank by %.1e\n", what, worst
              exit worst > 1e-10 }' || fail "$mpi, $*: other losses"
}

# Seconds per step that the device waits for messages.
exposed() # MPI, words of the plan
{
    mpi=$1
    shift
    watched 200 exposed $mpi 4 "$build/megalith" bench resnet18 --image 3x96x96 --batch 128 \
        --norm 32 --threads 1 --warmup 1 --iterations 3 --repeat 1 --json "$@" ||
        fail "$mpi, $*: status $?"
    sed -n 's/.*"exposed_seconds_per_step": \([^,}]*\).*/\1/p' "$out" > "$folder/exposed"
    [ -s "$folder/exposed" ] || fail "$mpi: bench does not say what is exposed"
}

# 47 MB of gradients: 0.56 s on these links. In one bucket nothing hides them. A machine that is busy
# otherwise makes ranks wait for one another: three tries.
check_overlap() # MPI
{
    for try in 1 2 3; do
        exposed "$1" --bucket 1GiB
        without=$(cat "$folder/exposed")
        exposed "$1" --bucket 4MiB
        with=$(cat "$folder/exposed")
        echo "$1: exposed communication: $with s/step with overlap, $without s/step without"
        ! awk -v a="$with" -v b="$without" 'BEGIN { exit !(b > 0.5 && a <= b / 2) }' || return 0
    done
    fail "$1: overlap hides less than half"
}
