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

# Bytes.
run 0 plan $words --machine "nodes=2"
has out 'bytes are exact where ranks compute with '
isa=$("$megalith" plan $words --json | sed -n 's/.*"kernels": *"\([^"]*\)".*/\1/p')
run 0 plan $words --machine "nodes=2 device=$isa flops=1T bandwidth=50GB/s"
has out "bytes are exact where ranks compute with $isa"
run 0 plan $words --machine "nodes=2 device=v100"
has out "bytes are those of this machine's kernels ($isa): with v100 they may differ"
run 0 plan $words --machine "nodes=2 flops=14T bandwidth=900GB/s"
has out "bytes are those of this machine's kernels ($isa): with the described machine"
run 0 plan $words
lacks out 'bytes are exact'

# Memory is that of the described machine, not of this one.
run 0 plan $words --machine "nodes=2 memory=100KiB"
has out '  rank [01] of the described machine has 100.00 KiB: [0-9]* bytes are missing'
run 0 plan $words --machine "nodes=2 memory=64GiB,32GiB"
has out '  the described machine holds it: rank 1, which has least to spare, has 32.00 GiB'
lacks out 'this machine has'
finish
