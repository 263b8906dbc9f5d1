# Sourced by tests: runs a program under an MPI, with the flags that a test machine needs.
#
#     mpi_has openmpi                          is its plug-in in this build, and its launcher here?
#     mpi_run openmpi 4 60 program words..     on 4 ranks; ended after 60 s (then it returns 124)
#
# Needs $build, the build folder. Works as root; on fewer cores than ranks, where a rank that waits
# must give its core away; without pinning, since the tests of others run on the same cores.

# In a sanitizer build: leaks of the MPI libraries are not ours, and the plug-ins of two MPIs have the
# same name inside on purpose.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0:detect_odr_violation=0"

mpi_has()
{
    [ -f "$build/libmegalith_mpi_$1.so" ] && command -v "mpirun.$1" > /dev/null
}

mpi_run()
{
    mpi_name=$1 mpi_ranks=$2 mpi_limit=$3
    shift 3
    mpi_flags=
    if [ "$mpi_name" = openmpi ]; then
        mpi_flags="--allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 1"
    fi
    timeout --kill-after=10 "$mpi_limit" "mpirun.$mpi_name" $mpi_flags -n "$mpi_ranks" "$@"
}
