# Sourced by tests that run inside network.sh: a SLURM cluster of its hosts, one slurmd on each.
#
#     slurm_up       starts it; returns 1 with the reason in $slurm_why
#
# Needs $source and $folder, and hosts/mpirun.sh read before. All daemons end with the network.
slurm_configuration()
{
    cat << END
ClusterName=hosts
SlurmctldHost=h0
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmctldPidFile=$folder/slurm/ctld.pid
SlurmdPidFile=$folder/slurm/slurmd.%n.pid
SlurmdSpoolDir=$folder/slurm/spool.%n
StateSaveLocation=$folder/slurm/state
SlurmctldLogFile=$folder/slurm/ctld.log
SlurmdLogFile=$folder/slurm/slurmd.%n.log
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
NodeName=h[0-3] CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
TmpFS=$folder/slurm/tmp.%n
END
}

# TmpFS is one folder for each node: srun --mpi=pmix makes folders there whose names name no host.
slurm_up()
{
    mkdir -p "$folder/slurm/state" /run/munge
    for i in 0 1 2 3; do
        mkdir -p "$folder/slurm/spool.h$i" "$folder/slurm/tmp.h$i"
    done
    export SLURM_CONF="$folder/slurm/slurm.conf"
    slurm_configuration > "$SLURM_CONF"

    mount -t tmpfs none /run/munge && chmod 755 /run/munge
    head -c 1024 /dev/urandom > /run/munge/key && chmod 600 /run/munge/key
    slurm_why="munged: $(munged --force --key-file=/run/munge/key --pid-file=/run/munge/pid \
        --log-file=/run/munge/log --seed-file=/run/munge/seed 2>&1)" || return 1
    slurm_why="slurmctld: $(hosts_on h0 slurmctld -c 2>&1)" || return 1
    for i in 0 1 2 3; do
        slurm_why="slurmd: $(hosts_on h$i slurmd -N h$i 2>&1)" || return 1
    done
    for second in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        slurm_why=$(hosts_on h0 sinfo -h -o '%T %D' 2>&1) || :
        [ "$slurm_why" != "idle 4" ] || return 0
        sleep 1
    done
    slurm_why="after 20 s its nodes are: $slurm_why"
    return 1
}
