#!/bin/sh
# A SLURM cluster of four hosts, each with a link of 1 Gbit/s: srun starts ranks of both MPIs.
# Arguments: source folder, build folder. Skipped where hosts cannot be made or SLURM cannot start.
set -eu
source=$1 build=$2
. "$source/tests/mpirun.sh"

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
    sh "$source/tests/hosts/network.sh" 4 1gbit "$folder" sh "$0" "$1" "$2" "$folder"
    exit
fi

folder=$3
. "$source/tests/hosts/mpirun.sh"
. "$source/tests/hosts/slurm.sh"
out=$folder/out
fail() { echo "FAILED: $*"; cat "$out"; exit 1; }
slurm_up || { echo "no SLURM: $slurm_why"; tail -n 5 "$folder"/slurm/*.log; exit 77; }

# One rank on each node, over its link: as hosts_run does it for mpirun.
slurm_run()
{
    case $1 in
    openmpi) flavour=pmix ;;
    mpich) flavour=pmi2 ;;
    esac
    limit=$2
    shift 2
    hosts_on h0 env OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=eth0 \
        OMPI_MCA_mpi_yield_when_idle=1 UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 \
        timeout --kill-after=10 "$limit" srun --mpi=$flavour -N 4 -n 4 "$@"
}

tested=
for mpi in openmpi mpich; do
    mpi_has $mpi || { echo "$mpi: not in this build"; continue; }
    tested="$tested $mpi"
    slurm_run $mpi 60 "$build/megalith" allreduce --min 1MiB --max 1MiB --repeat 3 > "$out" 2>&1 ||
        fail "$mpi: allreduce"
    grep -q '4 ranks on 4 nodes' "$out" || fail "$mpi: not four nodes"
    cat "$out"
done
[ -n "$tested" ] || { echo "no MPI in this build"; exit 77; }
