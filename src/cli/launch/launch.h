/* Launching: one command line for any MPI's launcher, or SLURM's. */
#ifndef MEG_CLI_LAUNCH_LAUNCH_H
#define MEG_CLI_LAUNCH_LAUNCH_H

#include "base/pool.h"
#include "cli/command.h"
#include "cli/launch/supervise.h"

typedef struct meg_launch {
    int64_t np;           /* ranks */
    int64_t per_node;     /* 0: as it comes */
    const char *machines; /* file with hosts; NULL: this one */
    const char *mpi;      /* "openmpi", "mpich"; "": one that is here */
    bool dry_run;         /* only prints the command line, on stdout */
    meg_care care;        /* what the program makes of signals */
} meg_launch;

/* Becomes the launcher: returns only on errors and after a dry run. `program`: with its
 * arguments, NULL at the end. One rank needs no launcher. */
meg_status meg_launch_run(meg_error *e, meg_pool *pool, const meg_launch *l, char *const program[]);

/* What a command of megalith makes of signals. */
meg_care meg_launch_care(const meg_arguments *a);

/* What would start ranks of this MPI here, "mpirun.openmpi" or "srun"; NULL: nothing. */
const char *meg_launch_program(const char *mpi);

meg_status meg_launch_ranks(meg_error *e, const char *text, int64_t *out); /* "4" */

/* The command line of this process without its -np. */
char **meg_launch_without_np(meg_pool *pool, char *argv[]);

/* This program itself. */
meg_status meg_launch_self(meg_error *e, meg_pool *pool, char **out);

/* Do all hosts of a machinefile answer? Collects their number; a host that does not is named. */
meg_status meg_hosts_count(meg_error *e, const char *path, int *count);
meg_status meg_hosts_check(meg_error *e, const char *path);

#endif
