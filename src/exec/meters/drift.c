/* The reference loop: see drift.h. */
#include "exec/meters/drift.h"
#include "base/clock.h"
#include "exec/meters/median.h"
#include "exec/meters/panel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const double SAME = 0.08; /* of one pace; others differ by a quarter and more */

enum {
    PANELS = 1500,   /* of each thread, in a turn */
    LARGE = 1 << 19, /* floats of each of the triad's arrays: beyond a core's own cache */
    APART =
        1
        << 8, /* more of them lie between the arrays, which would be at the same places of the cache */
    PAGE = 1 << 21,    /* bytes of a large one */
    MESSAGE = 1 << 16, /* bytes */
    TAG = 0
};

struct meg_drift {
    meg_device *device;
    meg_comm *comm; /* NULL: alone */
    int threads, partner;
    bool first;   /* of a pair */
    float *triad; /* three arrays (LARGE) */
    char *message;
    double work;           /* seconds of computing so far */
    double *walls, *works; /* (looks) */
    size_t looks, wall_room, work_room;
};

/* Pairs of neighbours; the last of an odd number has none. */
static void find_partner(meg_drift *x)
{
    int ranks = x->comm ? meg_comm_size(x->comm) : 1, rank = x->comm ? meg_comm_rank(x->comm) : 0;
    x->partner = (rank ^ 1) < ranks ? rank ^ 1 : -1;
    x->first = rank % 2 == 0;
}

/* In large pages: in small ones it takes twice as long in one process as in another, as they happen to lie. */
static float *triad_memory(void)
{
    size_t bytes = (sizeof(float) * 3 * (LARGE + APART) + PAGE - 1) / PAGE * PAGE;
    float *memory = aligned_alloc(PAGE, bytes);
    if (!memory) return NULL;
    madvise(memory, bytes, MADV_HUGEPAGE); /* a wish */
    memset(memory, 0, bytes);
    return memory;
}

meg_status meg_drift_new(meg_device *d, meg_comm *c, meg_error *e, meg_drift **out)
{
    meg_drift *x = calloc(1, sizeof *x);
    MEG_CHECK(e, x, MEG_ENOMEM, "no memory for a reference loop");
    bool many = c && meg_comm_size(c) > 1;
    *x = (meg_drift){.device = d,
                     .comm = many ? c : NULL,
                     .threads = meg_device_threads(d),
                     .triad = triad_memory(),
                     .message = calloc(1, MESSAGE)};
    find_partner(x);
    if (x->triad && x->message) {
        *out = x;
        return MEG_OK;
    }
    meg_drift_free(x);
    return meg_fail(e, MEG_ENOMEM, "no memory for a reference loop");
}

void meg_drift_free(meg_drift *x)
{
    if (!x) return;
    free(x->triad);
    free(x->message);
    free(x->walls);
    free(x->works);
    free(x);
}

meg_comm *meg_drift_comm(const meg_drift *x)
{
    return x->comm;
}

bool meg_drift_same(double turn, double other)
{
    return fabs(other - turn) <= SAME * turn;
}

double meg_drift_calm(const meg_drift *x)
{
    size_t room = 0;
    double *work = meg_grow(NULL, &room, x->looks, sizeof *work);
    memcpy(work, x->works, x->looks * sizeof *work);
    qsort(work, x->looks, sizeof *work, meg_ascending);
    double calm = work[x->looks / 4];
    free(work);
    return calm;
}

meg_drift_time meg_drift_usual(const meg_drift *x, double turn)
{
    size_t room = 0, kept = 0;
    double *wall = meg_grow(NULL, &room, 2 * x->looks, sizeof *wall), *work = wall + x->looks;
    for (int all = 0; all < 2 && kept == 0; all++)
        for (size_t i = 0; i < x->looks; i++)
            if (all || meg_drift_same(turn, x->works[i]))
                wall[kept] = x->walls[i], work[kept++] = x->works[i];
    meg_drift_time usual = {meg_median(wall, kept), meg_median(work, kept)};
    free(wall);
    return usual;
}

static void keep(meg_drift *x, const meg_drift_time *t)
{
    x->walls = meg_grow(x->walls, &x->wall_room, x->looks + 1, sizeof *x->walls);
    x->works = meg_grow(x->works, &x->work_room, x->looks + 1, sizeof *x->works);
    x->walls[x->looks] = t->wall;
    x->works[x->looks++] = t->work;
}

static void multiply_add(void)
{
    meg_panel_memory p;
    meg_panel panel = meg_panel_best();
    meg_panel_fill(&p);
    for (int i = 0; i < PANELS; i++)
        panel.run(&p);
}

static void triad(const meg_drift *x)
{
    float *restrict z = x->triad;
    const float *restrict a = z + LARGE + APART, *restrict b = a + LARGE + APART;
#pragma omp parallel for num_threads(x->threads)
    for (int i = 0; i < LARGE; i++)
        z[i] = a[i] + 0.5f * b[i];
}

/* On the worker. The clock of its thread does not run while others have the core; of several threads there is
 * only the clock on the wall. */
static void compute(void *argument)
{
    meg_drift *x = argument;
    double (*clock)(void) = x->threads == 1 ? meg_clock_thread : meg_clock, begin = clock();
    for (int i = 0; i < MEG_DRIFT_BUNCH; i++) {
#pragma omp parallel num_threads(x->threads)
        multiply_add();
        triad(x);
    }
    x->work += clock() - begin;
}

static void warm(void *argument)
{
    triad(argument);
    triad(argument);
}

static meg_status one_way(const meg_drift *x, meg_error *e, bool sends)
{
    meg_letter *m = NULL;
    if (sends) MEG_TRY(e, meg_comm_send(x->comm, e, x->partner, TAG, x->message, MESSAGE, &m));
    else MEG_TRY(e, meg_comm_recv(x->comm, e, x->partner, TAG, x->message, MESSAGE, &m));
    return meg_comm_wait(x->comm, e, &m);
}

static meg_status bunch(meg_drift *x, meg_error *e)
{
    meg_device_call(x->device, compute, x);
    meg_device_wait(x->device);
    if (!x->comm || x->partner < 0) return MEG_OK;
    MEG_TRY(e, one_way(x, e, x->first));
    return one_way(x, e, !x->first);
}

meg_status meg_drift_look(meg_drift *x, meg_error *e, int bunches, meg_drift_time *out)
{
    meg_device_call(x->device, warm, x); /* what ran before has had the caches */
    meg_device_wait(x->device);
    x->work = 0;
    if (x->comm) MEG_TRY(e, meg_comm_barrier(x->comm, e));
    double begin = meg_clock();
    for (int i = 0; i < bunches; i++)
        MEG_TRY(e, bunch(x, e));
    if (x->comm) MEG_TRY(e, meg_comm_barrier(x->comm, e));
    double turns = (double)bunches * MEG_DRIFT_BUNCH;
    *out = (meg_drift_time){(meg_clock() - begin) / turns, x->work / turns};
    if (x->comm) MEG_TRY(e, meg_comm_share(x->comm, e, 0, out, sizeof *out));
    keep(x, out);
    return MEG_OK;
}
