/* `megalith run -np N PROGRAM ...`: starts a program on many ranks, with the launcher that is here. */
#include "base/nearest.h"
#include "cli/command.h"
#include "cli/launch/launch.h"
#include "comm/comm.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    int64_t np, npernode;
    const char *m, *mpi;
    bool dry_run;
} settings;

/* What a command of megalith makes of signals. Its words are read here only for this: what is wrong
 * with them its ranks say. */
static meg_care care_of(const meg_arguments *a, const meg_command *c)
{
    meg_arguments its;
    meg_error ignored = {0};
    meg_care care = {0};
    if (meg_arguments_read(&its, &ignored, c, a->rest + 1) == MEG_OK) care = meg_launch_care(&its);
    if (care.checkpoint) care.checkpoint = meg_pool_text(a->pool, "%s", care.checkpoint);
    meg_arguments_free(&its);
    return care;
}

/* The Python that the package's own command runs in; that of the active environment, venv's or conda's; else the one that
 * the path has. */
static char *python_of(const meg_arguments *a)
{
    static const char *const homes[] = {"VIRTUAL_ENV", "CONDA_PREFIX"};
    const char *own = getenv("MEGALITH_PYTHON");
    if (own && *own) return meg_pool_text(a->pool, "%s", own);
    for (size_t i = 0; i < sizeof homes / sizeof *homes; i++) {
        const char *home = getenv(homes[i]);
        if (home && *home) return meg_pool_text(a->pool, "%s/bin/python", home);
    }
    return meg_pool_text(a->pool, "python3");
}

static bool is_script(const char *program)
{
    size_t length = strlen(program);
    return length > 3 && strcmp(program + length - 3, ".py") == 0;
}

/* The same arguments, with room for `first` in front of them. */
static char **put_first(const meg_arguments *a, char *first)
{
    size_t count = 0;
    while (a->rest[count])
        count++;
    char **out = meg_pool_alloc(a->pool, (count + 2) * sizeof *out);
    out[0] = first;
    memcpy(out + 1, a->rest, (count + 1) * sizeof *out);
    return out;
}

/* A command of megalith stands for megalith with this command, train.py for Python with this script, which the
 * package lets stop in order (python/megalith/interrupts.py). */
static meg_status program_of(const meg_arguments *a, meg_error *e, char ***out, meg_care *care)
{
    const meg_command *c = meg_command_find(a->rest[0]);
    bool script = is_script(a->rest[0]);
    *out = script ? put_first(a, python_of(a)) : a->rest;
    care->stops = script;
    if (!c) return MEG_OK;
    MEG_CHECK(e, !c->hands_on, MEG_EARG, "run: what should run run?");
    *care = care_of(a, c);
    *out = put_first(a, NULL);
    return meg_launch_self(e, a->pool, *out);
}

static meg_status run(const meg_arguments *a, meg_error *e)
{
    const settings *o = a->settings;
    char **program;
    meg_care care = {0};
    bool known = !*o->mpi;
    for (int i = 0; meg_comm_mpi(i); i++)
        known = known || strcmp(o->mpi, meg_comm_mpi(i)) == 0;
    if (!known) return meg_unknown(e, "run: unknown MPI", o->mpi, meg_comm_mpi);
    MEG_TRY(e, program_of(a, e, &program, &care));
    meg_launch l = {.np = o->np,
                    .per_node = o->npernode,
                    .machines = *o->m ? o->m : NULL,
                    .mpi = o->mpi,
                    .dry_run = o->dry_run,
                    .care = care};
    return meg_launch_run(e, a->pool, &l, program);
}

#define AT(field) offsetof(settings, field)

static const meg_param PARAMS[] = {
    {"np", MEG_PARAM_INT, AT(np), NULL, "ranks", NULL, 1, 1 << 20},
    {"npernode", MEG_PARAM_INT, AT(npernode), "0", "ranks on each host (0: as it comes)", NULL, 0,
     1 << 20},
    {"m", MEG_PARAM_STRING, AT(m), "", "machinefile: one host a line", NULL, 0, 0},
    {"mpi", MEG_PARAM_STRING, AT(mpi), "", "openmpi or mpich (the first that is here)", NULL, 0, 0},
    {"dry_run", MEG_PARAM_BOOL, AT(dry_run), "no", "prints the command line, runs nothing", NULL, 0,
     0},
    {0},
};

const meg_command meg_command_run = {
    .name = "run",
    .usage = "-np N [-npernode N] [-m MACHINEFILE] [--mpi M] [--dry-run] PROGRAM [ARGUMENT ...]",
    .doc = "starts a program on many ranks, with mpirun or srun",
    .more = "PROGRAM is a command of megalith (train, bench, ...), a script of Python (train.py), "
            "or a program\n"
            "that uses the library. A script runs by the active environment's Python.\n"
            "Inside a SLURM allocation srun starts it, else the mpirun of Open MPI or MPICH.\n",
    .hands_on = true,
    .params = PARAMS,
    .settings_bytes = sizeof(settings),
    .run = run,
};
