/* What goes from rank to rank on behalf of values: halos of what neighbours have made, and values
 * that move to another segment, straight from those that make them to each that reads them, however
 * far apart they are:
 *
 *     stage 0      1      2           forward: x to 1 and to 2
 *           x ---> x
 *           x -----------> x          backward: dx from 2 and from 1, added in that order
 *
 * Messages are boxes in plain format, so that sender and receiver need not agree on another. Receives
 * stand at the head of their block: the engine posts them ahead of their use. The gradient takes the
 * same way back, and adds.
 */
#include "plan/lower/lowering.h"

/* ---- exchanges ---- */

/* Do nodes of the segment that makes the value send one back? */
static bool returns(const meg_lower *l, int value)
{
    const meg_entry *e = l->entry;
    int segment = e->segment_of[l->g->value[value].maker];
    for (int i = e->reader_first[value]; i < e->reader_first[value + 1]; i++)
        if (e->segment_of[e->reader[i]] == segment &&
            meg_lower_gives(l, &l->g->node[e->reader[i]], value))
            return true;
    return false;
}

/* Those of a transfer that concern this rank, as sender in one stage and receiver in another. */
static void pick(meg_lower *l, meg_exchange *x, const meg_transfer *t, bool within)
{
    int maker = l->g->value[x->from].maker, taker = l->g->value[x->to].maker, own[2];
    for (int k = 0; k < 2; k++) {
        int node = k ? taker : maker;
        own[k] = l->mine[node] ? meg_lower_rank(l, l->entry->segment_of[node]) : -1;
    }
    x->send = meg_pool_alloc(l->pool, ((size_t)t->messages + 1) * sizeof *x->send);
    x->receive = meg_pool_alloc(l->pool, ((size_t)t->messages + 1) * sizeof *x->receive);
    for (int64_t i = 0; i < t->messages; i++) {
        const meg_parcel *m = &t->message[i];
        bool stays = within && m->from == m->to;
        if (m->from == own[0] && !stays) x->send[x->sends++] = *m;
        if (m->to == own[1]) x->receive[x->receives++] = *m;
    }
    x->came = meg_pool_alloc(l->pool, ((size_t)x->receives + 1) * sizeof(int));
    x->returned = meg_pool_alloc(l->pool, ((size_t)x->sends + 1) * sizeof(int));
    for (int i = 0; i < x->receives; i++)
        x->came[i] = -1;
}

static void add_exchange(meg_lower *l, meg_exchange x, int *of)
{
    if (x.sends + x.receives == 0) return;
    *of = l->exchanges;
    l->exchange[l->exchanges++] = x;
}

/* The rank's position, if it runs the node. */
static int position_of(const meg_lower *l, int node)
{
    return l->mine[node] ? l->out->position[l->entry->segment_of[node]] : -1;
}

/* Who may take what the rank makes, and where it takes itself. */
static meg_positions concerned(const meg_lower *l, int x, const meg_node *v)
{
    const meg_entry *e = l->entry;
    int makes = position_of(l, l->g->value[x].maker), takes = position_of(l, v->id);
    meg_positions own = {0}, all = {0};
    if (takes >= 0) all = own = meg_entry_peers(e, e->segment_of[v->id], takes);
    if (makes >= 0) all = meg_entry_takers(e, x, v->out[0], makes);
    if (makes >= 0 && takes >= 0) {
        if (own.first < all.first) all.first = own.first;
        if (own.end > all.end) all.end = own.end;
    }
    all.some = true;
    all.makes = makes;
    all.takes = takes;
    return all;
}

static void add_move(meg_lower *l, const meg_node *v)
{
    const meg_entry *e = l->entry;
    int x = v->in[0], y = v->out[0], maker = l->g->value[x].maker;
    const meg_segment *from = &e->segment[e->segment_of[maker]];
    const meg_segment *to = &e->segment[e->segment_of[v->id]];
    if (!l->mine[maker] && !l->mine[v->id]) return;
    meg_positions to_whom = concerned(l, x, v);
    meg_transfer t = meg_entry_transfer(l->pool, e, y, l->out->direction, to_whom);
    meg_exchange exchange = {
        .from = x, .to = y, .tag = meg_tag_of_exchange(e, e->exchange_number[y])};
    exchange.back = returns(l, y) && l->grad[x]; /* what a reader feeds has none */
    pick(l, &exchange, &t, from->stage == to->stage);
    add_exchange(l, exchange, &l->moved[y]);
}

static void add_halo(meg_lower *l, int value)
{
    const meg_entry *e = l->entry;
    int maker = l->g->value[value].maker, position = position_of(l, maker);
    if (e->exchange_number[value] < 0 || position < 0) return;
    meg_positions to = {.end = meg_entry_mesh(e, 0, e->segment_of[maker])->size};
    if (!e->mixes[value]) to = meg_entry_peers(e, e->segment_of[maker], position);
    to.some = true;
    to.makes = to.takes = position;
    meg_transfer t = meg_entry_transfer(l->pool, e, value, l->out->direction, to);
    meg_exchange x = {
        .from = value, .to = value, .tag = meg_tag_of_exchange(e, e->exchange_number[value])};
    x.back = returns(l, value);
    pick(l, &x, &t, false);
    add_exchange(l, x, &l->halo[value]);
}

void meg_lower_exchanges(meg_lower *l)
{
    const meg_graph *g = l->g;
    size_t values = (size_t)g->values + 1;
    l->exchange = meg_pool_alloc(l->pool, values * sizeof *l->exchange);
    l->halo = meg_pool_alloc(l->pool, values * sizeof(int));
    l->moved = meg_pool_alloc(l->pool, values * sizeof(int));
    for (size_t i = 0; i < values; i++)
        l->halo[i] = l->moved[i] = -1;
    for (int i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].outputs; k++)
            if (meg_is_move(&g->node[i])) add_move(l, &g->node[i]);
            else add_halo(l, g->node[i].out[k]);
}

/* ---- messages ---- */

/* Labels that come from another rank stay for the step, as those that were loaded do. */
static bool is_early(const meg_lower *l, int value)
{
    int maker = l->g->value[value].maker;
    return maker >= 0 && l->early[maker];
}

static int step_slot(meg_lower *l, meg_slot s)
{
    s.per_micro = meg_box_size(&s.box) * meg_dtype_bytes(s.dtype);
    return meg_lower_step_slot(l, s);
}

static int received(meg_lower *l, int value, meg_role role, const meg_parcel *m, int tag)
{
    meg_instr i = meg_lower_instr(MEG_RECV, NULL, MEG_FORWARD);
    meg_slot s = {.role = role,
                  .value = value,
                  .box = m->box,
                  .dtype = meg_entry_dtype(l->entry, l->g->value[value].dtype),
                  .format = MEG_FORMAT_PLAIN,
                  .region = MEG_FRAME};
    i.slot[MEG_Y] = is_early(l, value) ? step_slot(l, s) : meg_lower_slot(l, s);
    i.written = MEG_BIT(MEG_Y);
    i.peer = role == MEG_ROLE_VALUE ? m->from : m->to;
    i.tag = tag;
    meg_lower_emit(l, &i);
    return i.slot[MEG_Y];
}

static void send(meg_lower *l, int slot, int peer, int tag)
{
    meg_instr i = meg_lower_instr(MEG_SEND, NULL, MEG_FORWARD);
    i.slot[MEG_X] = slot;
    i.peer = peer;
    i.tag = tag;
    meg_lower_emit(l, &i);
}

static bool stays(const meg_lower *l, const meg_exchange *x, int receive)
{
    const meg_parcel *m = &x->receive[receive];
    int maker = l->g->value[x->from].maker;
    return m->from == m->to && l->mine[maker];
}

/* ---- values ---- */

void meg_lower_receive(meg_lower *l, bool early)
{
    for (int i = 0; i < l->exchanges; i++) {
        meg_exchange *x = &l->exchange[i];
        for (int k = 0; k < x->receives && is_early(l, x->to) == early; k++)
            if (!stays(l, x, k))
                x->came[k] = received(l, x->to, MEG_ROLE_VALUE, &x->receive[k], x->tag);
    }
}

static void send_pieces(meg_lower *l, const meg_exchange *x)
{
    for (int k = 0; k < x->sends; k++) {
        int slot = meg_lower_piece(l, x->from, &x->send[k].box);
        if (slot == l->home[x->from]) l->goes[x->from] = true;
        send(l, slot, x->send[k].to, x->tag);
    }
}

void meg_lower_send(meg_lower *l, int value)
{
    if (l->halo[value] >= 0) send_pieces(l, &l->exchange[l->halo[value]]);
    for (int i = 0; i < l->exchanges; i++)
        if (l->exchange[i].from == value && l->exchange[i].to != value)
            send_pieces(l, &l->exchange[i]);
}

static int came(meg_lower *l, const meg_exchange *x, int k)
{
    if (x->came[k] >= 0) return x->came[k];
    return meg_lower_piece(l, x->from, &x->receive[k].box);
}

/* Of labels that are a part of others, or put together from parts: for the step. */
static int early_home(meg_lower *l, int value, int first)
{
    int slot = step_slot(
        l,
        (meg_slot){.value = value, .box = l->out->box[value], .dtype = l->out->slot[first].dtype});
    meg_lower_fill(l, slot, first);
    return slot;
}

/* A message that is all there is to a value is its home. */
static void take_moved(meg_lower *l, int value)
{
    const meg_exchange *x = &l->exchange[l->moved[value]];
    int slot = came(l, x, 0);
    bool all = meg_box_equal(&l->out->slot[slot].box, &l->out->box[value]);
    bool early = is_early(l, value), lasts = l->out->slot[slot].region == MEG_STEP;
    if (early && !(all && lasts)) slot = early_home(l, value, slot);
    else if (!all) slot = meg_lower_cut(l, slot, &l->out->box[value], MEG_FORMAT_PLAIN);
    if (slot == l->home[x->from]) l->goes[x->from] = l->goes[value] = true; /* both are there */
    l->home[value] = slot;
    l->format[value] = MEG_FORMAT_PLAIN;
    for (int k = 1; k < x->receives; k++)
        meg_lower_fill(l, slot, came(l, x, k));
}

void meg_lower_take(meg_lower *l, int value)
{
    if (l->moved[value] >= 0) take_moved(l, value);
    else meg_lower_fill_halo(l, value);
}

/* ---- gradients ---- */

void meg_lower_receive_back(meg_lower *l)
{
    for (int i = l->exchanges - 1; i >= 0; i--) {
        meg_exchange *x = &l->exchange[i];
        for (int k = 0; k < x->sends && x->back; k++)
            x->returned[k] = received(l, x->from, MEG_ROLE_GRADIENT, &x->send[k],
                                      x->tag + l->entry->micro);
    }
}

/* What a rank has of a received value's gradient goes to those that sent the value. */
void meg_lower_send_back(meg_lower *l, int number)
{
    const meg_exchange *x = &l->exchange[number];
    meg_contributions *p = &l->parts[x->to];
    if (!x->back) return;
    meg_lower_some(l, x->to);
    meg_lower_gather(l, x->to, 1);
    int all = p->slot[0];
    for (int k = 0; k < x->receives; k++) {
        const meg_parcel *m = &x->receive[k];
        bool same = meg_box_equal(&m->box, &l->out->slot[all].box) &&
                    l->out->slot[all].format == MEG_FORMAT_PLAIN;
        int slot = same ? all : meg_lower_cut(l, all, &m->box, MEG_FORMAT_PLAIN);
        if (stays(l, x, k)) meg_lower_contribute(l, x->from, slot, NULL);
        else send(l, slot, m->from, x->tag + l->entry->micro);
    }
    if (x->from == x->to) return; /* the rest of it is the rank's own */
    l->holders[all]--;
    p->count = 0;
}

/* In the order in which the value was sent: the reverse of backward's. */
void meg_lower_take_back(meg_lower *l, int value)
{
    for (int i = l->exchanges - 1; i >= 0; i--) {
        const meg_exchange *x = &l->exchange[i];
        for (int k = 0; k < x->sends && x->from == value && x->back; k++)
            meg_lower_contribute(l, value, x->returned[k], NULL);
    }
}
