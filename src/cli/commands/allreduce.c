/* `megalith allreduce`, started by mpirun: every allreduce algorithm against the library's own, by
 * size. A time is the median over the repeats of the slowest rank's; the bandwidth is that of the
 * bus: 2 (n-1)/n of the bytes, what every rank at least must send, so that one number can be
 * compared over rank counts. Every result is checked.
 */
#include "cli/command.h"
#include "cli/report/measure.h"
#include "comm/allreduce/reduction.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

typedef struct settings {
    int64_t min, max, repeat;
} settings;

typedef struct job {
    const settings *o;
    meg_comm *comm;
    meg_topology *nodes;
    float *data;   /* (max / 4) */
    void *scratch; /* for any size and algorithm */
    double *all;   /* (ranks): seconds */
} job;

static meg_reduction_spec spec_of(const job *j, const meg_allreduce_kind *kind, int64_t count)
{
    return (meg_reduction_spec){
        .algorithm = kind,
        .ranks = meg_comm_size(j->comm),
        .groups = j->nodes,
        .data = {j->data, count, MEG_NUMBER_F32},
        .scratch = j->scratch,
    };
}

/* Small whole numbers: their sum is exact in any order. */
static void fill(const job *j, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        j->data[i] = (float)(meg_comm_rank(j->comm) + 1 + i % 17);
}

static meg_status check(const job *j, meg_error *e, const char *name, int64_t count)
{
    int n = meg_comm_size(j->comm);
    for (int64_t i = 0; i < count; i++) {
        float expected = (float)((int64_t)n * (n + 1) / 2 + n * (i % 17));
        MEG_CHECK(e, j->data[i] == expected, MEG_EDATA,
                  "%s: number %" PRId64 " of %" PRId64 " is %g, expected %g", name, i, count,
                  (double)j->data[i], (double)expected);
    }
    return MEG_OK;
}

/* One reduction; *seconds of the slowest rank. */
static meg_status once(job *j, meg_error *e, const meg_reduction_spec *s, double *seconds)
{
    fill(j, s->data.count);
    MEG_TRY(e, meg_comm_barrier(j->comm, e));
    double start = meg_clock();
    MEG_TRY(e, meg_reduction_run(j->comm, e, s));
    double mine = meg_clock() - start;
    meg_status wrong = check(j, e, s->algorithm->name, s->data.count);
    MEG_TRY(e, meg_comm_agree(j->comm, e));
    (void)wrong; /* told by the agreement */
    MEG_TRY(e, meg_comm_gather(j->comm, e, &mine, sizeof mine, j->all));
    *seconds = 0;
    for (int r = 0; r < s->ranks; r++)
        if (j->all[r] > *seconds) *seconds = j->all[r];
    return MEG_OK;
}

/* The first time does not count. */
static meg_status measure(job *j, meg_error *e, const meg_reduction_spec *s, double *median)
{
    meg_measure m = {0};
    meg_status status = MEG_OK;
    for (int64_t i = 0; i <= j->o->repeat && status == MEG_OK; i++) {
        double seconds = 0;
        status = once(j, e, s, &seconds);
        if (i > 0) meg_measure_add(&m, seconds);
    }
    *median = meg_measure_median(&m);
    meg_measure_free(&m);
    return status;
}

static meg_status print_table(job *j, meg_error *e)
{
    const bool speaks = meg_comm_rank(j->comm) == 0;
    const int n = meg_comm_size(j->comm);
    char bytes[32];
    if (speaks) {
        printf("%s, %d ranks on %d %s, sums of f32; us and GB/s of the bus\n",
               meg_comm_library(j->comm), n, meg_comm_nodes(j->comm),
               meg_comm_nodes(j->comm) == 1 ? "node" : "nodes");
        printf("%12s", "");
        for (int i = 0; meg_allreduce_at(i); i++)
            printf("  %18s", meg_allreduce_at(i)->name);
        putchar('\n');
    }
    for (int64_t size = j->o->min; size <= j->o->max; size *= 4) {
        meg_print_bytes(size, bytes);
        if (speaks) printf("%12s", bytes);
        for (int i = 0; meg_allreduce_at(i); i++) {
            meg_reduction_spec s = spec_of(j, meg_allreduce_at(i), size / 4);
            double seconds;
            MEG_TRY(e, measure(j, e, &s, &seconds));
            double bus = 2.0 * (n - 1) / n * (double)size / seconds;
            if (speaks) printf("  %10.1f %7.3f", 1e6 * seconds, 1e-9 * bus);
        }
        if (speaks) putchar('\n');
        fflush(stdout);
    }
    return MEG_OK;
}

static meg_status prepare(job *j, meg_error *e)
{
    int n = meg_comm_size(j->comm);
    j->nodes = meg_topology_new(n, meg_comm_node(j->comm));
    j->data = malloc((size_t)j->o->max);
    j->scratch = malloc(MEG_REDUCTION_WINDOW * MEG_REDUCTION_PIECE);
    j->all = malloc((size_t)n * sizeof *j->all);
    if (!j->data || !j->scratch || !j->all)
        meg_fail(e, MEG_ENOMEM, "no memory for %" PRId64 " bytes: use a smaller --max", j->o->max);
    return meg_comm_agree(j->comm, e);
}

static meg_status run(const meg_arguments *a, meg_error *e)
{
    job j = {.o = a->settings};
    MEG_CHECK(e, j.o->min <= j.o->max, MEG_EARG, "--min is above --max");
    MEG_TRY(e, meg_comm_open(e, &j.comm));
    meg_status status = prepare(&j, e);
    if (status == MEG_OK) status = print_table(&j, e);
    meg_topology_free(j.nodes);
    free(j.data);
    free(j.scratch);
    free(j.all);
    meg_comm_free(j.comm);
    return status;
}

#define AT(member) offsetof(settings, member)
static const meg_param PARAMS[] = {
    {"min", MEG_PARAM_BYTES, AT(min), "1KiB", "the smallest size; then times 4", NULL, 4, 1e12},
    {"max", MEG_PARAM_BYTES, AT(max), "64MiB", "the largest size", NULL, 4, 1e12},
    {"repeat", MEG_PARAM_INT, AT(repeat), "7", "times; the median is printed", NULL, 1, 1e6},
    {0},
};

const meg_command meg_command_allreduce = {
    .name = "allreduce",
    .usage = "[--min BYTES] [--max BYTES] [--repeat N]",
    .doc = "measures the allreduce algorithms against MPI's own, under mpirun",
    .more = "megalith allreduce -np 4\n",
    .takes = MEG_TAKES_RANKS,
    .params = PARAMS,
    .settings_bytes = sizeof(settings),
    .run = run,
};
