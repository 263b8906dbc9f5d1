/* A sweep: see sweep.h. */
#include "plan/partition/sweep.h"

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- tables ---- */

/* Numbers the values 0, 1, ... as the flows bring them; of: (flows) the number. */
static int number_values(meg_sweep *x, meg_pool *pool, int *of)
{
    const meg_cut *c = x->c;
    int n = 0;
    x->value_first = meg_pool_alloc(pool, ((size_t)c->flows + 1) * sizeof *x->value_first);
    x->bytes = meg_pool_alloc(pool, ((size_t)c->flows + 1) * sizeof *x->bytes);
    for (int i = 0; i < c->flows; i++) {
        if (i > 0 && c->flow[i].value != c->flow[i - 1].value) x->value_first[++n] = i;
        of[i] = n;
        x->bytes[n] = c->flow[i].bytes;
    }
    if (c->flows) x->value_first[n + 1] = c->flows;
    return c->flows ? n + 1 : 0;
}

static void list_reads(meg_sweep *x, meg_pool *pool, const int *of)
{
    const meg_cut *c = x->c;
    int *fill = meg_pool_alloc(pool, (size_t)c->pieces * sizeof *fill);
    x->read_first = meg_pool_alloc(pool, ((size_t)c->pieces + 1) * sizeof *x->read_first);
    x->read = meg_pool_alloc(pool, (size_t)c->flows * sizeof *x->read);
    x->read_value = meg_pool_alloc(pool, (size_t)c->flows * sizeof *x->read_value);
    for (int i = 0; i < c->flows; i++)
        x->read_first[c->flow[i].to + 1]++;
    for (int i = 0; i < c->pieces; i++)
        x->read_first[i + 1] += x->read_first[i];
    for (int i = 0; i < c->flows; i++) {
        int to = c->flow[i].to, at = x->read_first[to] + fill[to]++;
        x->read[at] = i;
        x->read_value[at] = of[i];
    }
}

static void list_makes(meg_sweep *x, meg_pool *pool, int values)
{
    const meg_cut *c = x->c;
    int *fill = meg_pool_alloc(pool, (size_t)c->pieces * sizeof *fill);
    x->make_first = meg_pool_alloc(pool, ((size_t)c->pieces + 1) * sizeof *x->make_first);
    x->make = meg_pool_alloc(pool, (size_t)values * sizeof *x->make);
    for (int v = 0; v < values; v++)
        x->make_first[c->flow[x->value_first[v]].from + 1]++;
    for (int i = 0; i < c->pieces; i++)
        x->make_first[i + 1] += x->make_first[i];
    for (int v = 0; v < values; v++) {
        int from = c->flow[x->value_first[v]].from;
        x->make[x->make_first[from] + fill[from]++] = v;
    }
}

meg_sweep meg_sweep_new(meg_pool *pool, const meg_cut *c)
{
    meg_sweep x = {.c = c, .weighs = c->measure == MEG_MEASURE_MEMORY || c->limit};
    int *of = meg_pool_alloc(pool, (size_t)c->flows * sizeof *of);
    int values = number_values(&x, pool, of);
    list_reads(&x, pool, of);
    list_makes(&x, pool, values);
    x.arrived = meg_pool_alloc(pool, (size_t)values * sizeof *x.arrived);
    x.returned = meg_pool_alloc(pool, (size_t)values * sizeof *x.returned);
    x.inside = meg_pool_alloc(pool, (size_t)values * sizeof *x.inside);
    return x;
}

/* ---- the walk ---- */

void meg_sweep_begin(meg_sweep *x, int end)
{
    x->sweep++;
    x->end = end;
    x->received = x->inner = 0;
    x->frame = (meg_frame){0};
    x->now = (meg_footprint){0};
}

/* Made inside: it stays for readers inside, goes to those behind. */
static void add_made(meg_sweep *x, int v)
{
    const meg_flow *f = x->c->flow;
    int64_t stash = 0, sent = 0;
    for (int i = x->value_first[v]; i < x->value_first[v + 1]; i++) {
        if (f[i].to < x->end) stash = larger(stash, f[i].stash);
        else sent = larger(sent, f[i].sent);
    }
    x->frame.stays += stash;
    x->frame.sent += sent;
}

static void raise(int64_t *to, int64_t bytes, int64_t *sum)
{
    if (bytes > *to) *sum += bytes - *to;
    *to = larger(*to, bytes);
}

/* Received: what is kept of it, for the reader that needs most. */
static void add_read(meg_sweep *x, int v, const meg_flow *f)
{
    raise(&x->arrived[v], f->arrived, &x->frame.stays);
    raise(&x->returned[v], f->returned, &x->frame.returned);
}

/* It is received no longer. */
static void drop_read(meg_sweep *x, int v)
{
    x->received -= x->bytes[v];
    x->frame.stays -= x->arrived[v];
    x->frame.returned -= x->returned[v];
    x->arrived[v] = x->returned[v] = 0;
    x->inside[v] = 0;
}

/* The first piece is entered for good only when it is the first no longer. */
static void add_bytes(meg_sweep *x, int a)
{
    const meg_piece *p = &x->c->piece[a];
    int behind = a + 1 < x->end ? MEG_BEHIND : 0;
    if (behind) {
        int sides = MEG_BEFORE + (a + 2 < x->end ? MEG_BEHIND : 0);
        meg_frame_add(&x->frame, &p[1], sides);
        x->inner = larger(x->inner, p[1].temporary[sides]);
    }
    meg_frame all = x->frame;
    meg_frame_add(&all, p, behind);
    x->now = (meg_footprint){.held = x->now.held + p->held,
                             .summed = x->now.summed + p->summed,
                             .frame = meg_frame_bytes(&all),
                             .temporary = larger(x->inner, p->temporary[behind]),
                             .peak = meg_frame_peak(&all)};
}

void meg_sweep_add(meg_sweep *x, int a)
{
    for (int i = x->make_first[a]; i < x->make_first[a + 1]; i++) {
        int v = x->make[i];
        if (x->inside[v] == x->sweep) drop_read(x, v);
        if (x->weighs) add_made(x, v);
    }
    for (int i = x->read_first[a]; i < x->read_first[a + 1]; i++) {
        int v = x->read_value[i];
        if (x->inside[v] != x->sweep) {
            x->received += x->bytes[v];
            x->arrived[v] = x->returned[v] = 0;
            x->inside[v] = x->sweep;
        }
        if (x->weighs) add_read(x, v, &x->c->flow[x->read[i]]);
    }
    if (x->weighs) add_bytes(x, a);
}
