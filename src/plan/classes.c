/* Classes of ranks: see classes.h.
 *
 * A replica is of a *kind*: its samples are cut as those of others of the kind. One replica of each kind is
 * looked at; each of its ranks gets a hash for each entry, over
 *
 *     places     stages, and what its position makes, reads and holds of every value (place_segments)
 *     weights    its box of each, how many share it (weigh)
 *     messages   what it sends and receives (send)
 *
 * and one of its shards, which depend on the number of the replica itself.
 */
#include "plan/classes.h"
#include "base/random.h"
#include "plan/distribute/distribute.h"
#include "plan/partition/placement.h"

#include <stdlib.h>

typedef struct cut { /* of weights into shards */
    int64_t extent;
    int ranks; /* of a replica that share it */
} cut;

typedef struct sorter {
    const meg_plan *p;
    meg_pool *pool;
    int kinds;
    int *kind;                      /* (replicas) */
    int *replica;                   /* (kinds) the first of each */
    const int64_t *at[MEG_ENTRIES]; /* (replicas + 1) where samples are cut */
    uint64_t *sign[MEG_ENTRIES];    /* (kinds, ranks of a replica) */
    uint64_t *shards;               /* (kinds, ranks of a replica) */
    int cuts;
    cut *cut;
    size_t cut_room;
} sorter;

static void add(uint64_t *h, int64_t word)
{
    *h = meg_hash_word(*h, (uint64_t)word);
}

static bool is_there(const meg_entry *e)
{
    return e->batch > 0;
}

/* ---- kinds of replicas ---- */

/* Do all segments cut their samples at the borders of replicas, and do no messages cross them? */
static bool apart(const meg_plan *p, const meg_entry *e)
{
    for (int s = 1; s < e->segments; s++)
        for (int k = 0; k <= p->replicas; k++)
            if (e->samples[s][k * e->segment[s].dim[MEG_N]] !=
                e->samples[0][k * e->segment[0].dim[MEG_N]])
                return false;
    for (int i = 0; i < e->graph->values; i++)
        if (e->exchange_number[i] >= 0 && e->mixes[i]) return false;
    return true;
}

static bool is_idle(const sorter *s, int entry, int replica)
{
    return s->at[entry][replica] == s->at[entry][replica + 1];
}

static void add_samples(const meg_entry *e, int replica, uint64_t *h)
{
    for (int s = 0; s < e->segments; s++) {
        int n = e->segment[s].dim[MEG_N];
        for (int k = replica * n; k < (replica + 1) * n; k++) {
            add(h, e->samples[s][k + 1] - e->samples[s][k]);
            add(h, e->samples[s][k] == 0 && e->samples[s][k + 1] > 0); /* the first one */
        }
    }
}

static int64_t shard_extent(const cut *c, const meg_plan *p, int64_t own)
{
    int64_t all = (int64_t)c->ranks * p->replicas;
    return c->extent * (own + 1) / all - c->extent * own / all;
}

static uint64_t kind_of(const sorter *s, int replica, const bool is_apart[MEG_ENTRIES])
{
    const meg_plan *p = s->p;
    uint64_t h = meg_hash("replica");
    for (int i = 0; i < MEG_ENTRIES; i++) {
        const meg_entry *e = &p->entry[i];
        if (!is_there(e)) continue;
        add_samples(e, replica, &h);
        add(&h, is_idle(s, i, replica));
        if (!is_apart[i]) add(&h, replica);
    }
    for (int i = 0; i < s->cuts; i++)
        for (int k = 0; k < s->cut[i].ranks; k++)
            add(&h, shard_extent(&s->cut[i], p, (int64_t)replica * s->cut[i].ranks + k));
    add(&h, replica == 0); /* it may have the copy that counts */
    return h;
}

static void find_kinds(sorter *s, meg_classes *c)
{
    size_t replicas = (size_t)s->p->replicas;
    uint64_t *known = meg_pool_alloc(s->pool, replicas * sizeof *known);
    c->kind = s->kind = meg_pool_alloc(c->pool, replicas * sizeof *s->kind);
    c->replica = s->replica = meg_pool_alloc(c->pool, replicas * sizeof *s->replica);
    for (int i = 0; i < MEG_ENTRIES; i++)
        if (is_there(&s->p->entry[i])) c->apart[i] = apart(s->p, &s->p->entry[i]);
    for (int r = 0; r < s->p->replicas; r++) {
        uint64_t key = kind_of(s, r, c->apart);
        int k = 0;
        while (k < s->kinds && known[k] != key)
            k++;
        if (k == s->kinds) {
            known[s->kinds] = key;
            s->replica[s->kinds++] = r;
        }
        s->kind[r] = k;
    }
    c->kinds = s->kinds;
}

/* ---- boxes ---- */

enum {
    BLOCK = 16 /* channels that formats put together */
};

/* Along pixels it counts on which sides the image ends, since kernels pad there. */
static void add_box(uint64_t *h, const meg_box *box, const meg_box *whole)
{
    for (int a = 0; a < MEG_AXES; a++) {
        add(h, meg_extent(box, a));
        if (a == MEG_C) add(h, box->lo[a] % BLOCK);
        if (a > MEG_C) add(h, 2 * (box->lo[a] == 0) + (box->hi[a] == whole->hi[a]));
    }
}

/* What is read for some of the output: how the one lies to the other, too, unless all pixels are read, or
 * become one. */
static void add_need(uint64_t *h, const meg_box *need, const meg_box *in, const meg_work *w,
                     const meg_box *out)
{
    add_box(h, need, in);
    for (int a = MEG_D; a < MEG_AXES; a++)
        if (meg_extent(need, a) != meg_extent(in, a) && meg_extent(out, a) > 1)
            add(h, meg_extent(in, a) * w->out.lo[a] - meg_extent(out, a) * need->lo[a]);
}

/* ---- positions ---- */

static void add_output(uint64_t *h, const meg_entry *e, int value, int position)
{
    const meg_graph *g = e->graph;
    meg_part part = meg_entry_part(e, value, position);
    meg_box held = meg_entry_held(e, value, position);
    bool counts = value == g->correct;
    add_box(h, &part.work.out, &g->value[value].shape);
    add_box(h, &held, &g->value[value].shape);
    for (int a = MEG_C; a < MEG_AXES; a++)
        add(h, part.work.out.lo[a] - held.lo[a]);
    for (int i = 0; i < g->losses; i++)
        counts = counts || g->loss[i].value == value;
    if (counts) add(h, part.copy == 0);
}

static void add_node(uint64_t *h, const meg_entry *e, const meg_node *v, int position)
{
    const meg_graph *g = e->graph;
    const meg_box *out = &g->value[v->out[0]].shape;
    meg_work w = meg_entry_work(e, v, position);
    add_box(h, &w.out, out);
    for (int a = 0; a < MEG_AXES; a++)
        add(h, meg_extent(&w.sum, a));
    for (int k = 0; k < v->inputs; k++) {
        meg_box need = meg_op_need(g, v, k, &w);
        add_need(h, &need, &g->value[v->in[k]].shape, &w, out);
    }
    for (int k = 0; k < v->outputs; k++)
        add_output(h, e, v->out[k], position);
}

/* Who has the step's first sample begins with the running statistics as they were. */
static bool is_first(const meg_entry *e, int segment, int position)
{
    int inner = e->segment[segment].size / e->segment[segment].dim[MEG_N];
    const int64_t *at = &e->samples[segment][position / inner];
    return at[0] == 0 && at[1] > 0;
}

static uint64_t sign_position(const meg_entry *e, int segment, int position)
{
    uint64_t h = meg_hash("position");
    bool states = false;
    for (int i = 0; i < e->graph->nodes; i++) {
        if (e->segment_of[i] != segment) continue;
        add_node(&h, e, &e->graph->node[i], position);
        const meg_op *op = e->graph->node[i].op;
        states = states || (meg_op_has(op, MEG_STATE_PASS) && !op->state_first);
    }
    if (!states) return h;
    bool first = meg_segment_first(e, segment, position);
    add(&h, first ? 1 + is_first(e, segment, position) : 0);
    return h;
}

/* Formats of weights are chosen for the model of a position: what it has counts as well. */
static uint64_t *sign_models(sorter *s, const meg_entry *e, int segment)
{
    const meg_segment *seg = &e->segment[segment];
    int channels = seg->dim[MEG_C], inner = seg->dim[MEG_D] * seg->dim[MEG_H] * seg->dim[MEG_W];
    uint64_t *model = meg_pool_alloc(s->pool, (size_t)channels * sizeof *model);
    for (int c = 0; c < channels; c++)
        model[c] = sign_position(e, segment, meg_segment_model(e, segment, c * inner));
    return model;
}

static int local_at(const sorter *s, const meg_entry *e, int direction, int segment, int position)
{
    return meg_entry_mesh(e, direction, segment)->rank[position] % s->p->each;
}

static void place_segments(sorter *s, const meg_entry *e, uint64_t *sign)
{
    for (int g = 0; g < e->segments; g++) {
        const meg_segment *seg = &e->segment[g];
        int inner = seg->dim[MEG_D] * seg->dim[MEG_H] * seg->dim[MEG_W];
        const uint64_t *model = sign_models(s, e, g);
        for (int k = 0; k < s->kinds; k++)
            for (int i = 0; i < seg->size; i++) {
                int position = s->replica[k] * seg->size + i;
                uint64_t own = sign_position(e, g, position);
                for (int d = 0; d < e->timetable->directions; d++) {
                    int local = local_at(s, e, d, g, position);
                    uint64_t *h = &sign[k * s->p->each + local];
                    add(h, d * e->segments + g);
                    add(h, (int64_t)own);
                    add(h, (int64_t)model[i / inner % seg->dim[MEG_C]]);
                }
            }
    }
}

/* Which stages it has, in which directions, and what its nodes read of inputs and labels. */
static void place_rank(const sorter *s, const meg_entry *e, int rank, uint64_t *h)
{
    const meg_plan *p = s->p;
    for (int d = 0; d < e->timetable->directions; d++)
        for (int t = 0; t < e->timetable->stages; t++)
            add(h, meg_plan_sits(p, d, t, rank));
    for (int i = 0; i < e->graph->values; i++) {
        const meg_value *x = &e->graph->value[i];
        if (x->kind != MEG_INPUT && x->kind != MEG_LABEL) continue;
        for (int d = 0; d < e->timetable->directions; d++) {
            meg_box box = {{0}, {0}};
            for (int k = e->reader_first[i]; k < e->reader_first[i + 1]; k++) {
                const meg_node *v = &e->graph->node[e->reader[k]];
                int at = meg_mesh_find(meg_entry_mesh(e, d, e->segment_of[v->id]), rank);
                if (at >= 0) box = meg_box_hull(box, meg_entry_need(e, v, i, at));
            }
            add_box(h, &box, &x->shape);
        }
    }
}

/* ---- weights ---- */

typedef struct teams { /* hashes of the ranks that a rank shares weights with */
    int count;
    uint64_t *of;
    size_t room;
} teams;

typedef struct weights { /* lists are of the ranks of a replica */
    sorter *s;
    const meg_entry *e;
    uint64_t *sign;
    meg_box *box; /* of the weight at hand */
    bool *done;   /* it was looked at */
    int *same;    /* those that share a box */
    teams *known;
} weights;

static weights weights_new(sorter *s, const meg_entry *e, uint64_t *sign)
{
    size_t each = (size_t)s->p->each;
    weights w = {.s = s, .e = e, .sign = sign};
    w.box = meg_pool_alloc(s->pool, each * sizeof *w.box);
    w.done = meg_pool_alloc(s->pool, each * sizeof *w.done);
    w.same = meg_pool_alloc(s->pool, each * sizeof *w.same);
    w.known = meg_pool_alloc(s->pool, each * sizeof *w.known);
    return w;
}

static void weights_free(weights *w)
{
    for (int i = 0; i < w->s->p->each; i++)
        free(w->known[i].of);
}

/* The number of a team among those that the rank has met. */
static int team_number(teams *t, uint64_t team)
{
    for (int i = 0; i < t->count; i++)
        if (t->of[i] == team) return i;
    t->of = meg_grow(t->of, &t->room, (size_t)t->count + 1, sizeof *t->of);
    t->of[t->count] = team;
    return t->count++;
}

/* Does the model of a rank's position hold another part of the weight? */
static void add_odd(const weights *w, int value)
{
    const meg_entry *e = w->e;
    sorter *s = w->s;
    for (int i = e->reader_first[value]; i < e->reader_first[value + 1]; i++) {
        int segment = e->segment_of[e->reader[i]];
        for (int d = 0; d < e->timetable->directions; d++)
            for (int at = 0; at < e->segment[segment].size; at++) {
                int own = local_at(s, e, d, segment, at);
                int model = local_at(s, e, d, segment, meg_segment_model(e, segment, at));
                bool odd = !meg_box_equal(&w->box[own], &w->box[model]);
                for (int k = 0; k < s->kinds; k++)
                    add(&w->sign[k * s->p->each + own], odd);
            }
    }
}

/* Looks at a weight. */
static void begin_weight(weights *w, int value)
{
    meg_entry_weight(w->s->p, w->e, value, w->box);
    for (int i = 0; i < w->s->p->each; i++)
        w->done[i] = meg_box_empty(&w->box[i]);
}

/* The next ranks that share a box of it, in `same`; 0: none is left. */
static int next_sharers(weights *w)
{
    int count = 0;
    for (int i = 0; i < w->s->p->each; i++) {
        if (w->done[i] || (count && !meg_box_equal(&w->box[i], &w->box[w->same[0]]))) continue;
        w->done[i] = true;
        w->same[count++] = i;
    }
    return count;
}

static void add_shard(const weights *w, int local, cut c, int index)
{
    sorter *s = w->s;
    for (int k = 0; k < s->kinds; k++)
        add(&s->shards[k * s->p->each + local],
            shard_extent(&c, s->p, (int64_t)s->replica[k] * c.ranks + index));
}

/* Those that share a box. Gradients are summed together if the same ranks share them. */
static void add_sharers(const weights *w, const meg_box *shape, int count)
{
    sorter *s = w->s;
    const meg_box *box = &w->box[w->same[0]];
    uint64_t team = meg_hash("team");
    for (int i = 0; i < count; i++)
        add(&team, w->same[i]);
    for (int i = 0; i < count; i++) {
        int local = w->same[i], number = team_number(&w->known[local], team);
        for (int k = 0; k < s->kinds; k++) {
            uint64_t *h = &w->sign[k * s->p->each + local];
            for (int a = 0; a < MEG_AXES; a++)
                add(h, meg_extent(box, a));
            add(h, meg_box_equal(box, shape));
            add(h, count);
            add(h, number);
        }
        if (s->p->options.zero)
            add_shard(w, local, (cut){meg_extent(box, meg_shard_axis(box)), count}, i);
    }
}

static void weigh(sorter *s, const meg_entry *e, uint64_t *sign)
{
    weights w = weights_new(s, e, sign);
    for (int i = 0; i < e->graph->values; i++) {
        const meg_value *x = &e->graph->value[i];
        if (!meg_kind_lasts(x->kind)) continue;
        begin_weight(&w, i);
        for (int count = next_sharers(&w); count; count = next_sharers(&w))
            add_sharers(&w, &x->shape, count);
        if (!e->whole) add_odd(&w, i);
    }
    weights_free(&w);
}

static void add_cut(sorter *s, cut c)
{
    for (int k = 0; k < s->cuts; k++)
        if (s->cut[k].extent == c.extent && s->cut[k].ranks == c.ranks) return;
    s->cut = meg_grow(s->cut, &s->cut_room, (size_t)s->cuts + 1, sizeof *s->cut);
    s->cut[s->cuts++] = c;
}

/* How weights are cut into shards: the same cut comes with many weights. */
static void find_cuts(sorter *s, const meg_entry *e)
{
    weights w = weights_new(s, e, NULL);
    for (int i = 0; i < e->graph->values; i++) {
        if (e->graph->value[i].kind != MEG_PARAMETER) continue;
        begin_weight(&w, i);
        for (int count = next_sharers(&w); count; count = next_sharers(&w)) {
            const meg_box *box = &w.box[w.same[0]];
            add_cut(s, (cut){meg_extent(box, meg_shard_axis(box)), count});
        }
    }
    weights_free(&w);
}

/* ---- messages ---- */

/* One end of a message: how much, and where it lies in what the rank has. */
static void add_end(const sorter *s, uint64_t *sign, int rank, const meg_parcel *m, int64_t what)
{
    uint64_t *h = &sign[s->kind[rank / s->p->each] * s->p->each + rank % s->p->each];
    add(h, what);
    add(h, m->from == m->to);
    for (int a = 0; a < MEG_AXES; a++)
        add(h, meg_extent(&m->box, a));
    add(h, m->box.lo[MEG_C] % BLOCK);
}

static void send(sorter *s, const meg_entry *e, int value, uint64_t *sign)
{
    int segment = e->segment_of[e->graph->value[value].maker], size = e->segment[segment].size;
    meg_pool *pool = meg_pool_new();
    for (int k = 0; k < s->kinds; k++)
        for (int d = 0; d < e->timetable->directions; d++) {
            meg_positions to = {.first = s->replica[k] * size, .end = (s->replica[k] + 1) * size};
            meg_transfer t = meg_entry_transfer(pool, e, value, d, to);
            for (int64_t i = 0; i < t.messages; i++) {
                int64_t what = 4 * (int64_t)value + 2 * d;
                add_end(s, sign, t.message[i].from, &t.message[i], what);
                add_end(s, sign, t.message[i].to, &t.message[i], what + 1);
            }
        }
    meg_pool_free(pool);
}

/* ---- classes ---- */

static void sign_entry(sorter *s, int number)
{
    const meg_entry *e = &s->p->entry[number];
    uint64_t *sign = s->sign[number];
    place_segments(s, e, sign);
    for (int k = 0; k < s->kinds; k++)
        for (int r = 0; r < s->p->each; r++)
            place_rank(s, e, s->replica[k] * s->p->each + r, &sign[k * s->p->each + r]);
    weigh(s, e, sign);
    for (int i = 0; i < e->graph->values; i++)
        if (e->exchange_number[i] >= 0) send(s, e, i, sign);
}

/* A rank without samples is lowered like one of the last replica, but has its own shards. */
static uint64_t sign_rank(const sorter *s, int kind, int local)
{
    const meg_plan *p = s->p;
    int at = kind * p->each + local, like = s->kind[p->replicas - 1] * p->each + local;
    uint64_t h = s->shards[at];
    for (int i = 0; i < MEG_ENTRIES; i++) {
        if (!is_there(&p->entry[i])) continue;
        bool idle = is_idle(s, i, s->replica[kind]);
        add(&h, idle);
        add(&h, (int64_t)s->sign[i][idle ? like : at]);
    }
    return h;
}

typedef struct signed_rank {
    uint64_t sign;
    int kind, local;
} signed_rank;

static int by_sign(const void *a, const void *b)
{
    const signed_rank *x = a, *y = b;
    return x->sign != y->sign ? (x->sign < y->sign ? -1 : 1) : 0;
}

/* Numbers in the order of the ranks. */
static void number(const sorter *s, const int *group, meg_classes *c)
{
    int each = s->p->each;
    int *known = meg_pool_alloc(s->pool, (size_t)(s->kinds * each + 1) * sizeof *known);
    for (int r = 0; r < c->ranks; r++) {
        int *at = &known[group[s->kind[r / each] * each + r % each]];
        if (*at == 0) *at = ++c->count;
        c->of[r] = *at - 1;
        c->last[*at - 1] = r;
        c->size[*at - 1]++;
    }
}

static void group(const sorter *s, meg_classes *c)
{
    int count = s->kinds * s->p->each, groups = 0;
    signed_rank *all = meg_pool_alloc(s->pool, (size_t)count * sizeof *all);
    int *of = meg_pool_alloc(s->pool, (size_t)count * sizeof *of);
    for (int i = 0; i < count; i++) {
        int kind = i / s->p->each, local = i % s->p->each;
        all[i] = (signed_rank){sign_rank(s, kind, local), kind, local};
    }
    qsort(all, (size_t)count, sizeof *all, by_sign);
    for (int i = 0; i < count; i++) {
        groups += i > 0 && all[i].sign != all[i - 1].sign;
        of[all[i].kind * s->p->each + all[i].local] = groups;
    }
    number(s, of, c);
}

meg_classes *meg_classes_new(const meg_plan *p)
{
    meg_pool *pool = meg_pool_new();
    meg_classes *c = meg_pool_alloc(pool, sizeof *c);
    sorter s = {.p = p, .pool = meg_pool_new()};
    *c = (meg_classes){.pool = pool, .ranks = p->world.ranks};
    size_t ranks = (size_t)p->world.ranks;
    c->of = meg_pool_alloc(pool, ranks * sizeof *c->of);
    c->last = meg_pool_alloc(pool, ranks * sizeof *c->last);
    c->size = meg_pool_alloc(pool, ranks * sizeof *c->size);
    for (int i = 0; i < MEG_ENTRIES; i++) {
        const meg_entry *e = &p->entry[i];
        if (!is_there(e)) continue;
        s.at[i] = meg_plan_samples(p, e->batch / e->micro, p->replicas);
        if (p->options.zero) find_cuts(&s, e);
    }
    find_kinds(&s, c);
    size_t all = (size_t)s.kinds * (size_t)p->each;
    s.shards = meg_pool_alloc(s.pool, all * sizeof *s.shards);
    for (int i = 0; i < MEG_ENTRIES; i++) {
        if (!is_there(&p->entry[i])) continue;
        s.sign[i] = meg_pool_alloc(s.pool, all * sizeof *s.sign[i]);
        sign_entry(&s, i);
    }
    group(&s, c);
    free(s.cut);
    meg_pool_free(s.pool);
    return c;
}

void meg_classes_free(meg_classes *c)
{
    if (c) meg_pool_free(c->pool);
}
