#!/bin/sh
# `megalith run` and -np: what they make of a request, by --dry-run, with launchers that are only
# names; and real ones, if there are any. Arguments: source folder, build folder.
set -u
build=$2
megalith=$build/megalith
. "$1/tests/mpirun.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/megalith-launch.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work" || exit 1
unset SLURM_JOB_ID MEGALITH_MPI
failures=0

fail()
{
    failures=$((failures + 1))
    echo "FAILED: $*"
    sed 's/^/    out: /;6q' out
    sed 's/^/    err: /;6q' err
}

# run CODE WORDS..: the exit code must be CODE.
run()
{
    want=$1
    shift
    what="megalith $*"
    PATH="${path:-$PATH}" "$megalith" "$@" > out 2> err
    code=$?
    [ $code = "$want" ] || fail "$what: exit code $code, not $want"
}

# line WANTED: that is the command line.
line() { [ "$(cat out)" = "$1" ] || fail "$what: expected $1"; }
says() { grep -q -e "$1" err || fail "$what: does not say '$1'"; }

# Launchers that only have a name and a version.
launcher() # FOLDER NAME VERSION
{
    mkdir -p "$1"
    printf '#!/bin/sh\necho "%s"\n' "$3" > "$1/$2"
    chmod +x "$1/$2"
}
launcher debian mpirun.openmpi 'mpirun (OpenRTE) 4.1.4'
launcher debian mpirun.mpich 'HYDRA build details:'
launcher five mpirun 'mpirun (Open MPI) 5.0.3'
launcher hydra mpirun 'HYDRA build details:'
launcher slurm srun 'slurm 22.05'
printf 'one slots=4\n# two\nthree:4   # the third\none\n' > hosts
root=
[ "$(id -u)" = 0 ] && root=' --allow-run-as-root'
yield=
[ "$(nproc)" -lt 4 ] && yield=' --mca mpi_yield_when_idle 1'
over=
[ "$(nproc)" -lt 8 ] && over=' --overcommit'
self=$(readlink -f "$megalith")

echo "== command lines"
path=$work/debian
unset OMP_NUM_THREADS LD_LIBRARY_PATH PYTHONPATH VIRTUAL_ENV CONDA_PREFIX MEGALITH_PYTHON
for name in $(env | sed -n 's/^\(OMP_[A-Z_]*\|GOMP_[A-Z_]*\|KMP_[A-Z_]*\|DNNL_[A-Z_]*\|MEGALITH_[A-Z_]*\)=.*/\1/p'); do
    unset "$name"
done
run 0 run -np 8 -npernode 4 -m hosts --mpi openmpi --dry-run train cnn --data 'a b'
line "mpirun.openmpi --quiet$root --hostfile $work/hosts -n 8 --map-by ppr:4:node:OVERSUBSCRIBE --bind-to none$yield $self train cnn --data 'a b'"
OMP_NUM_THREADS=3 run 0 run -np 8 -npernode 4 -m hosts --mpi openmpi --dry-run ./program -x "it's"
line "mpirun.openmpi --quiet$root --hostfile $work/hosts -n 8 --map-by ppr:4:node:OVERSUBSCRIBE --bind-to none$yield -x OMP_NUM_THREADS ./program -x 'it'\\''s'"
run 0 run --np=8 --npernode=4 --m hosts --mpi mpich --dry-run bench cnn
line "mpirun.mpich -f $work/hosts -n 8 -ppn 4 $self bench cnn"
path=$work/hydra:/usr/nowhere
export MEGALITH_MEMORY=2GiB
run 1 run -np 9999 --mpi mpich ./program
says 'takes 234.35 GiB for the processes alone, but it has 2.00 GiB: use -np 85 or less, or name hosts'
run 1 train cnn -np 9999
says '9999 on one machine takes'
run 0 run -np 9999 --mpi mpich --dry-run ./program
run 0 run -np 9999 -m hosts --mpi mpich --dry-run ./program
unset MEGALITH_MEMORY
run 0 run -np 8 --mpi mpich --dry-run ./program
line "mpirun -n 8 ./program"
run 1 run -np 8 --mpi openmpi --dry-run ./program
says 'no launcher of openmpi here.*Debian: openmpi-bin'
path=$work/five:/usr/nowhere
run 0 run -np 2 --mpi openmpi --dry-run ./program
grep -q "^mpirun --quiet$root -n 2 --map-by slot:OVERSUBSCRIBE --bind-to none.* ./program" out ||
    fail "$what: Open MPI 5"
path=$work/slurm:$work/debian
SLURM_JOB_ID=7 run 0 run -np 8 -npernode 4 --mpi openmpi --dry-run ./program
grep -q '^srun --mpi=pmix --ntasks=8 --ntasks-per-node=4 .*--cpu-bind=none --kill-on-bad-exit=1 ./program$' \
    out || fail "$what: srun"
SLURM_JOB_ID=7 run 0 run -np 8 -m hosts --mpi mpich --dry-run ./program
line "srun --mpi=pmi2 --ntasks=8 --nodelist=$work/hosts$over --cpu-bind=none --kill-on-bad-exit=1 ./program"
path=/usr/nowhere
run 1 run -np 8 ./program
says 'no launcher of any MPI.*openmpi-bin for mpirun.openmpi, mpich for mpirun.mpich'
run 1 train cnn -np 2
says 'no launcher of any MPI'
path=

echo "== scripts run by the active environment's Python"
run 0 run -np 1 --dry-run train.py --epochs 3
line "python3 train.py --epochs 3"
VIRTUAL_ENV=/some/venv run 0 run -np 1 --dry-run ./train.py
line "/some/venv/bin/python ./train.py"
CONDA_PREFIX=/some/conda run 0 run -np 1 --dry-run train.py
line "/some/conda/bin/python train.py"
VIRTUAL_ENV=/some/venv MEGALITH_PYTHON=/own/python run 0 run -np 1 --dry-run train.py
line "/own/python train.py"

echo "== one rank needs no launcher"
run 0 run -np 1 --dry-run bench cnn
line "$self bench cnn"
run 7 run -np 1 sh -c 'exit 7'
run 0 run -np 1 version
grep -q '^megalith [0-9]' out || fail "$what"
run 0 plan cnn --ranks 2 --prices builtin
grep -q 'needs most\|all ranks need' out || fail "$what: no table"
[ "$(grep -c '^ *[01]  *[01]  *0 ' out)" = 2 ] || fail "$what: not two ranks"
run 0 plan cnn --ranks 3 --stages 3 --prices builtin --json
grep -q '"ranks": 3' out || fail "$what"
run 0 explain cnn --ranks 3 --stages 3 --rank 1
grep -q 'send\|recv' out || fail "$what: a stage in the middle sends nothing"
! grep -q 'conv1' out || fail "$what: it has the first stage's"
run 1 explain cnn --ranks 3 --stages 3 --rank 3
says 'rank=3 of ranks=3: use 0..2'

echo "== wrong requests"
run 2 run
says 'usage: megalith run -np N'
run 2 run -np 2
run 1 run ./program
says 'np'
run 1 run -np 0 ./program
says 'np=0'
run 1 run -np 2 --mpi lam ./program
says 'known: openmpi mpich'
run 1 run -np 2 run
run 1 train cnn -np some
says 'np=some is not a whole number'
OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 run 1 train cnn -np 2
says 'a launcher has started this process already'
path=$work/debian
run 1 run -np 8 -npernode 4 --mpi openmpi ./program
says 'needs 2 hosts, but no machinefile'
run 1 run -np 9 -npernode 4 -m hosts --mpi openmpi ./program
says 'needs 3 hosts, but .*hosts names 2'
run 1 run -np 2 -m missing --mpi openmpi ./program
says 'machinefile missing: No such file'
printf '# nobody\n' > empty
run 1 run -np 2 -m empty --mpi mpich ./program
says 'names no host'

echo "== hosts that do not answer"
printf '#!/bin/sh\nfor word; do [ "$word" = away ] && exit 255; done\nexit 0\n' > debian/ssh
chmod +x debian/ssh
printf 'localhost\nhere\naway\n' > lost
run 1 run -np 3 -m lost --mpi openmpi ./program
says 'host away of .*lost does not answer'
[ "$(wc -l < err)" = 1 ] || fail "$what: more than one line"
grep -v away lost > found
OMP_NUM_THREADS=1 run 0 run -np 3 -m found --mpi openmpi ./program
says 'megalith runs mpirun.openmpi .*--hostfile'
run 1 run -np 2 --mpi openmpi ./nowhere
says "^megalith: there is no program './nowhere'"

echo "== a launcher that is stopped"
# Whatever it ends with itself, scripts want to see that it was stopped.
for code in 0 1; do
    printf '#!/bin/sh\ntrap "exit %s" TERM\necho ready\nwhile :; do /bin/sleep 0.1; done\n' $code \
        > debian/mpirun.openmpi
    : > out
    what="SIGTERM to -np, whose launcher ends with $code"
    PATH=$work/debian "$megalith" run -np 2 --mpi openmpi "$self" version > out 2> err &
    child=$!
    waited=0
    until grep -q ready out || [ $waited -ge 100 ]; do
        sleep 0.1
        waited=$((waited + 1))
    done
    kill $child
    wait $child
    code=$?
    [ $code = 130 ] || fail "$what: exit code $code, not 130"
done
path=

echo "== real launchers"
for mpi in openmpi mpich; do
    mpi_has $mpi || { echo "   ($mpi: not here)"; continue; }
    # Not both at once: MPICH's mpirun would write to ranks that have ended, and end by a signal.
    run 3 run -np 2 --mpi $mpi sh -c \
        'test "${PMI_RANK:-$OMPI_COMM_WORLD_RANK}" = 0 || sleep 0.3; exit 3'
    run 0 run -np 3 --mpi $mpi sh -c 'echo rank'
    [ "$(grep -c '^rank$' out)" = 3 ] || fail "$what: not three ranks"
    run 0 run -np 2 --mpi $mpi version
    [ "$(wc -l < out)" = 1 ] || fail "$what: results of more than one rank"
    MEGALITH_MPI=$mpi run 0 plan cnn --json
    printf 'nowhere.invalid\n' > nowhere
    if command -v ssh > /dev/null; then
        run 1 run -np 2 -m nowhere --mpi $mpi sh -c 'exit 0'
        says 'host nowhere.invalid of .*nowhere does not answer'
    fi
done
[ $failures = 0 ] && echo "all passed"
[ $failures = 0 ]
