#!/bin/sh
# Ranks of unlike memory, under each MPI: a wrapper gives each a limit of its own (MEGALITH_MEMORY). A plan whose large stage is on
# the rank with the large limit trains; the same plan with the limits the other way round is refused, with the rank and
# what it lacks; without a word, what fits is found. Arguments: source folder, build folder.
set -eu
build=$2
. "$1/tests/mpirun.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; cat "$work/out" "$work/err"; exit 1; }

cat > "$work/rank" <<'END'
#!/bin/sh
case ${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}} in
0) MEGALITH_MEMORY=$1 ;;
*) MEGALITH_MEMORY=$2 ;;
esac
export MEGALITH_MEMORY
shift 2
exec "$@"
END
chmod +x "$work/rank"

words="train cnn --options width=4 --device ref64 --threads 1 --no-test --data synthetic:count=32 --batch 8 --norm 4 --steps 2"
given="--goal given --stages 2 --micro 2"
"$build/megalith" plan cnn --options width=4 --device ref64 --threads 1 --batch 8 --norm 4 --ranks 2 $given > "$work/out" 2> "$work/err" ||
    fail "plan"
set -- $(sed -n 's/^ *[0-9]*  *[0-9]*  *[0-9.,]*  *[0-9]*  *[0-9]*  *[0-9]*  *\([0-9]*\)  .*iB$/\1/p' "$work/out")
[ $# -ge 2 ] || fail "no arenas of two ranks"
a=$1 b=$2
[ "$a" != "$b" ] || fail "both ranks need $a bytes"
echo "arenas: $a and $b bytes"
worst=0 less=$((a - b))
[ "$a" -gt "$b" ] || { worst=1 less=$((b - a)); }

tested=
for mpi in openmpi mpich; do
    mpi_has $mpi || { echo "$mpi: not in this build"; continue; }
    tested="$tested $mpi"
    mpi_run $mpi 2 60 "$work/rank" "$a" "$b" "$build/megalith" $words $given > "$work/out" 2> "$work/err" || fail "$mpi: to the byte"
    if mpi_run $mpi 2 60 "$work/rank" "$b" "$a" "$build/megalith" $words $given > "$work/out" 2> "$work/err"; then
        fail "$mpi: a rank has less than its arena"
    fi
    grep -q "rank $worst: .*: $less bytes are missing" "$work/err" || fail "$mpi: who lacks what"
    mpi_run $mpi 2 60 "$work/rank" "$a" "$b" "$build/megalith" $words > "$work/out" 2> "$work/err" || fail "$mpi: without a word"
done
[ -n "$tested" ] || exit 77
