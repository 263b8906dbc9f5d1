/* Poison and delays: see poison.h. All bits set are a NaN in float and double, and -1 in the integers. */
#define _GNU_SOURCE
#include "device/poison.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const int poison = 0xFF;
static const double delay_max = 200e3; /* nanoseconds */

typedef struct delays {
    uint64_t every;
    _Atomic uint64_t launched; /* counted on the workers */
} delays;

void *meg_poison_open(meg_error *e, int every)
{
    delays *s = calloc(1, sizeof *s);
    if (!s) meg_fail(e, MEG_ENOMEM, "no memory for a checking device: %zu bytes", sizeof *s);
    else s->every = (uint64_t)every;
    return s;
}

void meg_poison_released(meg_device *d, void *memory, int64_t bytes)
{
    (void)d;
    memset(memory, poison, (size_t)bytes);
}

void meg_poison_before(meg_device *d)
{
    delays *s = meg_device_state(d);
    uint64_t number = atomic_fetch_add(&s->launched, 1);
    double share = meg_random_uniform((meg_stream){.name = meg_hash("check")}, number);
    if (number % s->every == 0)
        nanosleep(&(struct timespec){.tv_nsec = (long)(share * delay_max)}, NULL);
}

typedef struct span { /* the memory of an operand */
    const char *from, *to;
} span;

static span span_of(const meg_prepared *k, void *const at[MEG_OPERANDS], int operand)
{
    const char *from = at[operand];
    if (!from) return (span){NULL, NULL};
    return (span){from, from + meg_operand_bytes(&k->request, &k->spec, operand)};
}

/* Updated or in place: the operand is read too (running statistics), or lies on one that is. */
static bool on_read(const meg_prepared *k, void *const at[MEG_OPERANDS], span written)
{
    meg_mask reads = meg_request_reads(&k->request);
    for (int i = 0; i < MEG_OPERANDS; i++) {
        span read = span_of(k, at, i);
        if ((reads & MEG_BIT(i)) && read.from < written.to && written.from < read.to) return true;
    }
    return false;
}

/* A copy from a smaller box leaves the rest of Y as it was. */
static bool sets_all(const meg_request *r)
{
    return r->code != MEG_COPY || meg_box_holds(&r->box[MEG_X], &r->box[MEG_Y]);
}

/* The plain kernel's `run` waits in `own`. */
typedef struct inner {
    void (*run)(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m);
} inner;

static void run_poisoned(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    const inner *plain = k->own;
    meg_mask writes = meg_request_writes(&k->request) | MEG_BIT(MEG_SCRATCH);
    if (!sets_all(&k->request)) writes = 0;
    for (int i = 0; i < MEG_OPERANDS; i++) {
        span s = span_of(k, at, i);
        if ((writes & MEG_BIT(i)) && s.to > s.from && !on_read(k, at, s))
            memset(at[i], poison, (size_t)(s.to - s.from));
    }
    plain->run(k, at, m);
}

bool meg_poison_prepare(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    (void)s;
    meg_error again; /* false: the device asks plain C once more, and reports its error */
    if (meg_plain_prepare(d, &again, r, out) != MEG_OK) return false;
    inner *plain = malloc(sizeof *plain);
    if (!plain) return false;
    plain->run = out->run;
    out->run = run_poisoned;
    out->own = plain;
    out->free_own = free;
    return true;
}
