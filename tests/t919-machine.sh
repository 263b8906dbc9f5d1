#!/bin/sh
# Machines described from the command line: files of the OSU Micro-Benchmarks, a file with a word replaced, and what is said
# of bytes where ranks have other kernels than this machine.
# Usage: t919-machine.sh SOURCE_DIR BUILD_DIR
set -u
. "$1/tests/command.sh"
words="cnn --width 2 --batch 8 --goal given --prices builtin"

# seconds MACHINE: of a step
seconds()
{
    run 0 plan $words --json --machine "$1"
    sed -n 's/.*"predicted_seconds_per_step": *\([0-9.e+-]*\).*/\1/p' out
}

cp "$source"/tests/golden/osu/*.txt .
run 0 osu latency.txt,bw.txt,mbw_mr.txt
has out '^1.05us,1024:3.08GB/s,4096:.*,4194304:11.8GB/s,all:12.4GB/s$'
link=$(cat out)
run 0 osu latency.txt --allreduce allreduce.txt --ranks 16
has out ' 1048576 *204.6[45] *[0-9.]* *[+-][0-9]* %  '
refuses 1 'no output of osu_latency is among' osu bw.txt
refuses 1 'belong together' osu latency.txt --ranks 4
refuses 1 'bw.txt is an output of osu_bw' osu latency.txt --allreduce bw.txt --ranks 4
refuses 1 'cannot open none.txt' osu none.txt
sed '5s/.*/x/' latency.txt > broken.txt
refuses 1 'broken.txt:5: a row has' osu broken.txt

# The file, its words and the link as words mean the same; paths are seen from the machine file.
mkdir elsewhere
mv cluster.txt latency*.txt bw.txt mbw_mr.txt elsewhere
by_file=$(seconds "file=elsewhere/cluster.txt nodes=2 ranks=2 inside=1us,8GB/s")
by_words=$(seconds "nodes=2 ranks=2 inside=1us,8GB/s between=$link")
[ -n "$by_file" ] && [ "$by_file" = "$by_words" ] || fail "by file $by_file s, by words $by_words s"
slower=$(seconds "nodes=2 ranks=2 inside=1us,8GB/s between=1ms,10MB/s")
awk -v a="$by_words" -v b="$slower" 'BEGIN { exit !(b > 2 * a) }' || fail "links do not matter: $by_words s, $slower s"
run 0 plan cnn --width 2 --batch 64 --goal given --prices builtin --machine elsewhere/cluster.txt
has out "rank 0 of 64: 64 replicas"
printf 'file=loop.txt' > loop.txt
refuses 1 'name one another' plan $words --machine loop.txt

# Bytes and seconds: whose they are, and with how many threads.
run 0 plan $words --machine "nodes=2"
has out 'bytes are exact where ranks compute with [a-z0-9]* and 1 thread$'
has out 'seconds are guesses: prices are round figures'
run 0 plan $words --machine "nodes=2 ranks=2 cores=6"
has out 'bytes are exact where ranks compute with [a-z0-9]* and 3 threads$'
run 0 plan $words --machine "nodes=2 ranks=2 cores=6" --threads 1
has out 'bytes are exact where ranks compute with [a-z0-9]* and 1 thread; a rank of the description has 3 cores$'
for threads in 1 3; do
    run 0 plan $words --machine "nodes=2 ranks=2 cores=$((2 * threads))" --json
    has out "\"threads\": $threads,"
    cp out by-cores
    run 0 plan $words --machine "nodes=2 ranks=2 cores=$((2 * threads))" --threads $threads --json
    cmp -s out by-cores || fail "$what: other figures than with as many cores"
done
{
    echo "megalith prices 1"
    echo "machine threads=2 ranks=1 isa=avx2"
    echo "rates flops=4.1e10 plain=1e9 bandwidth=9e9 launch=2e-06 step=5e-05"
} > book.txt
run 0 plan cnn --width 2 --batch 8 --goal given --prices book.txt --machine "nodes=2 ranks=2 cores=6"
has out "seconds are those of this machine's kernels with 2 threads; prices are those of one rank alone$"
run 0 plan cnn --width 2 --batch 8 --goal given --prices book.txt --machine "nodes=2 device=v100"
has out "seconds are those of this machine's kernels with 2 threads, not those of v100: give flops=$"
isa=$("$megalith" plan $words --json | sed -n 's/.*"kernels": *"\([^"]*\)".*/\1/p')
run 0 plan $words --machine "nodes=2 device=$isa flops=1T bandwidth=50GB/s"
has out "bytes are exact where ranks compute with $isa and 1 thread$"
has out 'seconds are those of flops=, bandwidth= and launch= of the description'
run 0 plan $words --machine "nodes=2 device=v100"
has out "bytes are those of this machine's kernels ($isa, [0-9]* threads*): with v100 they may differ"
run 0 plan $words --machine "nodes=2 flops=14T bandwidth=900GB/s"
has out "bytes are those of this machine's kernels ($isa, [0-9]* threads*): with the described machine"
run 0 plan $words
lacks out 'bytes are exact'

# Memory is that of the described machine, not of this one.
run 0 plan $words --machine "nodes=2 memory=100KiB"
has out '  rank [01] of the described machine has 100.00 KiB: [0-9]* bytes are missing'
run 0 plan $words --machine "nodes=2 memory=64GiB,32GiB"
has out '  the described machine holds it: rank 1, which has least to spare, has 32.00 GiB'
lacks out 'this machine has'

# Ranks beyond those that are described are said to be.
run 0 plan cnn --width 2 --batch 64 --goal given --prices builtin --ranks 64 --machine "nodes=2 ranks=4"
has out 'the described machine has 8 ranks on 2 nodes: 64 want 16 such nodes'
run 0 plan cnn --width 2 --batch 64 --goal given --prices builtin --ranks 8 --machine "nodes=2 ranks=4"
lacks out 'the described machine has 8 ranks'

# Where nothing fits: the plan that is nearest, what it lacks, and what would fit.
run 0 plan unet --width 8 --image 3x128x128 --batch 1 --prices builtin --machine "ranks=2 memory=4MiB"
has out '^  nearest  '
has out '  the nearest of [0-9]* plans for 2 ranks lacks [0-9]* bytes (.*): .*; it would fit on [0-9]* ranks (the described machine has 2): '
run 0 plan unet --width 8 --image 3x128x128 --batch 1 --prices builtin --machine "ranks=2 memory=8MiB" --recompute none --mesh 1
has out 'for 2 ranks lacks .*; it would fit '
finish
