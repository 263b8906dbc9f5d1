#!/bin/sh
# `megalith probe`, and what plans make of its book: made once, read afterwards, the same seconds each time;
# a model's kernels; two ranks at once; files that are not there, or no books.
# Usage: t918-probe.sh SOURCE_DIR BUILD_DIR
set -u
. "$1/tests/command.sh"
unset MEGALITH_PRICES MEGALITH_CACHE
XDG_CACHE_HOME=$PWD/cache
export XDG_CACHE_HOME
words="--width 2 --batch 2 --threads 1"

# seconds: of the last plan
seconds()
{
    sed -n 's/.*"predicted_seconds_per_step": *\([0-9.e+-]*\).*/\1/p' out
}

# Bytes need no book: nobody is kept waiting.
"$megalith" explain cnn $words > out 2> err || fail "explain: $(cat err)"
grep -q probing err && fail "explain probes the machine"
[ -e cache ] && fail "explain leaves something in the cache"

# Nor do seconds of a machine whose rates are described.
"$megalith" plan cnn $words --machine "ranks=2 flops=1T bandwidth=100GB/s" > out 2> err || fail "plan flops=: $(cat err)"
grep -q probing err && fail "plan with flops= probes the machine"
[ -e cache ] && fail "plan with flops= leaves something in the cache"
grep -q 'seconds are those of flops=' out || fail "plan with flops=: $(cat out)"

# The first plan probes, and says so in one line; the next ones read what it has kept.
"$megalith" probe --threads 1 --seconds 0.2 > out 2> err || fail "probe: $(cat err)"
book=$(ls cache/megalith/prices-*-t1-r1.txt) || fail "no book in the cache"
[ "$(head -n 1 "$book")" = "megalith prices 1" ] || fail "the book begins with $(head -n 1 "$book")"
grep -q ' : conv fwd ' "$book" || fail "no model of convolutions"
grep -q '^disk \(read=[0-9.e+]* write=[0-9.e+]* how=\|unknown: \)' "$book" || fail "nothing of the disk"
[ "$(ls -A cache/megalith)" = "$(basename "$book")" ] || fail "left in the cache: $(ls -A cache/megalith)"
"$megalith" plan cnn $words --json > out 2> err || fail "plan: $(cat err)"
[ -s err ] && fail "plan with a book says: $(cat err)"
first=$(seconds)
"$megalith" plan cnn $words --json > out 2> err
[ -n "$first" ] && [ "$(seconds)" = "$first" ] || fail "a plan takes $first s, and $(seconds) s the next time"
"$megalith" plan cnn $words --json --prices builtin > out 2> err
[ "$(seconds)" = "$first" ] && fail "the built-in book has the same seconds as the measured one"

# A model's own kernels join the book.
"$megalith" probe cnn $words --seconds 0.2 > out 2> err || fail "probe cnn: $(cat err)"
grep -q '^price [0-9.e-]* flops=[0-9.e+]* bytes=[0-9.e+]* seen=[0-9.e+-]* : conv fwd .* work=2x' "$book" || fail "no price of cnn's convolutions"
grep -q '^model' "$book" || fail "the models are gone"

# A file of one's own; one that is missing; one that is no book.
"$megalith" plan cnn $words --prices none.txt > out 2> err && fail "a missing file is taken"
grep -q 'none.txt.*megalith probe --prices none.txt' err || fail "missing file: $(cat err)"
cp "$book" mine.txt
MEGALITH_PRICES=mine.txt "$megalith" plan cnn $words --json > out 2> err || fail "MEGALITH_PRICES: $(cat err)"
echo "price x : y" >> mine.txt
"$megalith" plan cnn $words --prices mine.txt > out 2> err && fail "nonsense is taken"
grep -q "mine.txt:$(wc -l < mine.txt): a price is" err || fail "nonsense: $(cat err)"
MEGALITH_PRICES=builtin "$megalith" probe --threads 1 > out 2> err && fail "probed, but to be kept nowhere"
grep -q 'name a file' err || fail "builtin: $(cat err)"

# Plans for ranks that are not here say whose prices they have.
"$megalith" plan cnn $words --ranks 2 > out 2> err || fail "plan --ranks 2: $(cat err)"
grep -q 'seconds are those .* 1 thread; prices and links are those of one rank alone (megalith probe -np 2 measures)$' out ||
    fail "plan --ranks 2: $(cat out)"

# Two ranks measure at once, and have a book of their own.
. "$source/tests/mpirun.sh"
if mpi_has openmpi; then
    mpi_run openmpi 2 100 "$megalith" probe cnn $words --seconds 0.2 > out 2> err || fail "two ranks: $(cat err)"
    book=$(ls cache/megalith/prices-*-t1-r2.txt) || fail "no book of two ranks"
    grep -q ' ranks=2 ' "$book" || fail "two ranks: $(sed -n 2p "$book")"
    grep -q '^price' "$book" || fail "two ranks: no prices"
    "$megalith" plan cnn $words --ranks 2 > out 2> err || fail "plan --ranks 2: $(cat err)"
    grep -q 'seconds are those .* 1 thread; prices and links are those of 2 ranks at once$' out || fail "plan --ranks 2: $(cat out)"
    [ -s err ] && fail "plan --ranks 2 with a book says: $(cat err)"
fi
finish
