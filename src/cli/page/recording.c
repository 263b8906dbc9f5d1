/* Recordings: see recording.h. Times are by the first rank's clock. */
#include "cli/page/recording.h"
#include "base/clock.h"
#include "cli/page/timeline.h"
#include "cli/report/kernel.h"
#include "cli/report/together.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEPS = 16,       /* that are kept, at most */
    EVENTS = 1 << 20, /* of a list, at most: then no more are taken */
    ROWS = 4000       /* of a step's width, the least that is told apart */
};

typedef struct kernel {
    const meg_prepared *is;
    double begin, end;
} kernel;

typedef struct message {
    meg_code code;
    const char *what;
    int who, micro;
    int64_t bytes;
    bool gradient;
    double posted, begin, end;
} message;

typedef struct step {
    int64_t number;
    double begin, end;
} step;

struct meg_recording {
    meg_trainer *trainer;
    meg_listeners others;
    meg_pool *pool; /* names */
    double ahead;   /* of the first rank's clock */
    int64_t first, last;
    atomic_bool on;
    bool heard;     /* it is told of kernels and messages */
    kernel *kernel; /* the worker's */
    size_t kernels, kernel_room;
    message *message; /* the training thread's */
    size_t messages, message_room;
    step step[STEPS];
    int steps;
};

/* ---- listening ---- */

static void hear_kernel(void *context, const meg_prepared *k, double start, double seconds)
{
    meg_recording *r = context;
    if (r->others.kernel) r->others.kernel(r->others.context, k, start, seconds);
    if (!atomic_load(&r->on) || r->kernels >= EVENTS) return;
    r->kernel = meg_grow(r->kernel, &r->kernel_room, r->kernels + 1, sizeof *r->kernel);
    r->kernel[r->kernels++] = (kernel){k, start, start + seconds};
}

static void hear_message(void *context, const meg_traffic_event *v)
{
    meg_recording *r = context;
    const meg_traffic_item *a = v->item;
    if (r->others.traffic) r->others.traffic(r->others.context, v);
    if (!a || !atomic_load(&r->on) || r->messages >= EVENTS) return;
    r->message = meg_grow(r->message, &r->message_room, r->messages + 1, sizeof *r->message);
    r->message[r->messages++] = (message){
        a->code,   a->what,  a->code == MEG_REDUCE ? a->reduce->ranks : a->peer,
        a->micro,  a->bytes, a->gradient,
        v->posted, v->begin, v->end};
}

meg_status meg_recording_begin(meg_trainer *t, meg_error *e, const meg_listeners *others,
                               meg_recording **out)
{
    meg_recording *r = calloc(1, sizeof *r);
    double ahead;
    if (!r) abort();
    meg_status status = meg_together_clock(t->ctx->comm, e, &ahead);
    if (status != MEG_OK) {
        free(r);
        return status;
    }
    *r = (meg_recording){.trainer = t, .ahead = ahead, .pool = meg_pool_new()};
    if (others) r->others = *others;
    atomic_init(&r->on, false);
    meg_device_observe(t->ctx->device, hear_kernel, r);
    meg_engine_observe(t->engine, hear_message, r);
    r->heard = true;
    *out = r;
    return MEG_OK;
}

void meg_recording_span(meg_recording *r, int64_t first, int64_t steps)
{
    r->first = first;
    r->last = first + (steps < STEPS ? steps : STEPS) - 1;
    atomic_store(&r->on, true);
}

/* Steps are told when they are done, or one later: what was heard of others is left out in the end. */
void meg_recording_step(meg_recording *r, const meg_progress *p)
{
    if (!atomic_load(&r->on)) return;
    if (p->step >= r->first && p->step <= r->last && r->steps < STEPS)
        r->step[r->steps++] = (step){p->step, p->begin, p->end};
    if (p->step >= r->last) atomic_store(&r->on, false);
}

/* ---- telling ---- */

static int by_seconds(const void *a, const void *b)
{
    const step *x = a, *y = b;
    double dx = x->end - x->begin, dy = y->end - y->begin;
    if (dx < dy || dx > dy) return dx < dy ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static int64_t middle_step(const meg_recording *r)
{
    step sorted[STEPS];
    if (r->steps == 0) return 0;
    memcpy(sorted, r->step, (size_t)r->steps * sizeof *sorted);
    qsort(sorted, (size_t)r->steps, sizeof *sorted, by_seconds);
    return sorted[(r->steps - 1) / 2].number;
}

static bool within(const step *s, double begin)
{
    return begin >= s->begin && begin < s->end;
}

static void add_kernels(const meg_recording *r, const step *s, meg_deeds *out)
{
    for (size_t i = 0; i < r->kernels; i++) {
        const kernel *k = &r->kernel[i];
        const meg_request *q = &k->is->request;
        if (!within(s, k->begin)) continue;
        const char *pass = meg_kernel_pass(q);
        const char *name = meg_pool_text(r->pool, "%s%s%s%s%s", meg_kernel_name(q),
                                         *pass ? " " : "", pass, q->node ? ": " : "",
                                         q->node ? q->node->name : "");
        meg_deeds_add(out, &(meg_deed){.kind = meg_deed_of(q->code, q->pass),
                                       .name = name,
                                       .begin = k->begin,
                                       .end = k->end,
                                       .micro = -1});
    }
}

static void add_messages(const meg_recording *r, const step *s, meg_deeds *out)
{
    static const char *const how[] = {"send", "receive", "sum"};
    static const char *const whom[] = {"to rank", "from rank", "over"};
    for (size_t i = 0; i < r->messages; i++) {
        const message *m = &r->message[i];
        if (!within(s, m->begin)) continue;
        int kind = (int)m->code - MEG_SEND;
        const char *name = meg_pool_text(r->pool, "%s %s%s %s %d%s", how[kind],
                                         m->gradient ? "gradient of " : "", m->what, whom[kind],
                                         m->who, m->code == MEG_REDUCE ? " ranks" : "");
        meg_deeds_add(out, &(meg_deed){.kind = meg_deed_of(m->code, MEG_FORWARD),
                                       .name = name,
                                       .begin = m->begin,
                                       .end = m->end,
                                       .waited = m->begin - m->posted,
                                       .bytes = m->bytes,
                                       .micro = m->micro});
    }
}

/* This rank's part of the step. */
static void write_rank(const meg_recording *r, int64_t number, double origin, FILE *out)
{
    const step *s = NULL;
    for (int i = 0; i < r->steps; i++)
        if (r->step[i].number == number) s = &r->step[i];
    int rank = meg_rank(r->trainer->ctx);
    meg_deeds deeds = {0};
    fprintf(out, "%s{\"rank\": %d, ", rank ? ",\n" : "", rank);
    if (s) {
        meg_timing timing = {origin + r->ahead, (s->end - s->begin) / ROWS};
        add_kernels(r, s, &deeds);
        add_messages(r, s, &deeds);
        fprintf(out, "\"begin\": %.1f, \"end\": %.1f, ", 1e6 * (s->begin - timing.origin),
                1e6 * (s->end - timing.origin));
        meg_deeds_write(&deeds, &timing, out);
    } else {
        fputs("\"begin\": 0, \"end\": 0, \"deeds\": [], \"names\": []", out);
    }
    fputs("}", out);
    meg_deeds_free(&deeds);
}

static void stop(meg_recording *r)
{
    meg_context *ctx = r->trainer->ctx;
    if (!r->heard) return;
    r->heard = false;
    meg_device_observe(ctx->device, r->others.kernel, r->others.context);
    meg_engine_observe(r->trainer->engine, r->others.traffic, r->others.context);
}

meg_status meg_recording_end(meg_recording *r, meg_error *e, meg_recorded *out)
{
    meg_comm *c = r->trainer->ctx->comm;
    *out = (meg_recorded){.step = middle_step(r)};
    double origin = 0;
    FILE *mine = tmpfile();
    stop(r);
    for (int i = 0; i < r->steps; i++)
        if (r->step[i].number == out->step) {
            origin = r->step[i].begin;
            out->seconds = r->step[i].end - origin;
        }
    if (!mine) meg_fail(e, MEG_EIO, "cannot write a temporary file: %s", strerror(errno));
    meg_status status = mine ? MEG_OK : MEG_EIO;
    if (meg_comm_size(c) > 1) {
        status = meg_comm_agree(c, e);
        if (status == MEG_OK) status = meg_comm_share(c, e, 0, &out->step, sizeof out->step);
        if (status == MEG_OK) status = meg_comm_share(c, e, 0, &origin, sizeof origin);
    }
    if (status == MEG_OK) write_rank(r, out->step, origin, mine);
    if (status == MEG_OK && meg_comm_size(c) > 1) status = meg_together_collect(c, e, mine);
    if (status == MEG_OK && meg_comm_rank(c) == 0) out->text = mine;
    else if (mine) fclose(mine);
    return status;
}

void meg_recording_free(meg_recording *r)
{
    if (!r) return;
    stop(r);
    free(r->kernel);
    free(r->message);
    meg_pool_free(r->pool);
    free(r);
}
