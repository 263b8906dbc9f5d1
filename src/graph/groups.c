/* Groups of nodes: see groups.h. First every node gets a label, from its name; then nodes of one
 * label are gathered into pieces, in the order of the graph, as long as no cycle arises; then the
 * pieces are put in order.
 */
#include "graph/groups.h"
#include "graph/op.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct link { /* to a piece that feeds another */
    int piece, next;
} link;

typedef struct builder {
    const meg_graph *graph;
    meg_groups *out;
    meg_level level;
    const char **label; /* (nodes) */
    bool *lone;         /* (nodes): its label is the name of a single node, perhaps of another */
    int *piece;         /* (nodes): -1: not yet in one */
    int pieces;
    const char **piece_label; /* (pieces) */
    int *feeders;             /* (pieces): first of its links; -1: none */
    link *links;
    size_t link_count, link_room;
    int *mark; /* (pieces): the last search that came by */
    int searches;
} builder;

/* ---- labels ---- */

/* "3", and "encoder_layer_3" where something follows: what is numbered is a block. */
static bool numbered(const char *part, size_t length, bool last)
{
    size_t digits = 0;
    while (digits < length && isdigit((unsigned char)part[length - 1 - digits]))
        digits++;
    if (digits == 0) return false;
    return digits == length || (!last && part[length - 1 - digits] == '_');
}

/* A first part with a digit is a block itself ("Mixed_5b"), unless it is a list of them, whose
 * numbers follow ("layer1.0"). */
static bool is_block(const char *part, size_t length, const char *next)
{
    size_t follows = strcspn(next, "./");
    bool list = follows && strspn(next, "0123456789") == follows;
    return !list && strcspn(part, "0123456789") < length;
}

/* How many bytes of a name are its label. Parts end with a dot, or a slash where a file has such. */
static size_t label_length(const char *name, meg_level level)
{
    size_t begin = strspn(name, "./"), first = 0;
    if (level == MEG_LEVEL_LAYER) return strlen(name);
    while (name[begin]) {
        size_t end = begin + strcspn(name + begin, "./");
        size_t next = end + strspn(name + end, "./");
        bool whole = !first && is_block(name + begin, end - begin, name + next);
        if (!first) first = end;
        if (level == MEG_LEVEL_MODULE || whole) break;
        if (numbered(name + begin, end - begin, !name[end])) return end;
        begin = next;
    }
    return first ? first : strlen(name);
}

/* The only input of a node that another makes; -1: there is none, or there are several. */
static int only_maker(const meg_graph *g, const meg_node *v)
{
    int found = -1;
    for (int i = 0; i < v->inputs; i++) {
        int maker = g->value[v->in[i]].maker;
        if (maker < 0) continue;
        if (found >= 0) return -1;
        found = maker;
    }
    return found;
}

static bool makes_loss(const meg_graph *g, const meg_node *v)
{
    for (int i = 0; i < g->losses; i++)
        if (g->value[g->loss[i].value].maker == v->id) return true;
    return false;
}

static const meg_node *first_reader(const meg_graph *g, int value)
{
    for (int i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].inputs; k++)
            if (g->node[i].in[k] == value) return &g->node[i];
    return NULL;
}

/* What counts (labels, right answers) goes with the loss that reads it, else with the first one. */
static const char *counter_label(const meg_graph *g, const meg_node *v)
{
    const meg_node *reader = first_reader(g, v->out[0]);
    if (reader) return reader->name;
    return g->losses ? g->node[g->value[g->loss[0].value].maker].name : v->name;
}

/* A normalisation, rectifier or pool beside blocks, not in one, goes with the layer before it: the
 * stem of a ResNet is one group. */
static void set_label(builder *b, const meg_node *v)
{
    const meg_graph *g = b->graph;
    size_t length = label_length(v->name, b->level);
    b->lone[v->id] = !v->name[length];
    b->label[v->id] = meg_pool_text(b->out->pool, "%.*s", (int)length, v->name);
    if (b->level == MEG_LEVEL_LAYER) return;
    if (v->op->no_gradient) b->label[v->id] = counter_label(g, v);
    if (v->op->no_gradient || makes_loss(g, v)) return;
    int before = v->op->cheap && b->lone[v->id] ? only_maker(g, v) : -1;
    if (before >= 0 && b->lone[before]) b->label[v->id] = b->label[before];
}

/* ---- pieces ---- */

/* Is there a path from one piece to another? Follows the feeders back from the latter. */
static bool leads_to(builder *b, int from, int to)
{
    int *stack = malloc((size_t)(b->pieces + 1) * sizeof *stack), top = 0;
    bool found = false;
    if (!stack) abort();
    b->searches++;
    b->mark[to] = b->searches;
    stack[top++] = to;
    while (top && !found) {
        int at = stack[--top];
        found = at == from;
        for (int i = b->feeders[at]; i >= 0; i = b->links[i].next) {
            int next = b->links[i].piece;
            if (b->mark[next] == b->searches) continue;
            b->mark[next] = b->searches;
            stack[top++] = next;
        }
    }
    free(stack);
    return found;
}

/* Would the piece feed itself through others if it had this node? */
static bool closes_cycle(builder *b, int piece, const meg_node *v)
{
    for (int i = 0; i < v->inputs; i++) {
        int maker = b->graph->value[v->in[i]].maker;
        int feeder = maker < 0 ? piece : b->piece[maker];
        if (feeder != piece && leads_to(b, piece, feeder)) return true;
    }
    return false;
}

static int last_piece(const builder *b, const char *label)
{
    int i = b->pieces - 1;
    while (i >= 0 && strcmp(b->piece_label[i], label) != 0)
        i--;
    return i;
}

static void put(builder *b, const meg_node *v)
{
    const char *label = b->label[v->id];
    int piece = b->level == MEG_LEVEL_LAYER ? -1 : last_piece(b, label);
    if (piece < 0 || closes_cycle(b, piece, v)) {
        piece = b->pieces++;
        b->piece_label[piece] = label;
        b->feeders[piece] = -1;
    }
    b->piece[v->id] = piece;
    for (int i = 0; i < v->inputs; i++) {
        int maker = b->graph->value[v->in[i]].maker;
        if (maker < 0 || b->piece[maker] == piece) continue;
        b->links = meg_grow(b->links, &b->link_room, b->link_count + 1, sizeof *b->links);
        b->links[b->link_count] = (link){b->piece[maker], b->feeders[piece]};
        b->feeders[piece] = (int)b->link_count++;
    }
}

/* ---- order ---- */

/* place[piece]: where it goes. Pieces are numbered by their first nodes: the lowest one that is fed
 * goes next. */
static void put_in_order(const builder *b, int *place)
{
    for (int i = 0; i < b->pieces; i++)
        place[i] = -1;
    for (int at = 0; at < b->pieces; at++) {
        int next = 0;
        for (;; next++) {
            bool fed = place[next] < 0;
            for (int i = b->feeders[next]; fed && i >= 0; i = b->links[i].next)
                fed = place[b->links[i].piece] >= 0;
            if (fed) break;
        }
        place[next] = at;
    }
}

/* "name" for the first piece of a label, "name#2" for the second. */
static const char *piece_name(const builder *b, int piece)
{
    int before = 0;
    for (int i = 0; b->level != MEG_LEVEL_LAYER && i < piece; i++)
        before += strcmp(b->piece_label[i], b->piece_label[piece]) == 0;
    if (!before) return meg_pool_text(b->out->pool, "%s", b->piece_label[piece]);
    return meg_pool_text(b->out->pool, "%s#%d", b->piece_label[piece], before + 1);
}

static void make_groups(const builder *b)
{
    meg_groups *s = b->out;
    int *place = meg_pool_alloc(s->pool, (size_t)b->pieces * sizeof *place);
    put_in_order(b, place);
    s->count = b->pieces;
    s->group = meg_pool_alloc(s->pool, (size_t)b->pieces * sizeof *s->group);
    s->of = meg_pool_alloc(s->pool, (size_t)b->graph->nodes * sizeof *s->of);
    for (int i = 0; i < b->pieces; i++)
        s->group[place[i]].name = piece_name(b, i);
    for (int i = 0; i < b->graph->nodes; i++) {
        s->of[i] = place[b->piece[i]];
        s->group[s->of[i]].nodes++;
    }
    for (int i = 0; i < s->count; i++) {
        meg_group *group = &s->group[i];
        group->node = meg_pool_alloc(s->pool, (size_t)group->nodes * sizeof *group->node);
        group->nodes = 0;
    }
    for (int i = 0; i < b->graph->nodes; i++) {
        meg_group *group = &s->group[s->of[i]];
        group->node[group->nodes++] = i;
    }
}

/* ---- edges and sums ---- */

static void add_edge(meg_groups *s, size_t *room, meg_group_edge edge)
{
    for (int i = s->edges - 1; i >= 0 && s->edge[i].to == edge.to; i--)
        if (s->edge[i].value == edge.value) return;
    s->edge = meg_grow(s->edge, room, (size_t)s->edges + 1, sizeof edge);
    s->edge[s->edges++] = edge;
}

static void add_edges(meg_groups *s, const meg_graph *g, size_t *room, int to)
{
    const meg_group *group = &s->group[to];
    for (int i = 0; i < group->nodes; i++) {
        const meg_node *v = &g->node[group->node[i]];
        for (int k = 0; k < v->inputs; k++) {
            const meg_value *x = &g->value[v->in[k]];
            if (meg_kind_lasts(x->kind)) continue;
            int from = x->maker < 0 ? -1 : s->of[x->maker];
            if (from != to) add_edge(s, room, (meg_group_edge){x->id, from, to});
        }
    }
}

static void add_sums(const meg_graph *g, meg_group *group, bool *counted)
{
    for (int i = 0; i < group->nodes; i++) {
        const meg_node *v = &g->node[group->node[i]];
        meg_work whole = meg_op_whole(g, v);
        if (v->op->flops) group->flops += v->op->flops(g, v, &whole, MEG_FORWARD);
        for (int k = 0; k < v->outputs; k++) {
            const meg_value *y = &g->value[v->out[k]];
            group->activation += meg_box_size(&y->shape) * meg_dtype_bytes(y->dtype);
        }
        for (int k = 0; k < v->inputs; k++) {
            const meg_value *x = &g->value[v->in[k]];
            if (x->kind != MEG_PARAMETER || counted[x->id]) continue;
            counted[x->id] = true;
            group->parameters += meg_box_size(&x->shape);
        }
    }
}

meg_groups *meg_groups_new(const meg_graph *g, meg_level level)
{
    meg_pool *pool = meg_pool_new();
    meg_groups *s = meg_pool_alloc(pool, sizeof *s);
    size_t nodes = (size_t)g->nodes, edge_room = 0;
    s->pool = pool;
    builder b = {.graph = g, .out = s, .level = level};
    b.label = meg_pool_alloc(pool, nodes * sizeof *b.label);
    b.lone = meg_pool_alloc(pool, nodes * sizeof *b.lone);
    b.piece = meg_pool_alloc(pool, nodes * sizeof *b.piece);
    b.piece_label = meg_pool_alloc(pool, nodes * sizeof *b.piece_label);
    b.feeders = meg_pool_alloc(pool, nodes * sizeof *b.feeders);
    b.mark = meg_pool_alloc(pool, nodes * sizeof *b.mark);
    for (int i = 0; i < g->nodes; i++)
        set_label(&b, &g->node[i]);
    for (int i = 0; i < g->nodes; i++)
        put(&b, &g->node[i]);
    make_groups(&b);
    free(b.links);
    bool *counted = meg_pool_alloc(pool, (size_t)g->values * sizeof *counted);
    for (int i = 0; i < s->count; i++) {
        add_edges(s, g, &edge_room, i);
        add_sums(g, &s->group[i], counted);
    }
    return s;
}

void meg_groups_free(meg_groups *s)
{
    if (!s) return;
    free(s->edge);
    meg_pool_free(s->pool);
}
