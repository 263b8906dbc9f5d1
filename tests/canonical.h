/* The canonical text of a plan: all that engine and trainer read of it, a fact a word, so that two
 * builds can be asked whether they make the same programs. It is printed, or only hashed: both are one
 * walk over the plan's lists. Tags have a hash of their own.
 *
 *     rank 1 of 2 arena 9472 held 768 step 64 frame 8192 temporary 448 sgd momentum=0.9 ring
 *     held 0 value of 3 index 0 box [0:2 0:1 0:1 0:3 0:3] plain at 0 bytes 144
 *     entry 0 train trains batch 4 micro 2 f64 ...
 *     node, value, team, line, station, block, slot     of it, one line each
 *     instr 7 send node -1 in 0 read slot 12 rank 0 tag 5
 *     instr 8 kernel bwd node 3 plain in 1 read slot 4 ... makes [...] sums [...]
 *     operand 4 in 1 box [...] f64 plain bytes 0        as the device is asked for it; -1: no slot
 *
 * Left out: pointers, predicted seconds, files, and what only planning reads (meshes, layouts,
 * lifetimes). Enumerations go by name, since their numbers may change.
 */
#ifndef TESTS_CANONICAL_H
#define TESTS_CANONICAL_H

#include "plan/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct canonical {
    FILE *text; /* NULL: hashes only */
    bool
        loose; /* what ranks of one class have in common: extents of boxes, not where they lie; sizes of
                   teams; no peers, and not where a shard lies in held memory */
    uint64_t program, tags;
} canonical;

/* ---- words ---- */

static inline void canonical_word(canonical *c, const char *word)
{
    c->program = meg_hash_word(c->program, meg_hash(word));
    if (c->text && word[0]) fprintf(c->text, " %s", word);
}

static inline void canonical_number(canonical *c, const char *what, int64_t number)
{
    c->program = meg_hash_word(c->program, (uint64_t)number);
    if (c->text) fprintf(c->text, "%s%s %" PRId64, what[0] ? " " : "", what, number);
}

static inline void canonical_real(canonical *c, const char *what, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    c->program = meg_hash_word(c->program, bits);
    if (c->text) fprintf(c->text, " %s %.17g", what, number);
}

static inline void canonical_tag(canonical *c, int tag)
{
    c->tags = meg_hash_word(c->tags, (uint64_t)tag);
    if (c->text) fprintf(c->text, " tag %d", tag);
}

static inline void canonical_box(canonical *c, const char *what, const meg_box *box)
{
    char text[96];
    meg_box b = *box;
    for (int a = 0; a < MEG_AXES; a++) {
        if (c->loose) b.hi[a] -= b.lo[a], b.lo[a] = 0;
        c->program = meg_hash_word(c->program, (uint64_t)b.lo[a]);
        c->program = meg_hash_word(c->program, (uint64_t)b.hi[a]);
    }
    if (!c->text) return;
    meg_box_text(&b, text);
    fprintf(c->text, " %s %s", what, text);
}

/* A line begins with its kind, so that lists of other lengths have other hashes. */
static inline void canonical_line(canonical *c, const char *kind, int number)
{
    c->program = meg_hash_word(c->program, meg_hash(kind));
    if (c->text) fprintf(c->text, "\n%s", kind);
    canonical_number(c, "", number);
}

static inline const char *canonical_role(meg_role r)
{
    static const char *const name[] = {[MEG_ROLE_VALUE] = "value",
                                       [MEG_ROLE_GRADIENT] = "gradient",
                                       [MEG_ROLE_AUX] = "aux",
                                       [MEG_ROLE_SCRATCH] = "scratch",
                                       [MEG_ROLE_STATE] = "optimizer",
                                       [MEG_ROLE_SCALARS] = "scalars",
                                       [MEG_ROLE_SEED] = "seed",
                                       [MEG_ROLE_TOTAL] = "total",
                                       [MEG_ROLE_BUCKET] = "bucket",
                                       [MEG_ROLE_OUTPUT] = "output",
                                       [MEG_ROLE_INPUT_GRADIENT] = "input gradient"};
    return name[r];
}

static inline const char *canonical_region(meg_region r)
{
    static const char *const name[] = {[MEG_HELD] = "held",
                                       [MEG_STEP] = "step",
                                       [MEG_FRAME] = "frame",
                                       [MEG_TEMPORARY] = "temporary"};
    return name[r];
}

/* Operands by kind and number. */
static inline void canonical_operand(canonical *c, int o)
{
    static const struct {
        const char *name;
        int first;
    } kinds[] = {{"scratch", MEG_SCRATCH}, {"din", MEG_DX}, {"dout", MEG_DY},
                 {"aux", MEG_AUX},         {"out", MEG_Y},  {"in", MEG_X}};
    int k = 0;
    while (o < kinds[k].first)
        k++;
    canonical_word(c, kinds[k].name);
    canonical_number(c, "", o - kinds[k].first);
}

/* ---- the graph of an entry ---- */

static inline void canonical_node(canonical *c, const meg_node *v)
{
    char attrs[4096];
    meg_options_print(v->op->params, v->attr, attrs, sizeof attrs);
    canonical_line(c, "node", v->id);
    canonical_word(c, v->op->name);
    canonical_word(c, v->name); /* random numbers are keyed by it */
    canonical_word(c, attrs);
    for (int i = 0; i < v->inputs; i++)
        canonical_number(c, "in", v->in[i]);
    for (int i = 0; i < v->outputs; i++)
        canonical_number(c, "out", v->out[i]);
}

static inline void canonical_value(canonical *c, const meg_value *x)
{
    static const char *const kind[] = {
        [MEG_INPUT] = "input", [MEG_LABEL] = "label", [MEG_PARAMETER] = "parameter",
        [MEG_STATE] = "state", [MEG_FIXED] = "fixed", [MEG_MADE] = "made"};
    static const char *const start[] = {[MEG_ZEROS] = "zeros",
                                        [MEG_ONES] = "ones",
                                        [MEG_UNIFORM] = "uniform",
                                        [MEG_NORMAL] = "normal",
                                        [MEG_CONSTANT] = "constant"};
    canonical_line(c, "value", x->id);
    canonical_word(c, kind[x->kind]);
    canonical_word(c, x->name);
    canonical_word(c, meg_dtype_name(x->dtype));
    canonical_box(c, "shape", &x->shape);
    if (!meg_kind_lasts(x->kind)) return;
    canonical_word(c, start[x->start]);
    canonical_real(c, "bound", x->bound);
}

static inline void canonical_graph(canonical *c, const meg_graph *g)
{
    for (int i = 0; i < g->nodes; i++)
        canonical_node(c, &g->node[i]);
    for (int i = 0; i < g->values; i++)
        canonical_value(c, &g->value[i]);
    canonical_line(c, "losses", g->losses);
    for (int i = 0; i < g->losses; i++) {
        canonical_number(c, "value", g->loss[i].value);
        canonical_real(c, "weight", g->loss[i].weight);
    }
    canonical_number(c, "correct", g->correct);
}

/* ---- stations ---- */

static inline void canonical_slot(canonical *c, int number, const meg_slot *s)
{
    canonical_line(c, "slot", number);
    canonical_word(c, canonical_role(s->role));
    canonical_number(c, "of", s->value);
    canonical_number(c, "index", s->index);
    canonical_box(c, "box", &s->box);
    canonical_word(c, meg_dtype_name(s->dtype));
    canonical_word(c, meg_format_name(s->format));
    canonical_word(c, canonical_region(s->region));
    if (!c->loose || s->region != MEG_HELD) canonical_number(c, "at", s->offset);
    canonical_number(c, "bytes", s->bytes);
    canonical_number(c, "per-micro", s->per_micro);
}

/* What the device is asked for beyond the slots: the work, and operands that are described by their
 * values alone. */
static inline void canonical_request(canonical *c, const meg_station *t, const meg_instr *in)
{
    meg_request r;
    meg_station_request(t, in, &r);
    canonical_box(c, "makes", &r.work.out);
    canonical_box(c, "sums", &r.work.sum);
    for (int o = 0; o < MEG_OPERANDS; o++) {
        if (in->slot[o] < 0 && meg_box_empty(&r.box[o])) continue;
        canonical_line(c, "operand", in->slot[o]);
        canonical_operand(c, o);
        canonical_box(c, "box", &r.box[o]);
        canonical_word(c, meg_dtype_name(r.dtype[o]));
        canonical_word(c, meg_format_name(r.format[o]));
        canonical_number(c, "bytes", r.bytes[o]);
    }
}

static inline void canonical_traffic(canonical *c, const meg_instr *in)
{
    static const char *const half[] = {
        [MEG_HALF_BOTH] = "both", [MEG_HALF_SCATTER] = "scatter", [MEG_HALF_GATHER] = "gather"};
    bool reduce = in->code == MEG_REDUCE;
    if (!reduce && in->code != MEG_SEND && in->code != MEG_RECV) return;
    if (reduce || !c->loose) canonical_number(c, reduce ? "team" : "rank", in->peer);
    if (reduce) canonical_word(c, in->max ? "largest" : "sum");
    if (reduce) canonical_word(c, half[in->half]);
    canonical_tag(c, in->tag);
}

static inline void canonical_instr(canonical *c, const meg_station *t, int number)
{
    const meg_instr *in = &t->instr[number];
    bool kernel = in->code == MEG_KERNEL;
    canonical_line(c, "instr", number);
    canonical_word(c, meg_code_name(in->code));
    canonical_word(c, kernel ? meg_pass_name(in->pass) : "");
    canonical_number(c, "node", in->node);
    canonical_word(c, in->impl);
    canonical_word(c, in->last ? "last" : "");
    for (int o = 0; o < MEG_OPERANDS; o++) {
        if (in->slot[o] < 0) continue;
        canonical_operand(c, o);
        canonical_word(c, in->written & MEG_BIT(o) ? "written" : "read");
        canonical_number(c, "slot", in->slot[o]);
    }
    canonical_traffic(c, in);
    if (kernel) canonical_request(c, t, in);
}

static inline void canonical_station(canonical *c, int number, const meg_station *t)
{
    canonical_line(c, "station", number);
    canonical_number(c, "stage", t->stage);
    canonical_number(c, "direction", t->direction);
    if (!c->loose) canonical_number(c, "rank", t->rank);
    canonical_number(c, "micros", t->micros);
    canonical_number(c, "frames", t->frames);
    canonical_number(c, "of", t->frame);
    canonical_number(c, "from", t->frame_base);
    canonical_number(c, "temporary", t->temporary);
    for (int i = 0; i < t->entry->graph->losses; i++)
        canonical_number(c, "loss", t->loss[i]);
    canonical_number(c, "correct", t->correct);
    for (int i = 0; i < MEG_BLOCKS; i++) {
        if (t->block[i].count == 0) continue;
        canonical_line(c, "block", t->block[i].first);
        canonical_number(c, "count", t->block[i].count);
        canonical_word(c, meg_block_name((meg_block_kind)i));
    }
    for (int i = 0; i < t->slots; i++)
        canonical_slot(c, i, &t->slot[i]);
    for (int i = 0; i < t->instrs; i++)
        canonical_instr(c, t, i);
}

/* ---- entries ---- */

static inline void canonical_run(canonical *c, int number, const meg_line *l)
{
    canonical_line(c, "line", number);
    canonical_number(c, "station", l->station);
    canonical_word(c, meg_block_name(l->block));
    canonical_number(c, "micro", l->micro);
    canonical_number(c, "ordinal", l->ordinal);
    canonical_number(c, "frame", l->frame);
    canonical_number(c, "next", l->next);
    canonical_word(c, l->last ? "last" : "");
    canonical_word(c, l->first ? "first" : "");
}

static inline void canonical_bytes(canonical *c, const int64_t bytes[MEG_REGIONS])
{
    for (int i = 0; i < MEG_REGIONS; i++)
        canonical_number(c, canonical_region((meg_region)i), bytes[i]);
}

static inline void canonical_entry(canonical *c, int number, const meg_entry *e)
{
    canonical_line(c, "entry", number);
    canonical_word(c, e->name);
    canonical_word(c, e->train ? "trains" : "evaluates");
    canonical_number(c, "batch", e->batch);
    canonical_number(c, "micro", e->micro);
    canonical_word(c, meg_dtype_name(e->real));
    canonical_bytes(c, e->bytes);
    for (int m = 0; m < e->timetable->micro; m++)
        canonical_number(c, "direction", e->timetable->direction[m]);
    canonical_graph(c, e->graph);
    for (int i = 0; i < e->teams; i++) {
        canonical_line(c, "team", i);
        if (c->loose) canonical_number(c, "ranks", e->team[i].count);
        for (int k = 0; k < e->team[i].count && !c->loose; k++)
            canonical_number(c, "rank", e->team[i].rank[k]);
    }
    for (int i = 0; i < e->lines; i++)
        canonical_run(c, i, &e->line[i]);
    for (int i = 0; i < e->stations; i++)
        canonical_station(c, i, &e->station[i]);
}

static inline void canonical_held(canonical *c, int number, const meg_held_slot *h)
{
    canonical_line(c, "held", number);
    canonical_word(c, canonical_role(h->role));
    canonical_number(c, "of", h->value);
    canonical_number(c, "index", h->index);
    canonical_box(c, "box", &h->box);
    canonical_word(c, meg_format_name(h->format));
    canonical_number(c, "at", h->offset);
    canonical_number(c, "bytes", h->bytes);
}

/* Adds one rank's plan. */
static inline void canonical_plan(canonical *c, const meg_plan *p)
{
    char settings[1024];
    meg_options_print(p->optimizer->params, p->settings, settings, sizeof settings);
    canonical_line(c, "rank", c->loose ? 0 : p->world.rank);
    canonical_number(c, "of", p->world.ranks);
    canonical_number(c, "arena", p->arena);
    canonical_bytes(c, p->bytes);
    canonical_word(c, p->optimizer->name);
    canonical_word(c, settings);
    canonical_word(c, p->options.allreduce);
    for (int i = 0; i < p->held_slots; i++)
        canonical_held(c, i, &p->held[i]);
    for (int i = 0; i < MEG_ENTRIES; i++)
        if (p->entry[i].batch) canonical_entry(c, i, &p->entry[i]);
}

#endif
