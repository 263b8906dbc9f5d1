#!/bin/sh
# A SLURM cluster of four hosts, each with a link of 1 Gbit/s: srun starts ranks of both MPIs, which do
# all that hosts/training.sh asks of them, stop in order when asked to, and write one trace by one clock. HOSTS_MPI=mpich tests that one only.
# Arguments: source folder, build folder. Skipped where hosts cannot be made or SLURM cannot start.
set -eu
source=$1 build=$2
. "$source/tests/mpirun.sh"
. "$source/tests/read_trace.sh"

if [ "${3:-}" = "" ]; then
    for tool in slurmctld slurmd srun munged; do
        command -v $tool > /dev/null || {
            echo "no SLURM: $tool is missing (Debian: slurmctld, slurmd, slurm-client, munge)"
            exit 77
        }
    done
    [ "$(id -u)" = 0 ] || { echo "no SLURM: its daemons must be root"; exit 77; }
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    status=0
    sh "$source/tests/hosts/network.sh" 4 1gbit "$folder" sh "$0" "$1" "$2" "$folder" || status=$?
    exit $status
fi

folder=$3
. "$source/tests/hosts/mpirun.sh"
. "$source/tests/hosts/checks.sh"
. "$source/tests/hosts/slurm.sh"
slurm_up || { echo "no SLURM: $slurm_why"; tail -n 5 "$folder"/slurm/*.log; exit 77; }

# Over the links, as hosts_mpirun does it.
launch()
{
    case $1 in
    openmpi) flavour=pmix ;;
    mpich) flavour=pmi2 ;;
    esac
    ranks=$2
    shift 2
    hosts_on h0 env OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=eth0 \
        OMPI_MCA_mpi_yield_when_idle=1 UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 \
        srun --mpi=$flavour -N $ranks -n $ranks --overlap "$@"
}

# The processes of ranks, and the one that supervises srun: in this space of process numbers there are no
# others.
supervisor() { pgrep -f '^[^ ]*/megalith train .*-np 2'; }
ranks() { pgrep -f '^[^ ]*/megalith train' | grep -vx "$(supervisor)"; }

# A signal to `train -np 2` within an allocation, during a step of 5 s: one rank is stopped meanwhile. All
# end in order; after a second signal at once.
check_stop() # MPI, how many signals, exit code, what is said
{
    rm -rf "$folder/kept"
    : > "$out.err"
    hosts_on h0 env MEGALITH_MPI=$1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self \
        OMPI_MCA_btl_tcp_if_include=eth0 UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 \
        salloc --quiet -N 2 -n 2 "$build/megalith" train cnn --options width=4 -np 2 --threads 1 --no-test \
        --data synthetic:count=64 --batch 8 --epochs 1000000 --every 1 --checkpoint "$folder/kept" \
        > "$out" 2> "$out.err" &
    job=$!
    for try in $(seq 300); do
        ! grep -q 'step 10/' "$out.err" || break
        sleep 0.1
    done
    slow=$(ranks | tail -n 1)
    kill -STOP "$slow"
    for signal in $(seq "$2"); do
        kill -TERM "$(supervisor)"
        sleep 1
    done
    [ "$2" -gt 1 ] || sleep 4
    kill -CONT "$slow" 2> /dev/null || :
    status=0
    wait $job || status=$?
    cat "$out.err" >> "$out"
    [ $status = "$3" ] || fail "$1: $2 signals: exit code $status, not $3"
    grep "$4" "$out" || fail "$1: $2 signals: does not say '$4'"
    for try in $(seq 100); do
        [ -n "$(ranks)" ] || return 0
        sleep 0.1
    done
    fail "$1: $2 signals: ranks are left"
}

# A trace of hosts whose clocks differ by 5000 s: messages arrive after they were sent.
check_clocks() # MPI
{
    (launch $1 2 sh -c 'case ${PMIX_RANK:-$PMI_RANK} in
        0) exec "$@" ;;
        *) exec unshare --time --monotonic 5000 --fork "$@" ;;
        esac' sh "$build/megalith" train cnn --options width=2 --stages 2 --micro 2 --norm 2 --batch 8 \
        --threads 1 --no-test --data synthetic:count=64 --steps 3 --trace "$folder/trace.json" \
        > "$out" 2>&1) || fail "$1: a trace of two clocks: $?"
    messages "$folder/trace.json" || fail "$1: a trace of two clocks"
    events "$folder/trace.json" | awk '$3 < 0 || $4 > 60e6 { exit 1 }' || fail "$1: clocks are not compared"
}

tested=
one_rank
for mpi in ${HOSTS_MPI:-openmpi mpich}; do
    mpi_has $mpi || { echo "$mpi: not in this build"; continue; }
    tested="$tested $mpi"
    check_stop $mpi 1 130 "interrupted after step [0-9]*; its checkpoint is in $folder/kept"
    check_stop $mpi 2 143 "ended at once; the newest checkpoint is $folder/kept/step-"
    check_clocks $mpi
    check_allreduce $mpi
    check_losses $mpi 4 --replicas 4
    check_losses $mpi 3 --stages 3 --schedule 1f1b
    check_overlap $mpi
done
[ -n "$tested" ] || { echo "no MPI in this build"; exit 77; }
