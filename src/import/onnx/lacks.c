/* What a file wants that is not here, all of it at once: a user who is told of one operator after the
 * other exports and tries again as many times.
 *
 *     net.onnx: 3 operators are not supported: Det (2 nodes: 'a', 'b'), Einsum (1 node: 'mix'), ...
 *
 * An operator lacks if it has no row, has a graph inside, or is computed of constants only and gets
 * data. Data is what depends on an input of the graph; its shape does not.
 */
#include "import/onnx/lacks.h"
#include "import/onnx/operators/operators.h"
#include "import/onnx/rows.h"

#include <stdio.h>

enum {
    NAMES = 3,  /* of an operator's nodes that are told */
    KINDS = 64, /* operators that are told apart */
    ROOM = 900  /* characters of the list: an error has 1024 */
};

typedef struct reason {
    const char *alone, *listed; /* of a single node; in a list */
} reason;

static const reason UNKNOWN = {"this operator is not supported", ""},
                    NESTED = {"it has a graph inside, which is not supported", "; a graph inside"},
                    OF_DATA = {"it is supported of constants only", "; of constants it is"};

typedef struct lack { /* an operator */
    meg_bytes domain, op;
    const reason *why;
    int nodes;
    meg_bytes name[NAMES];
} lack;

typedef struct lacks {
    int count, others; /* nodes of operators beyond KINDS */
    lack of[KINDS];
    const meg_onnx_node *first;
} lacks;

/* Why the node cannot be read; NULL: it can, as far as its operator goes. */
static const reason *reason_of(const meg_onnx_node *n, bool data)
{
    const meg_onnx_row *row = meg_onnx_row_of(n);
    if (n->subgraph) return &NESTED;
    if (meg_onnx_is_own(n)) return NULL;
    if (!row) return &UNKNOWN;
    return data && row->read == meg_onnx_helpers->read ? &OF_DATA : NULL;
}

static meg_bytes node_name(const meg_onnx_node *n)
{
    return n->name.at == n->name.end && n->outputs ? n->out[0] : n->name;
}

static void note(lacks *l, const meg_onnx_node *n, const reason *why)
{
    int i = 0;
    if (!l->first) l->first = n;
    while (i < l->count &&
           !(meg_bytes_equal(l->of[i].op, n->op) && meg_bytes_equal(l->of[i].domain, n->domain)))
        i++;
    if (i == KINDS) {
        l->others++;
        return;
    }
    if (i == l->count) l->of[l->count++] = (lack){.domain = n->domain, .op = n->op, .why = why};
    lack *k = &l->of[i];
    if (k->nodes < NAMES) k->name[k->nodes] = node_name(n);
    k->nodes++;
}

/* Inputs of the graph and all that is made of them; but not their shapes. */
static bool takes_data(const meg_onnx_build *b, const meg_onnx_node *n, const bool data[])
{
    bool like = meg_bytes_is(n->op, "CastLike"); /* of the second only the type counts */
    for (int i = 0; i < (like && n->inputs ? 1 : n->inputs); i++) {
        const meg_onnx_symbol *s = meg_onnx_in(b, n, i);
        if (s && data[s - b->symbol]) return true;
    }
    return false;
}

static bool passes_data(const meg_onnx_node *n)
{
    static const char *const of_shapes[] = {"Shape", "Size", "RandomUniformLike"};
    for (size_t i = 0; i < sizeof of_shapes / sizeof *of_shapes; i++)
        if (meg_bytes_is(n->op, of_shapes[i])) return false;
    return true;
}

static void find(const meg_onnx_build *b, lacks *l)
{
    bool *data = meg_pool_alloc(b->file->pool, (size_t)b->symbols + 1);
    for (size_t i = 0; i < b->file->inputs; i++) {
        const meg_onnx_symbol *s = meg_onnx_symbol_of(b, b->file->input[i].name);
        if (s && !s->constant) data[s - b->symbol] = true;
    }
    for (size_t i = 0; i < b->file->nodes; i++) {
        const meg_onnx_node *n = &b->file->node[i];
        bool taken = takes_data(b, n, data);
        const reason *why = b->skip[i] ? NULL : reason_of(n, taken);
        if (why) note(l, n, why);
        bool makes = taken && passes_data(n);
        for (int k = 0; makes && k < n->outputs; k++) {
            const meg_onnx_symbol *s = meg_onnx_symbol_of(b, n->out[k]);
            if (s) data[s - b->symbol] = true;
        }
    }
}

/* "Det (2 nodes: 'a', 'b')" */
static int write_lack(const lack *k, char *to, size_t room)
{
    int used = snprintf(to, room, "%.*s%s%.*s (%d node%s:", MEG_SPAN_TEXT(k->domain),
                        k->domain.at == k->domain.end ? "" : "::", MEG_SPAN_TEXT(k->op), k->nodes,
                        k->nodes > 1 ? "s" : "");
    for (int i = 0; i < NAMES && i < k->nodes && used < (int)room; i++)
        used += snprintf(to + used, room - (size_t)used, "%s '%.*s'", i ? "," : "",
                         MEG_SPAN_TEXT(k->name[i]));
    if (used < (int)room)
        used += snprintf(to + used, room - (size_t)used, "%s%s)", k->nodes > NAMES ? ", ..." : "",
                         k->why->listed);
    return used;
}

meg_status meg_onnx_check_operators(meg_onnx_build *b)
{
    lacks l = {0};
    char text[ROOM] = "", one[ROOM];
    size_t used = 0;
    find(b, &l);
    if (!l.count) return MEG_OK;
    if (l.count == 1 && l.of[0].nodes == 1)
        return meg_onnx_refuse(b, l.first, "%s", l.of[0].why->alone);
    int told = 0;
    for (; told < l.count; told++) {
        int length = write_lack(&l.of[told], one, sizeof one);
        if (length < 0 || used + (size_t)length + 32 >= sizeof text) break;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", told ? ", " : "", one);
    }
    if (told < l.count || l.others)
        snprintf(text + used, sizeof text - used, "%sand others", told ? ", " : "");
    return meg_fail(b->error, MEG_EUNSUPPORTED, "%s: %d operator%s not supported: %s",
                    b->file->path, l.count, l.count > 1 ? "s are" : " is", text);
}
