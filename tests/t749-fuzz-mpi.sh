#!/bin/sh
# Twenty of the fuzzer's fixed cases (t741-fuzz) under mpirun, the MPIs in turns. Arguments: source
# folder, build folder.
set -eu
sh "$1/tests/fuzz-mpi.sh" "$1" "$2" 20 7000 turns
