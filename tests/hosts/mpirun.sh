# Sourced by tests that run inside network.sh: starts programs on its hosts, one rank on each.
#
#     hosts_on h0 program words ..             on one host
#     hosts_mpirun openmpi 4 program words ..  ranks on h0 .. h3, started from h0, as a user would
#
# Needs $source, and $folder with the list of machines.
# No MPI may find a faster way than the links: that all hosts are one machine is our secret.
hosts_agent=$source/tests/hosts/agent.sh

# The words are quoted once more, since the agent gives them to a shell, as ssh does.
hosts_on()
{
    hosts_line= hosts_host=$1
    shift
    for word in "$@"; do
        hosts_line="$hosts_line '$word'"
    done
    exec "$hosts_agent" "$hosts_host" "exec $hosts_line < /dev/null"
}

hosts_mpirun()
{
    hosts_mpi=$1 hosts_ranks=$2
    shift 2
    case $hosts_mpi in
    openmpi)
        set -- --quiet --allow-run-as-root --oversubscribe --bind-to none --map-by ppr:1:node \
            --mca mpi_yield_when_idle 1 --mca pml ob1 --mca btl tcp,self \
            --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 \
            --mca plm_rsh_agent "$hosts_agent" "$@" ;;
    mpich)
        set -- -genv UCX_TLS tcp,self -genv UCX_NET_DEVICES eth0 -iface eth0 -ppn 1 \
            -launcher rsh -launcher-exec "$hosts_agent" "$@" ;;
    esac
    hosts_on h0 "mpirun.$hosts_mpi" -machinefile "$folder/machines" -n "$hosts_ranks" "$@"
}
