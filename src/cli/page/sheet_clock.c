/* A sheet on the clock of a replay: see sheet.h. Work is told in stretches between two messages; within one kernels run at
 * one speed, one behind the other.
 */
#include "cli/page/sheet.h"

#include <math.h>
#include <stdlib.h>

int meg_replay_last_step(const struct meg_replay_told *told)
{
    int step = 0;
    for (int i = 0; i < told->count; i++)
        if (told->span[i].step > step) step = told->span[i].step;
    return step;
}

void meg_sheet_clock_begin(meg_sheet_clock *c, const meg_actor *a,
                           const struct meg_replay_told *told)
{
    int step = meg_replay_last_step(told);
    *c = (meg_sheet_clock){.span = calloc((size_t)told->count + 1, sizeof *c->span),
                           .from = calloc((size_t)told->count + 2, sizeof *c->from)};
    if (!c->span || !c->from) abort();
    for (int i = 0; i < told->count; i++) {
        const meg_replay_span *s = &told->span[i];
        if (s->what != MEG_REPLAY_WORK || s->step != step) continue;
        c->span[c->spans++] = s;
        c->from[c->spans] = c->from[c->spans - 1] + a->events.before[s->number];
    }
}

void meg_sheet_clock_free(meg_sheet_clock *c)
{
    free(c->span);
    free(c->from);
    *c = (meg_sheet_clock){0};
}

double meg_sheet_clock_at(const meg_sheet_clock *c, double work, double middle)
{
    int lo = 0, hi = c->spans - 1;
    if (c->spans == 0) return 0;
    while (lo < hi) { /* the first that ends behind the middle */
        int at = lo + (hi - lo) / 2;
        if (c->from[at + 1] > middle) hi = at;
        else lo = at + 1;
    }
    const meg_replay_span *s = c->span[lo];
    double length = c->from[lo + 1] - c->from[lo];
    double part = length > 0 ? (work - c->from[lo]) / length : 0;
    return s->begin + fmin(1, fmax(0, part)) * (s->end - s->begin);
}

static void add_kernels(const meg_sheet *s, const meg_sheet_clock *c, meg_deeds *out)
{
    for (int i = 0; i < s->kernels; i++) {
        const meg_sheet_kernel *k = &s->kernel[i];
        double middle = (k->from + k->to) / 2;
        const char *name = *k->node ? meg_pool_text(s->pool, "%s: %s", k->name, k->node) : k->name;
        meg_deeds_add(out, &(meg_deed){.kind = k->kind,
                                       .name = name,
                                       .begin = meg_sheet_clock_at(c, k->from, middle),
                                       .end = meg_sheet_clock_at(c, k->to, middle),
                                       .micro = k->micro});
    }
}

void meg_sheet_deeds(const meg_sheet *s, const meg_actor *a, const struct meg_replay_told *told,
                     meg_deeds *out)
{
    meg_sheet_clock c;
    int step = meg_replay_last_step(told);
    meg_sheet_clock_begin(&c, a, told);
    add_kernels(s, &c, out);
    meg_sheet_clock_free(&c);
    for (int i = 0; i < told->count; i++) {
        const meg_replay_span *x = &told->span[i];
        if (x->what != MEG_REPLAY_TRAFFIC || x->step != step || x->number >= s->traffics) continue;
        const meg_traffic_note *n = &a->events.note[x->number];
        meg_deeds_add(out, &(meg_deed){.kind = meg_deed_of((meg_code)n->code, MEG_FORWARD),
                                       .name = s->traffic[x->number].name,
                                       .begin = x->begin,
                                       .end = x->end,
                                       .waited = x->begin - x->posted,
                                       .bytes = n->bytes,
                                       .micro = n->micro});
    }
}
