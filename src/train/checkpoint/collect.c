/* Collecting: see collect.h. Orders and pieces use one tag, the highest that is free: between two
 * ranks they stay in order.
 */
#include "train/checkpoint/collect.h"
#include "base/random.h"

#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 4 << 20 /* bytes of a message */
};

typedef enum order_code {
    ORDER_END,
    ORDER_BOX, /* of what the rank holds of the item */
    ORDER_GET, /* what it holds */
    ORDER_PUT
} order_code;

typedef struct order {
    int32_t code, item;
} order;

struct meg_collection {
    meg_engine *engine;
    meg_comm *comm;
    meg_pool *pool;
    int rank, ranks;
    int count;
    meg_item *item;
    unsigned char *held; /* (ranks, 2, width): a bit for each candidate: held, all of it held */
    int *bit;            /* (count): of an item */
    int64_t width;
    char *piece;         /* PIECE bytes */
    meg_letter **letter; /* (ranks) */
};

/* ---- messages ---- */

static meg_status give(meg_collection *c, meg_error *e, int peer, const void *data, int64_t bytes)
{
    meg_letter *m = NULL;
    MEG_TRY(e, meg_comm_send(c->comm, e, peer, meg_comm_tags(c->comm) - 1, data, bytes, &m));
    return meg_comm_wait(c->comm, e, &m);
}

static meg_status receive(meg_collection *c, meg_error *e, int peer, void *data, int64_t bytes)
{
    meg_letter *m = NULL;
    MEG_TRY(e, meg_comm_recv(c->comm, e, peer, meg_comm_tags(c->comm) - 1, data, bytes, &m));
    return meg_comm_wait(c->comm, e, &m);
}

static bool has_bit(const meg_collection *c, int rank, bool all, int bit)
{
    return c->held[(2 * rank + all) * c->width + bit / 8] >> bit % 8 & 1;
}

static bool holds(const meg_collection *c, int rank, int bit)
{
    return has_bit(c, rank, false, bit);
}

/* Some rank has all of it: its `owner`. */
static bool is_whole(const meg_collection *c, int item)
{
    return has_bit(c, c->item[item].owner, true, c->bit[item]);
}

/* What this rank holds of an item. */
static meg_box box_of(const meg_collection *c, int item)
{
    const meg_plan *p = meg_engine_plan(c->engine);
    const meg_item *t = &c->item[item];
    for (int k = 0; k < p->held_slots; k++) {
        const meg_held_slot *h = &p->held[k];
        if (h->value == t->value->id && h->role == t->role && h->index == t->index) return h->box;
    }
    return (meg_box){{0}, {0}};
}

static int64_t box_bytes(const meg_collection *c, const meg_box *box)
{
    return meg_box_size(box) * meg_dtype_bytes(meg_engine_real(c->engine));
}

static int64_t item_bytes(const meg_collection *c, int item)
{
    return meg_box_size(&c->item[item].value->shape) * meg_dtype_bytes(meg_engine_real(c->engine));
}

/* ---- what there is ---- */

static void add_candidate(meg_collection *c, const meg_value *v, meg_role role, int index)
{
    const meg_plan *p = meg_engine_plan(c->engine);
    const char *name = v->name;
    if (role == MEG_ROLE_STATE)
        name = meg_pool_text(c->pool, "%s#%s", v->name, p->optimizer->state[index]);
    c->item[c->count++] = (meg_item){name, v, role, index, -1};
}

/* Everything that some rank may hold: the same list on all ranks, since all know the whole graph. */
static void list_candidates(meg_collection *c, int what)
{
    const meg_graph *g = meg_engine_graph(c->engine);
    const meg_plan *p = meg_engine_plan(c->engine);
    int states = meg_optimizer_states(p->optimizer, p->settings);
    size_t room = (size_t)g->values * (size_t)(states + 2);
    c->item = meg_pool_alloc(c->pool, (room + 1) * sizeof *c->item);
    for (int i = 0; i < g->values; i++) {
        const meg_value *v = &g->value[i];
        bool parameter = v->kind == MEG_PARAMETER, state = v->kind == MEG_STATE;
        if ((meg_kind_lasts(v->kind) && what & MEG_COLLECT_VALUES) ||
            (state && what & MEG_COLLECT_STATISTICS))
            add_candidate(c, v, MEG_ROLE_VALUE, 0);
        if (parameter && what & MEG_COLLECT_GRADIENTS) add_candidate(c, v, MEG_ROLE_GRADIENT, 0);
        for (int k = 0; parameter && what & MEG_COLLECT_OPTIMIZER && k < states; k++)
            add_candidate(c, v, MEG_ROLE_STATE, k);
    }
}

static void mark_held(const meg_collection *c, unsigned char *mine)
{
    const meg_plan *p = meg_engine_plan(c->engine);
    int *first = meg_pool_alloc(c->pool,
                                (size_t)meg_engine_graph(c->engine)->values * sizeof *first);
    for (int i = c->count - 1; i >= 0; i--)
        first[c->item[i].value->id] = i; /* candidates of a value stand side by side */
    for (int k = 0; k < p->held_slots; k++) {
        const meg_held_slot *h = &p->held[k];
        if (h->value < 0) continue;
        for (int i = first[h->value]; i < c->count && c->item[i].value->id == h->value; i++)
            if (h->role == c->item[i].role && h->index == c->item[i].index) {
                unsigned char bit = (unsigned char)(1u << i % 8);
                mine[i / 8] |= bit;
                if (meg_box_equal(&h->box, &c->item[i].value->shape)) mine[c->width + i / 8] |= bit;
            }
    }
}

/* Ranks whose lists differ would misunderstand each other: another network, or another device. */
static meg_status compare(const meg_collection *c, meg_error *e)
{
    uint64_t hash = meg_hash_word(meg_hash("items"), (uint64_t)meg_engine_real(c->engine));
    for (int i = 0; i < c->count; i++)
        hash = meg_hash_bytes(hash, c->item[i].name, strlen(c->item[i].name) + 1);
    uint64_t *all = meg_pool_alloc(c->pool, (size_t)c->ranks * sizeof *all);
    MEG_TRY(e, meg_comm_gather(c->comm, e, &hash, sizeof hash, all));
    for (int r = 1; r < c->ranks; r++)
        MEG_CHECK(e, all[r] == all[0], MEG_EARG,
                  "rank %d has another network or another type of numbers than rank 0: start all"
                  " ranks with the same words",
                  r);
    return MEG_OK;
}

static meg_status find_owners(meg_collection *c, meg_error *e)
{
    unsigned char *mine = meg_pool_alloc(c->pool, (size_t)(2 * c->width));
    int count = 0;
    mark_held(c, mine);
    c->held = meg_pool_alloc(c->pool, (size_t)(2 * c->ranks * c->width));
    c->bit = meg_pool_alloc(c->pool, (size_t)(c->count + 1) * sizeof *c->bit);
    if (c->comm) MEG_TRY(e, compare(c, e));
    if (c->comm) MEG_TRY(e, meg_comm_gather(c->comm, e, mine, 2 * c->width, c->held));
    else memcpy(c->held, mine, (size_t)(2 * c->width));
    for (int i = 0; i < c->count; i++) {
        int owner = 0;
        while (owner < c->ranks && !has_bit(c, owner, true, i))
            owner++;
        for (int r = 0; owner == c->ranks && r < c->ranks; r++)
            if (holds(c, r, i)) owner = r; /* of a part; others have the rest */
        if (owner == c->ranks) continue;   /* nobody has it: a gradient that is not kept */
        c->item[count] = c->item[i];
        c->item[count].owner = owner;
        c->bit[count++] = i;
    }
    c->count = count;
    return MEG_OK;
}

int meg_collection_count(const meg_collection *c)
{
    return c->count;
}

const meg_item *meg_collection_item(const meg_collection *c, int i)
{
    return &c->item[i];
}

int meg_collection_find(const meg_collection *c, const char *name)
{
    for (int i = 0; i < c->count; i++)
        if (strcmp(c->item[i].name, name) == 0) return i;
    return -1;
}

meg_dtype meg_collection_real(const meg_collection *c)
{
    return meg_engine_real(c->engine);
}

/* ---- getting ---- */

typedef struct local { /* from, or to, this rank's engine */
    const meg_item *item;
    meg_collect_take *take;
    meg_collect_give *give;
    void *context;
    int64_t each; /* bytes of an element */
    meg_status status;
} local;

static void take_local(void *context, const meg_box *box, void *data)
{
    local *l = context;
    if (l->status == MEG_OK) l->status = l->take(l->context, data, meg_box_size(box));
}

/* After an error of `take` the rest is received all the same: its sender must get rid of it. */
static meg_status get_remote(meg_collection *c, meg_error *e, int item, meg_collect_take *take,
                             void *to)
{
    int owner = c->item[item].owner;
    int64_t element = meg_dtype_bytes(meg_engine_real(c->engine)), left = item_bytes(c, item);
    meg_status status = MEG_OK;
    order o = {ORDER_GET, item};
    MEG_TRY(e, give(c, e, owner, &o, sizeof o));
    while (left > 0) {
        int64_t bytes = left < PIECE ? left : PIECE;
        MEG_TRY(e, receive(c, e, owner, c->piece, bytes));
        if (status == MEG_OK) status = take(to, c->piece, bytes / element);
        left -= bytes;
    }
    return status;
}

/* ---- items in parts ---- */

typedef struct whole { /* an item that is put together from parts */
    const meg_value *value;
    char *data;
    int64_t each;
} whole;

static void place_part(void *context, const meg_box *box, void *data)
{
    const whole *w = context;
    meg_box starts;
    int64_t p[MEG_AXES], run = meg_box_runs(&w->value->shape, box, &starts);
    for (bool on = meg_box_first(&starts, p); on; on = meg_box_next(&starts, p))
        memcpy(w->data + meg_box_at(&w->value->shape, p) * w->each,
               (char *)data + meg_box_at(box, p) * w->each, (size_t)(run * w->each));
}

static meg_status ask_box(meg_collection *c, meg_error *e, int rank, int item, meg_box *box)
{
    order o = {ORDER_BOX, item};
    MEG_TRY(e, give(c, e, rank, &o, sizeof o));
    return receive(c, e, rank, box, sizeof *box);
}

static meg_status fetch_part(meg_collection *c, meg_error *e, int rank, int item,
                             const meg_box *box, whole *w)
{
    order o = {ORDER_GET, item};
    int64_t bytes = box_bytes(c, box);
    char *part = malloc((size_t)bytes);
    meg_status status = MEG_OK;
    if (!part) return meg_fail(e, MEG_ENOMEM, "no memory to collect %s", c->item[item].name);
    status = give(c, e, rank, &o, sizeof o);
    for (int64_t at = 0; at < bytes && status == MEG_OK; at += PIECE)
        status = receive(c, e, rank, part + at, bytes - at < PIECE ? bytes - at : PIECE);
    if (status == MEG_OK) place_part(w, box, part);
    free(part);
    return status;
}

/* Asks those that hold parts until all is there; equal parts only once. */
static meg_status join_parts(meg_collection *c, meg_error *e, int item, whole *w)
{
    const meg_item *t = &c->item[item];
    meg_box *seen = meg_pool_alloc(c->pool, (size_t)c->ranks * sizeof *seen);
    int64_t missing = meg_box_size(&t->value->shape);
    for (int r = 0, count = 0; r < c->ranks && missing > 0; r++) {
        bool again = false;
        if (!holds(c, r, c->bit[item])) continue;
        if (r == 0) seen[count] = box_of(c, item);
        else MEG_TRY(e, ask_box(c, e, r, item, &seen[count]));
        for (int k = 0; k < count; k++)
            again = again || meg_box_equal(&seen[k], &seen[count]);
        if (again) continue;
        missing -= meg_box_size(&seen[count]);
        if (r == 0) meg_engine_get(c->engine, t->value->id, t->role, t->index, place_part, w);
        else MEG_TRY(e, fetch_part(c, e, r, item, &seen[count], w));
        count++;
    }
    MEG_CHECK(e, missing == 0, MEG_EARG, "%s: no rank has all of it", t->name);
    return MEG_OK;
}

static meg_status get_parts(meg_collection *c, meg_error *e, int item, meg_collect_take *take,
                            void *to)
{
    int64_t each = meg_dtype_bytes(meg_engine_real(c->engine));
    whole w = {c->item[item].value, malloc((size_t)item_bytes(c, item)), each};
    if (!w.data) return meg_fail(e, MEG_ENOMEM, "no memory to collect %s", c->item[item].name);
    meg_status status = join_parts(c, e, item, &w);
    if (status == MEG_OK) status = take(to, w.data, item_bytes(c, item) / each);
    free(w.data);
    return status;
}

meg_status meg_collection_get(meg_collection *c, meg_error *e, int item, meg_collect_take *take,
                              void *to)
{
    const meg_item *t = &c->item[item];
    if (!is_whole(c, item)) return get_parts(c, e, item, take, to);
    if (t->owner != 0) return get_remote(c, e, item, take, to);
    local l = {.item = t, .take = take, .context = to};
    meg_engine_get(c->engine, t->value->id, t->role, t->index, take_local, &l);
    return l.status;
}

/* ---- putting ---- */

static void give_local(void *context, const meg_box *box, void *data)
{
    const local *l = context;
    const meg_box *shape = &l->item->value->shape;
    meg_box starts;
    int64_t p[MEG_AXES], run = meg_box_runs(shape, box, &starts);
    for (bool on = meg_box_first(&starts, p); on; on = meg_box_next(&starts, p))
        l->give(l->context, meg_box_at(shape, p), run, (char *)data + meg_box_at(box, p) * l->each);
}

/* To each that holds a part, what it holds. */
static meg_status put_parts(meg_collection *c, meg_error *e, int item, meg_collect_give *source,
                            void *from)
{
    const meg_item *t = &c->item[item];
    int64_t each = meg_dtype_bytes(meg_engine_real(c->engine));
    local l = {.item = t, .give = source, .context = from, .each = each};
    meg_engine_put(c->engine, t->value->id, t->role, t->index, give_local, &l);
    for (int r = 1; r < c->ranks; r++) {
        meg_box box;
        order o = {ORDER_PUT, item};
        if (!holds(c, r, c->bit[item])) continue;
        MEG_TRY(e, ask_box(c, e, r, item, &box));
        MEG_TRY(e, give(c, e, r, &o, sizeof o));
        int64_t bytes = box_bytes(c, &box);
        char *part = malloc((size_t)bytes);
        if (!part) return meg_fail(e, MEG_ENOMEM, "no memory to hand out %s", t->name);
        give_local(&l, &box, part);
        meg_status status = MEG_OK;
        for (int64_t at = 0; at < bytes && status == MEG_OK; at += PIECE)
            status = give(c, e, r, part + at, bytes - at < PIECE ? bytes - at : PIECE);
        free(part);
        MEG_TRY(e, status);
    }
    return MEG_OK;
}

/* Does every rank that holds the item hold all of it? */
static bool all_whole(const meg_collection *c, int item)
{
    for (int r = 0; r < c->ranks; r++)
        if (holds(c, r, c->bit[item]) && !has_bit(c, r, true, c->bit[item])) return false;
    return true;
}

/* The same piece to all that hold the item, at once. */
static meg_status give_all(meg_collection *c, meg_error *e, int bit, const void *data,
                           int64_t bytes)
{
    meg_status status = MEG_OK;
    int tag = meg_comm_tags(c->comm) - 1;
    for (int r = 1; r < c->ranks && status == MEG_OK; r++)
        if (holds(c, r, bit))
            status = meg_comm_send(c->comm, e, r, tag, data, bytes, &c->letter[r]);
    for (int r = 1; r < c->ranks && status == MEG_OK; r++)
        status = meg_comm_wait(c->comm, e, &c->letter[r]);
    return status;
}

meg_status meg_collection_put(meg_collection *c, meg_error *e, int item, meg_collect_give *source,
                              void *from)
{
    const meg_item *t = &c->item[item];
    int64_t element = meg_dtype_bytes(meg_engine_real(c->engine)), all = item_bytes(c, item);
    bool remote = false;
    if (!all_whole(c, item)) return put_parts(c, e, item, source, from);
    for (int r = 1; r < c->ranks; r++)
        remote = remote || holds(c, r, c->bit[item]);
    order o = {ORDER_PUT, item};
    if (remote) MEG_TRY(e, give_all(c, e, c->bit[item], &o, sizeof o));
    for (int64_t at = 0; remote && at < all; at += PIECE) {
        int64_t bytes = all - at < PIECE ? all - at : PIECE;
        source(from, at / element, bytes / element, c->piece);
        MEG_TRY(e, give_all(c, e, c->bit[item], c->piece, bytes));
    }
    local l = {.item = t, .give = source, .context = from, .each = element};
    meg_engine_put(c->engine, t->value->id, t->role, t->index, give_local, &l);
    return MEG_OK;
}

/* ---- serving ---- */

typedef struct stream { /* the engine's pieces and those of messages need not be the same */
    meg_collection *c;
    meg_error *error;
    int64_t left, at, full; /* bytes of the item to come; of the piece: done, in all */
    meg_status status;
} stream;

static int64_t next_piece(stream *s)
{
    s->at = 0;
    s->full = s->left < PIECE ? s->left : PIECE;
    s->left -= s->full;
    return s->full;
}

static void send_pieces(void *context, const meg_box *box, void *data)
{
    stream *s = context;
    const char *from = data;
    int64_t bytes = meg_box_size(box) * meg_dtype_bytes(meg_engine_real(s->c->engine));
    while (bytes > 0 && s->status == MEG_OK) {
        int64_t room = s->full - s->at, part = bytes < room ? bytes : room;
        memcpy(s->c->piece + s->at, from, (size_t)part);
        from += part, bytes -= part, s->at += part;
        if (s->at < s->full) return;
        s->status = give(s->c, s->error, 0, s->c->piece, s->full);
        next_piece(s);
    }
}

static void receive_pieces(void *context, const meg_box *box, void *data)
{
    stream *s = context;
    char *to = data;
    int64_t bytes = meg_box_size(box) * meg_dtype_bytes(meg_engine_real(s->c->engine));
    while (bytes > 0 && s->status == MEG_OK) {
        if (s->at == s->full) s->status = receive(s->c, s->error, 0, s->c->piece, next_piece(s));
        int64_t room = s->full - s->at, part = bytes < room ? bytes : room;
        memcpy(to, s->c->piece + s->at, (size_t)part);
        to += part, bytes -= part, s->at += part;
    }
}

static meg_status serve(meg_collection *c, meg_error *e)
{
    for (;;) {
        order o;
        MEG_TRY(e, receive(c, e, 0, &o, sizeof o));
        if (o.code == ORDER_END) return MEG_OK;
        const meg_item *t = &c->item[o.item];
        meg_box box = box_of(c, o.item);
        stream s = {.c = c, .error = e, .left = box_bytes(c, &box)};
        if (o.code == ORDER_BOX) {
            MEG_TRY(e, give(c, e, 0, &box, sizeof box));
            continue;
        }
        if (o.code == ORDER_GET) {
            next_piece(&s);
            meg_engine_get(c->engine, t->value->id, t->role, t->index, send_pieces, &s);
        } else meg_engine_put(c->engine, t->value->id, t->role, t->index, receive_pieces, &s);
        MEG_TRY(e, s.status);
    }
}

/* ---- the whole ---- */

static meg_status dismiss(meg_collection *c, meg_error *e)
{
    order o = {ORDER_END, 0};
    for (int r = 1; r < c->ranks; r++)
        MEG_TRY(e, give(c, e, r, &o, sizeof o));
    return MEG_OK;
}

static meg_status run(meg_collection *c, meg_error *e, meg_collect_work *work, void *context)
{
    meg_error trouble = {0}; /* of the messages; what `work` says comes first */
    MEG_TRY(e, find_owners(c, e));
    if (c->rank != 0) return serve(c, e);
    meg_status status = work(context, c, e);
    if (dismiss(c, &trouble) != MEG_OK && status == MEG_OK)
        return meg_fail(e, trouble.status, "%s", trouble.message);
    return status;
}

meg_status meg_collect(meg_engine *x, meg_comm *comm, meg_error *e, int what,
                       meg_collect_work *work, void *context)
{
    meg_error mine = {0}; /* `e` may still hold an older one */
    meg_collection c = {.engine = x, .comm = comm, .pool = meg_pool_new()};
    c.rank = comm ? meg_comm_rank(comm) : 0;
    c.ranks = comm ? meg_comm_size(comm) : 1;
    list_candidates(&c, what);
    c.width = (c.count + 7) / 8;
    c.letter = meg_pool_alloc(c.pool, (size_t)c.ranks * sizeof *c.letter);
    c.piece = malloc(PIECE);
    if (!c.piece) meg_fail(&mine, MEG_ENOMEM, "no memory to collect weights");
    meg_status status = comm ? meg_comm_agree(comm, &mine) : mine.status;
    if (status == MEG_OK) {
        mine.status = run(&c, &mine, work, context);
        status = comm ? meg_comm_agree(comm, &mine) : mine.status;
    }
    if (status != MEG_OK) *e = mine;
    free(c.piece);
    meg_pool_free(c.pool);
    return status;
}
