/* Sheets: see sheet.h. The walk is the engine's (plan/program/walk.h); the k-th message or sum of it is the k-th note of
 * the rank's events. A slot is alive from the first instruction that touches it to the last one, in each frame
 * for itself; received values from the moment that their receive is posted.
 */
#include "cli/page/sheet.h"
#include "plan/program/walk.h"

#include <stdlib.h>
#include <string.h>

enum {
    DEAD = -1
};

/* ---- kernels and messages ---- */

static void add_kernel(meg_sheet *s, const meg_walk *w, const meg_plan *p, double *work)
{
    const meg_instr *i = w->instr;
    if (i->seconds <= 0) return;
    const meg_node *v = i->node < 0 ? NULL : &w->entry->graph->node[i->node];
    const meg_slot *x = i->slot[MEG_X] < 0 ? NULL : &w->station->slot[i->slot[MEG_X]];
    bool update = i->code == MEG_UPDATE, kernel = i->code == MEG_KERNEL && v;
    const char *op = kernel ? v->op->name : update ? p->optimizer->name : meg_code_name(i->code);
    const char *of = v ? v->name
                     : x && x->value >= 0 && x->role <= MEG_ROLE_GRADIENT
                         ? w->entry->graph->value[x->value].name
                         : "";
    meg_sheet_kernel k = {.from = *work,
                          .to = *work + i->seconds,
                          .kind = meg_deed_of(i->code, i->pass),
                          .micro = w->line->micro};
    k.name = meg_pool_text(s->pool, "%s%s%s", op,
                           kernel   ? " "
                           : update ? " update"
                                    : "",
                           kernel ? meg_pass_name(i->pass) : "");
    k.node = meg_pool_text(s->pool, "%s", of);
    s->kernel = meg_grow(s->kernel, &s->kernel_room, (size_t)s->kernels + 1, sizeof *s->kernel);
    s->kernel[s->kernels++] = k;
    *work = k.to;
}

/* As a trace of a run says it. */
static void add_traffic(meg_sheet *s, const meg_walk *w)
{
    static const char *const how[] = {"send", "receive", "sum"};
    static const char *const whom[] = {"to rank", "from rank", "over"};
    const meg_instr *i = w->instr;
    const meg_slot *x = &w->station->slot[i->slot[i->code == MEG_RECV ? MEG_Y : MEG_X]];
    bool sum = i->code == MEG_REDUCE;
    const char *value = x->value < 0 ? "gradients" : w->entry->graph->value[x->value].name;
    meg_sheet_traffic t = {.other = sum ? "ranks" : "peer",
                           .who = sum ? w->entry->team[i->peer].count : i->peer};
    int kind = (int)i->code - MEG_SEND;
    t.name = meg_pool_text(s->pool, "%s %s%s %s %d%s", how[kind],
                           x->role == MEG_ROLE_GRADIENT ? "gradient of " : "", value, whom[kind],
                           t.who, sum ? " ranks" : "");
    s->traffic = meg_grow(s->traffic, &s->traffic_room, (size_t)s->traffics + 1,
                          sizeof *s->traffic);
    s->traffic[s->traffics++] = t;
}

static bool is_traffic(meg_code code)
{
    return code == MEG_SEND || code == MEG_RECV || code == MEG_REDUCE;
}

static void read_program(meg_sheet *s, const meg_plan *p)
{
    double work = 0;
    for (meg_walk w = meg_walk_new(&p->entry[MEG_ENTRY_TRAIN]); meg_walk_next(&w);) {
        if (w.what == MEG_WALK_END) continue;
        if (is_traffic(w.instr->code)) add_traffic(s, &w);
        add_kernel(s, &w, p, &work);
    }
}

/* ---- memory ---- */

typedef struct lives { /* of a station's slots */
    int *first,
        *slot;  /* those touched first by instruction i: slot[first[i]] .. slot[first[i + 1] - 1] */
    int *micro; /* (frames, slots) of which micro-batch; DEAD */
} lives;

typedef struct tide { /* memory on the walk */
    meg_sheet *sheet;
    const meg_entry *entry;
    lives *of; /* (stations) */
    int64_t alive;
    int moments, stop; /* stop: the moment at which what is alive is listed */
} tide;

static bool placed(const meg_slot *s)
{
    return s->region >= MEG_FRAME && s->born >= 0;
}

static void *zeroed(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (!memory) abort();
    return memory;
}

static void open_lives(const meg_station *t, lives *l)
{
    l->first = zeroed((size_t)t->instrs + 1, sizeof *l->first);
    l->slot = zeroed((size_t)t->slots, sizeof *l->slot);
    l->micro = zeroed((size_t)t->slots * (size_t)t->frames, sizeof *l->micro);
    for (int i = 0; i < t->slots; i++)
        if (placed(&t->slot[i])) l->first[t->slot[i].born + 1]++;
    for (int i = 0; i < t->instrs; i++)
        l->first[i + 1] += l->first[i];
    int *at = zeroed((size_t)t->instrs, sizeof *at);
    for (int i = 0; i < t->slots; i++)
        if (placed(&t->slot[i])) {
            int born = t->slot[i].born;
            l->slot[l->first[born] + at[born]++] = i;
        }
    free(at);
    for (int i = 0; i < t->slots * t->frames; i++)
        l->micro[i] = DEAD;
}

static void add_memory(tide *t, double work)
{
    meg_sheet *s = t->sheet;
    int at = t->moments++;
    if (t->stop >= 0) return;
    s->memory = meg_grow(s->memory, &s->memory_room, (size_t)at + 1, sizeof *s->memory);
    s->memory[s->memories++] = (meg_sheet_memory){work, t->alive};
    if (t->alive > s->memory[s->peak].bytes) s->peak = at;
}

static void add_alive(meg_sheet *s, const meg_sheet_alive *a)
{
    s->alive = meg_grow(s->alive, &s->alive_room, (size_t)s->alives + 1, sizeof *s->alive);
    s->alive[s->alives++] = *a;
}

static const char *role_of(meg_role role)
{
    static const char *const what[] = {[MEG_ROLE_VALUE] = "activation",
                                       [MEG_ROLE_GRADIENT] = "gradient",
                                       [MEG_ROLE_AUX] = "kept for backward",
                                       [MEG_ROLE_SCRATCH] = "working memory",
                                       [MEG_ROLE_STATE] = "optimizer state",
                                       [MEG_ROLE_SCALARS] = "scalars",
                                       [MEG_ROLE_SEED] = "weight of a loss",
                                       [MEG_ROLE_TOTAL] = "sum of the step",
                                       [MEG_ROLE_BUCKET] = "bucket of a sum",
                                       [MEG_ROLE_OUTPUT] = "output of the step",
                                       [MEG_ROLE_INPUT_GRADIENT] = "gradient by an input"};
    return what[role];
}

static void list_alive(tide *t)
{
    for (int i = 0; i < t->entry->stations; i++) {
        const meg_station *st = &t->entry->station[i];
        const meg_graph *g = t->entry->graph;
        for (int k = 0; k < st->slots * st->frames; k++) {
            const meg_slot *s = &st->slot[k % st->slots];
            if (t->of[i].micro[k] == DEAD) continue;
            bool node = s->role == MEG_ROLE_AUX || s->role == MEG_ROLE_SCRATCH;
            const char *name = s->value < 0 ? ""
                               : node       ? g->node[s->value].name
                                            : g->value[s->value].name;
            add_alive(t->sheet, &(meg_sheet_alive){meg_pool_text(t->sheet->pool, "%s", name),
                                                   role_of(s->role), s->bytes, t->of[i].micro[k]});
        }
    }
}

static void touch(tide *t, const meg_walk *w, double *work)
{
    const meg_station *st = w->station;
    lives *l = &t->of[w->line->station];
    int *micro = l->micro + (size_t)w->line->frame * (size_t)st->slots;
    for (int i = l->first[w->at]; i < l->first[w->at + 1]; i++) {
        int slot = l->slot[i];
        if (micro[slot] == DEAD) t->alive += st->slot[slot].bytes;
        micro[slot] = w->line->micro;
    }
    if (t->moments == t->stop) list_alive(t);
    add_memory(t, *work);
    *work += w->instr->seconds > 0 ? w->instr->seconds : 0;
    for (int o = 0; o < MEG_OPERANDS; o++) {
        int slot = w->instr->slot[o];
        if (slot < 0 || !placed(&st->slot[slot]) || st->slot[slot].dies != w->at) continue;
        if (micro[slot] != DEAD) t->alive -= st->slot[slot].bytes;
        micro[slot] = DEAD;
    }
}

/* stop < 0: the curve; else what is alive at that moment of it. */
static void flow(meg_sheet *s, const meg_plan *p, int stop)
{
    const meg_entry *e = &p->entry[MEG_ENTRY_TRAIN];
    tide t = {.sheet = s, .entry = e, .stop = stop};
    double work = 0;
    t.alive = p->bytes[MEG_HELD] + e->bytes[MEG_STEP];
    t.of = zeroed((size_t)e->stations, sizeof *t.of);
    for (int i = 0; i < e->stations; i++)
        open_lives(&e->station[i], &t.of[i]);
    for (meg_walk w = meg_walk_new(e); meg_walk_next(&w) && (stop < 0 || t.moments <= stop);)
        if (w.what != MEG_WALK_END) touch(&t, &w, &work);
    for (int i = 0; i < e->stations; i++) {
        free(t.of[i].first);
        free(t.of[i].slot);
        free(t.of[i].micro);
    }
    free(t.of);
}

/* Weights, their gradients and what the optimizer keeps of them, each as one: they are always there. */
static void list_held(meg_sheet *s, const meg_plan *p)
{
    static const struct {
        const char *name;
        int kind; /* of the value; -1: any */
        meg_role role;
    } rows[] = {{"running statistics", MEG_STATE, MEG_ROLE_VALUE},
                {"weights that are not trained", MEG_FIXED, MEG_ROLE_VALUE},
                {"weights", -1, MEG_ROLE_VALUE},
                {"gradients of weights", -1, MEG_ROLE_GRADIENT},
                {"optimizer states", -1, MEG_ROLE_STATE}};
    enum {
        ROWS = sizeof rows / sizeof *rows
    };
    int64_t bytes[ROWS + 1] = {0}, all = 0;
    for (int i = 0; i < p->held_slots; i++) {
        const meg_held_slot *h = &p->held[i];
        int row = 0;
        while (row < ROWS && (h->role != rows[row].role ||
                              (rows[row].kind >= 0 &&
                               (int)p->entry[0].graph->value[h->value].kind != rows[row].kind)))
            row++;
        bytes[row] += h->bytes;
        all += h->bytes;
    }
    bytes[ROWS] += p->bytes[MEG_HELD] - all;
    for (int i = 0; i <= ROWS; i++)
        if (bytes[i] > 0)
            add_alive(s, &(meg_sheet_alive){i < ROWS ? rows[i].name : "alignment, scalars", "held",
                                            bytes[i], -1});
    int64_t step = p->entry[MEG_ENTRY_TRAIN].bytes[MEG_STEP];
    if (step > 0) add_alive(s, &(meg_sheet_alive){"labels, sums", "step", step, -1});
}

static int larger(const void *a, const void *b)
{
    const meg_sheet_alive *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    int order = strcmp(x->name, y->name);
    return order ? order : x->micro - y->micro;
}

/* ---- all of it ---- */

meg_sheet *meg_sheet_new(const meg_plan *p)
{
    meg_pool *pool = meg_pool_new();
    meg_sheet *s = meg_pool_alloc(pool, sizeof *s);
    *s = (meg_sheet){.pool = pool, .rank = p->world.rank, .arena = p->arena};
    read_program(s, p);
    flow(s, p, -1);
    list_held(s, p);
    if (s->memories) flow(s, p, s->peak);
    if (s->alives) qsort(s->alive, (size_t)s->alives, sizeof *s->alive, larger);
    return s;
}

void meg_sheet_free(meg_sheet *s)
{
    if (!s) return;
    free(s->kernel);
    free(s->traffic);
    free(s->memory);
    free(s->alive);
    meg_pool_free(s->pool);
}
