/* The summary of a plan: what it is for, what it needs, how long a step takes. */
#include "plan/plan.h"
#include "plan/program/staging.h"
#include "plan/program/walk.h"
#include "plan/schedule/timetable.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void line(FILE *out, const char *what, int64_t bytes)
{
    char text[32];
    meg_print_bytes(bytes, text);
    fprintf(out, "  %-28s %14" PRId64 " bytes  %s\n", what, bytes, text);
}

static void print_ranks(const meg_plan *p, FILE *out)
{
    const meg_timetable *t = p->entry[MEG_ENTRY_TRAIN].timetable;
    if (p->world.ranks == 1) {
        fputs("serial on 1 rank", out);
        return;
    }
    fprintf(out, "rank %d of %d: %d replica%s", p->world.rank, p->world.ranks, p->replicas,
            p->replicas == 1 ? "" : "s");
    if (t->stages > 1) fprintf(out, " of %d stages, %s", t->stages, t->schedule);
}

/* What else the ranks share. */
static void print_cuts(const meg_plan *p, FILE *out)
{
    const meg_plan_options *o = &p->options;
    bool many = p->world.ranks > 1;
    if (many && strcmp(o->mesh, "1") != 0 && *o->mesh) fprintf(out, ", mesh=%s", o->mesh);
    if (many && o->wide > 1) fprintf(out, ", wide=%" PRId64, o->wide);
    if (many && o->zero) fprintf(out, ", zero=%d", o->zero == 1 ? 1 : 3);
    fputc('\n', out);
}

/* Of ranks that are unlike. */
static void print_plain(const meg_plan *p, FILE *out)
{
    int count = 0;
    for (int i = 0; i < p->source->values; i++)
        count += p->plain[i];
    if (count)
        fprintf(out, "  ranks are unlike: %d weight%s held in plain format\n", count,
                count == 1 ? " is" : "s are");
}

static void print_extents(const int64_t extent[], int count, FILE *out)
{
    for (int i = 0; i < count; i++)
        fprintf(out, "%s%" PRId64, i ? "x" : "", extent[i]);
}

/* What is asked of the network: classes of each sample, pixel or token, or real targets. */
static void print_answers(const meg_graph *g, FILE *out)
{
    const meg_node *loss = &g->node[g->value[g->loss[0].value].maker];
    const meg_box *label = &g->value[loss->in[1]].shape;
    int64_t each = meg_box_size(label) / meg_extent(label, MEG_N);
    int64_t classes = meg_extent(&g->value[loss->in[0]].shape, MEG_C);
    if (loss->op->real_target) fprintf(out, "%" PRId64 " target%s", each, each == 1 ? "" : "s");
    else
        fprintf(out, "%" PRId64 " class%s%s", classes, classes == 1 ? "" : "es",
                each > 1 ? " at each of " : "");
    if (!loss->op->real_target && each > 1) fprintf(out, "%" PRId64 " places", each);
}

static void print_data(const meg_plan *p, FILE *out)
{
    const meg_graph *g = p->source;
    int i = 0;
    while (i < g->values && g->value[i].kind != MEG_INPUT)
        i++;
    if (i == g->values || !g->losses) return;
    const meg_value *x = &g->value[i];
    fputs("  input ", out);
    print_extents(x->dims + 1, x->rank - 1, out);
    fputs(x->dtype == MEG_I32 ? " tokens, " : ", ", out);
    print_answers(g, out);
    if (p->data) fprintf(out, "; data: %s, %" PRId64 " samples", p->data, p->samples);
    fputc('\n', out);
}

static void print_staging(const meg_plan *p, FILE *out)
{
    meg_staging s = meg_plan_staging(p);
    line(out, "of the host, for messages", s.bytes);
    free(s.stretch);
}

void meg_plan_summary(const meg_plan *p, FILE *out)
{
    const meg_entry *t = &p->entry[MEG_ENTRY_TRAIN];
    int instrs = 0;
    for (int i = 0; i < t->stations; i++)
        for (int b = MEG_BLOCK_FORWARD; b <= MEG_BLOCK_WEIGHTS; b++)
            instrs += t->station[i].block[b].count;
    if (p->why) fputs(p->why, out);
    fprintf(out, "plan: %s, ", p->source->name);
    print_ranks(p, out);
    fprintf(out, ", batch %" PRId64 " in %d micro-batch%s, %s", t->batch, t->micro,
            t->micro == 1 ? "" : "es", p->optimizer->name);
    print_cuts(p, out);
    print_data(p, out);
    fprintf(out, "  %" PRId64 " parameters, %d nodes, %d instructions per micro-batch\n",
            meg_graph_trainable(p->source), t->graph->nodes, instrs);
    print_plain(p, out);
    line(out, "weights, optimizer, states", p->bytes[MEG_HELD]);
    line(out, "labels, sums", p->bytes[MEG_STEP]);
    line(out, "activations, gradients", p->bytes[MEG_FRAME] + p->bytes[MEG_TEMPORARY]);
    line(out, "predicted peak (arena)", p->arena);
    if (p->profile.far) print_staging(p, out);
    meg_messages m = meg_entry_messages(t);
    if (p->world.ranks > 1)
        fprintf(out,
                "  %-28s %14" PRId64 " message%s of %" PRId64 " bytes, %" PRId64
                " sum%s of %" PRId64 " bytes\n",
                "sent in a step by this rank", m.sent, m.sent == 1 ? "" : "s", m.bytes, m.sums,
                m.sums == 1 ? "" : "s", m.sum_bytes);
    fprintf(out, "  %-28s %14.4f s, %.1f images/s\n", "predicted step time", p->seconds,
            p->seconds > 0 ? (double)t->batch / p->seconds : 0);
}
