# Sourced by tests that run inside network.sh: starts programs on its hosts, one rank on each.
#
#     hosts_run openmpi 4 60 program words ..    on h0 .. h3; ended after 60 s (then it returns 124)
#
# Needs $source, and $folder with the list of machines. The launcher runs on h0, as a user's would.
# No MPI may find a faster way than the links: that all hosts are one machine is our secret.
hosts_agent=$source/tests/hosts/agent.sh

hosts_on() # host, words: quoted once more, since the agent gives them to a shell as ssh does
{
    hosts_line=
    hosts_host=$1
    shift
    for word in "$@"; do
        hosts_line="$hosts_line '$word'"
    done
    "$hosts_agent" "$hosts_host" "$hosts_line < /dev/null" # MPICH 4.0.2 may hang on other input
}

hosts_run()
{
    hosts_mpi=$1 hosts_ranks=$2 hosts_limit=$3
    shift 3
    case $hosts_mpi in
    openmpi)
        set -- --allow-run-as-root --oversubscribe --bind-to none --map-by ppr:1:node \
            --mca mpi_yield_when_idle 1 --mca pml ob1 --mca btl tcp,self \
            --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 \
            --mca plm_rsh_agent "$hosts_agent" "$@" ;;
    mpich)
        set -- -genv UCX_TLS tcp,self -genv UCX_NET_DEVICES eth0 -iface eth0 -ppn 1 \
            -launcher rsh -launcher-exec "$hosts_agent" "$@" ;;
    esac
    hosts_on h0 timeout --kill-after=10 "$hosts_limit" "mpirun.$hosts_mpi" \
        -machinefile "$folder/machines" -n "$hosts_ranks" "$@"
}
