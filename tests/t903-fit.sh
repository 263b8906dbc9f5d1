#!/bin/sh
# A plan says what it is for, and whether it fits this machine; where it does not, every command that it
# prints is run here, and must fit. MEGALITH_MEMORY stands for a small machine.
# Usage: t903-fit.sh SOURCE_DIR BUILD_DIR
set -u
. "$1/tests/command.sh"

# arenas: the bytes of each rank of the last plan, one a line
arenas()
{
    if grep -q 'arena (bytes)$' followed; then
        sed -n 's/^ *[0-9]*  *[0-9]*  *[0-9.,]*  *[0-9]*  *[0-9]*  *[0-9]*  *\([0-9]*\)  .*iB$/\1/p' followed
    else
        sed -n 's/.*predicted peak (arena) *\([0-9]*\) bytes.*/\1/p' followed
    fi
}

# follow LIMIT WORDS..: runs each line "fits: --word value ..   BYTES on each of M such machines"
follow()
{
    limit=$1
    shift
    grep '^  fits: ' out > lines || fail "$*: no advice"
    while read -r line; do
        words=$(echo "$line" | sed 's/^fits: \(.*\)   .*/\1/')
        machines=$(echo "$line" | sed -n 's/.* on each of \([0-9]*\) such machines.*/\1/p')
        "$megalith" plan "$@" $words --goal given > followed 2>&1 || { fail "plan $* $words: $(cat followed)"; continue; }
        arenas > bytes
        ranks=$(wc -l < bytes)
        each=$((ranks / ${machines:-1}))
        awk -v each=$each -v limit="$limit" '
            { sum += $1 } NR % each == 0 { if (sum > limit) bad = 1; sum = 0 } END { exit bad || NR == 0 }' bytes ||
            fail "plan $* $words: does not fit $limit bytes on ${machines:-1} machines: $(cat bytes)"
        ! grep -q 'are missing' followed || fail "plan $* $words: $(grep 'are missing' followed)"
    done < lines
}

# What a plan is for.
says 0 '^  input 1x28x28, 10 classes$' plan cnn
says 0 '^  input 3x32x32, 7 classes; data: synthetic:image=3x32x32 classes=7 count=50, 50 samples$' \
    plan cnn --data 'synthetic:image=3x32x32 classes=7 count=50'
says 0 '^  input 3x64x64, 2 classes at each of 4096 places$' plan unet --width 4 --image 3x64x64
says 0 '^  input 16 tokens, 100 classes at each of 16 places$' plan gpt --tokens 16 --classes 100 --width 16 --heads 2
says 0 '^  input 4x128x128x128, 4 targets$' plan cosmoflow --width 4 --batch 1
lacks out 'this machine has'

# A small machine: what fits really fits.
unet="unet --width 8 --image 3x128x128 --batch 1"
export MEGALITH_MEMORY=8MiB
says 0 'this machine has 8.00 MiB: [0-9]* bytes are missing' plan $unet --goal given
has out '^  fits: .*--stages'
has out '^  fits: .*--mesh'
lacks out '^  fits: .*--micro'
follow 8388608 $unet
export MEGALITH_MEMORY=4MiB
says 0 'this machine has 4.00 MiB: [0-9]* bytes are missing' plan cnn --batch 32 --goal given
has out '^  fits: --micro'
follow 4194304 cnn --batch 32
says 0 '"machine_bytes": 4194304, "machines": 0' plan cnn --batch 32 --json --goal given
export MEGALITH_MEMORY=20MiB
says 0 '"machines": 1' plan cnn --batch 32 --json
says 0 '2 machines like this one (20.00 MiB) hold these ranks' plan cnn --batch 64 --ranks 2 --threads 2
export MEGALITH_MEMORY=4MiB
says 1 'cnn needs [0-9]* bytes .*but this machine has 4.00 MiB for it: [0-9]* bytes are missing; what fits: micro=' \
    train cnn --batch 32 --data synthetic:count=64 --goal given
words=$(sed -n 's/.*what fits: \(micro=[^(]*\) (.*/\1/p' out | sed 's/\([a-z]*\)=\([^ ]*\)/--\1 \2/g')
says 0 '^trained cnn' train cnn --batch 32 --data synthetic:count=64 --steps 1 $words
if command -v mpirun > /dev/null; then
    export MEGALITH_MEMORY=10MiB
    says 1 '2 ranks on one machine need [0-9]* bytes .*but it has 10.00 MiB: [0-9]* bytes are missing; what fits: ' \
        train cnn -np 2 --batch 32 --data synthetic:count=64 --goal given
    has out 'the same words on 2 ranks on 2 such machines '
    has out 'micro=[0-9]* norm=[0-9]* on 2 ranks ([0-9.]* MiB in all;' # of both, not of each
    # Words that are not given are chosen such that it fits.
    export MEGALITH_MEMORY=12MiB ASAN_OPTIONS=detect_leaks=0 # of the MPI's own
    says 0 '^auto: .* for 2 ranks with 6.00 MiB of memory each' \
        train cnn -np 2 --batch 32 --data synthetic:count=64 --epochs 1
    has out '^  chosen '
    has out 'difference 0$'
fi
unset MEGALITH_MEMORY

# Nothing fits: the nearest of all plans, and what it lacks.
says 1 'bytes are missing; the nearest of [0-9]* plans for 2 ranks lacks [0-9]* bytes ([0-9.]* MiB): ' plan cnn --ranks 2 --budget 1MiB
# What would: more ranks, or what was forbidden.
says 1 'for 2 ranks lacks .*; it would fit on [0-9]* ranks: [a-z]*=' plan $unet --ranks 2 --budget 4MiB
ranks=$(sed -n 's/.*it would fit on \([0-9]*\) ranks.*/\1/p' out)
says 0 'predicted peak' plan $unet --ranks "$ranks" --budget 4MiB
export DNNL_MAX_CPU_ISA=AVX2 # wider vectors have wider blocks, and other bytes
says 1 'for 1 rank lacks .*; it would fit with .*recompute=segments' plan $unet --ranks 1 --recompute none --budget 8MiB
# The same is said where only another rank than the first that is planned is too large.
says 1 'lacks 525248 bytes (512.94 KiB): .*; it would fit on' \
    plan $unet --ranks 2 --stages 2 --schedule 1f1b --balance compute --budget 5MiB --threads 2

# One rank alone takes the words as they are, unless that needs too much: then blocks are run again, or micro-batches are made.
for ranks in "" "--ranks 1"; do
    run 0 plan $unet $ranks
    lacks out '^auto: '
    says 0 '^auto: [0-9]* plans for 1 rank with 8.00 MiB' plan $unet --budget 8MiB $ranks
    has out '^  chosen   .*recompute=segments'
    has out 'predicted peak'
    says 0 '^auto: [0-9]* plans for 1 rank' plan $unet --goal memory $ranks
done
says 1 'for 1 rank lacks .*; it would fit on [0-9]* ranks: ' plan $unet --budget 3MiB
export MEGALITH_MEMORY=8MiB
says 0 '^auto: [0-9]* plans for 1 rank with 8.00 MiB' \
    train $unet --data 'synthetic:image=3x128x128 labels=pixels classes=2 count=2' --steps 1
has out '^  chosen '
has out 'difference 0$'
unset MEGALITH_MEMORY DNNL_MAX_CPU_ISA

# A budget: the words of the refusal fit it.
says 1 'bytes are missing; what fits: ' plan $unet --budget 8MiB --goal given
sed 's/.*what fits: //; s/, or /\n/g' out | sed -n 's/^\([a-z].*\) on \([0-9]*\) ranks.*/\1 ranks=\2/p' |
    sed 's/\([a-z]*\)=\([^ ]*\)/--\1 \2/g' > lines
[ "$(wc -l < lines)" -ge 2 ] || fail "a budget: fewer than two ways"
grep -q -e '--stages' lines && grep -q -e '--mesh' lines || fail "a budget: $(cat lines)"
while read -r words; do
    says 0 'predicted peak' plan $unet --budget 8MiB $words
done < lines

finish
