#!/bin/sh
# Unlike ranks: instruction sets, threads and Winograd's use differ between the ranks of a job, and the
# answer is one rank's (tests/unlike_plans.c), under every MPI of this build; so does the command, which
# says that ranks are unlike. Ranks with other data are refused. Arguments: source folder, build folder.
# MEGALITH_UNLIKE=all: every mix and plan (./do fuzz --unlike; some minutes).
set -u
build=$2
megalith=$build/megalith
program=$build/tests/unlike_plans
. "$1/tests/mpirun.sh"
[ -x "$program" ] || { echo "unlike_plans is not built: no cmocka"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/megalith-unlike.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work" || exit 1
unset SLURM_JOB_ID MEGALITH_MPI DNNL_MAX_CPU_ISA MEGALITH_WINOGRAD
failures=0

fail()
{
    failures=$((failures + 1))
    echo "FAILED: $*"
    sed 's/^/    /' out | tail -n 20
}

plans() # RANKS MIX
{
    mpi_run $mpi "$1" 600 "$program" "$2" ${MEGALITH_UNLIKE:-} > out 2>&1 || fail "$mpi: $2 on $1 ranks: exit code $?"
    sed -n '/ FAILED$/p' out
}

# Runs the rest of the line with one instruction set on rank 0, with another on the others.
cat > unlike << 'end'
#!/bin/sh
isa=$1
[ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}" = 0 ] || isa=$2
shift 2
DNNL_MAX_CPU_ISA=$isa exec "$@"
end
chmod +x unlike

losses() { sed -n 's/.*"step_loss": \([0-9][0-9.e+-]*\).*/\1/p' out; }

near() # FILE: the losses are those of the file, to 1e-4
{
    losses > mine
    paste "$1" mine | awk 'NF != 2 { bad = 1 } { d = $1 - $2; if (d * d > 1e-8 * $1 * $1) bad = 1 }
        END { exit bad || NR < 5 }'
}

# refuses PATTERN WORDS.. : WORDS.. : of rank 0 and of rank 1
refuses()
{
    pattern=$1
    shift
    mpi_run $mpi 1 60 "$megalith" "$@" > out 2>&1
    code=$?
    [ $code != 0 ] && [ $code != 124 ] || fail "$mpi: $*: exit code $code"
    [ "$(grep -c '^megalith: ' out)" = 1 ] && grep -q "^megalith: .*$pattern" out ||
        fail "$mpi: $*: no message '$pattern'"
}

npy() # TYPE SHAPE: the head of a NumPy file, 128 bytes
{
    printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '$1', 'fortran_order': False, 'shape': ($2), }"
}
{ npy '|u1' '16, 1, 28, 28'; seq 1 9000 | head -c 12544; } > x.npy
{ npy '|u1' '16, 1, 28, 28'; seq 2 9001 | head -c 12544; } > other.npy
{ npy '|u1' '16,'; printf '\001\002\003\004\005\006\007\000\001\002\003\004\005\006\007\000'; } > y.npy
{ npy '|u1' '16,'; printf '\001\002\003\004\005\006\007\000\001\002\003\004\005\006\007\001'; } > z.npy

unet="train unet --width 8 --batch 4 --lr 0.2 --threads 1 --no-test --steps 6 --every 1 --json --goal given"
small='train cnn --width 4 --batch 8 --steps 1'
pixels='synthetic:image=1x16x16 labels=pixels classes=3 count=24'
avx2=$(grep -c -m 1 '^flags.* avx2' /proc/cpuinfo)
"$megalith" $unet --data "$pixels" > out 2> err || fail "one rank: exit code $?"
losses > one.losses

tested=
for mpi in openmpi mpich; do
    mpi_has $mpi || { echo "$mpi: not here"; continue; }
    tested="$tested $mpi"
    if [ "${MEGALITH_UNLIKE:-}" = all ]; then
        for mix in $("$program" --mixes); do
            for ranks in 2 3 4; do plans $ranks $mix; done
        done
    elif [ $mpi = openmpi ]; then
        plans 2 avx-avx2
        plans 4 winograd
    else
        plans 2 everything
        plans 4 sse41-all
    fi

    for plan in '' '--mesh h2'; do
        what="$mpi: $unet $plan"
        mpi_run $mpi 2 60 ./unlike AVX AVX2 "$megalith" $unet $plan --data "$pixels" > out 2> err ||
            fail "$what: exit code $?"
        near one.losses || fail "$what: losses $(tr '\n' ' ' < mine), not $(tr '\n' ' ' < one.losses)"
        [ "$avx2" = 0 ] || grep -q '^megalith: warning: ranks are unlike: rank 0 would hold .* as ' err ||
            fail "$what: no warning"
        [ "$avx2" = 0 ] || grep -q 'ranks are unlike: [0-9]* weights are held in plain format' err ||
            fail "$what: not in the plan"
        bytes=$(sed -n 's/.*"final".*"predicted_peak_bytes": \([0-9]*\).*"measured_peak_bytes": \([0-9]*\).*/\1 \2/p' out)
        [ -n "$bytes" ] && [ "${bytes% *}" = "${bytes#* }" ] || fail "$what: bytes predicted, measured: $bytes"
    done

    refuses 'rank 1: .*sample 0 has other numbers here than on rank 0' $small --data synthetic:count=24 : \
        -n 1 "$megalith" $small --data 'synthetic:count=24 seed=5'
    [ "$tested" = " $mpi" ] || continue # what is compared, and how, is the same under all
    refuses 'rank 1: .*sample .* has other numbers here' $small --data 'npy:images=x.npy labels=y.npy' : \
        -n 1 "$megalith" $small --data 'npy:images=other.npy labels=y.npy'
    refuses 'rank 1: .*sample 15 has other labels here' $small --data 'npy:images=x.npy labels=y.npy' : \
        -n 1 "$megalith" $small --data 'npy:images=x.npy labels=z.npy'
    refuses 'rank 1: .*sample 0 has other numbers here' $small --data synthetic:count=24 --test synthetic:count=8 : \
        -n 1 "$megalith" $small --data synthetic:count=24 --test 'synthetic:count=8 seed=2'
    mkdir -p elsewhere && cp x.npy elsewhere/a.npy # under another name it is the same
    mpi_run $mpi 1 60 "$megalith" $small --data 'npy:images=x.npy labels=y.npy' : -n 1 "$megalith" $small \
        --data 'npy:images=elsewhere/a.npy labels=y.npy' > out 2>&1 || fail "$mpi: the same data by another name"
done
[ -n "$tested" ] || { echo "no MPI in this build"; exit 77; }
[ $failures = 0 ] && echo "all passed:$tested"
[ $failures = 0 ]
