/* Fingerprints: see fingerprint.h. FNV-1a over a canonical text, never over structs in memory, so
 * that it is the same on every machine and for every version of the structs.
 */
#include "graph/fingerprint.h"
#include "graph/op.h"

#include <string.h>

static void add_text(uint64_t *hash, const char *text)
{
    *hash = meg_hash_bytes(*hash, text,
                           strlen(text) + 1); /* its end, too: "ab", "c" is not "a", "bc" */
}

static void add_number(uint64_t *hash, int64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)number);
    add_text(hash, text);
}

/* A sample's extents of what has a batch, all of parameters and states. */
static void add_leaf(uint64_t *hash, const meg_value *v)
{
    bool batched = v->kind == MEG_INPUT || v->kind == MEG_LABEL;
    add_text(hash, v->name);
    add_number(hash,
               v->kind == MEG_FIXED ? MEG_STATE : v->kind); /* as before there was the first */
    add_number(hash, v->dtype);
    for (int i = batched; i < v->rank; i++)
        add_number(hash, v->dims[i]);
    add_text(hash, ";");
}

static void add_node(uint64_t *hash, const meg_graph *g, const meg_node *v)
{
    char attrs[4096];
    meg_options_print(v->op->params, v->attr, attrs, sizeof attrs);
    add_text(hash, v->name);
    add_text(hash, v->op->name);
    add_text(hash, attrs);
    for (int i = 0; i < v->inputs; i++)
        add_text(hash, g->value[v->in[i]].name);
    add_text(hash, ";");
}

uint64_t meg_graph_fingerprint(const meg_graph *g)
{
    uint64_t hash = meg_hash("");
    for (int i = 0; i < g->values; i++)
        if (g->value[i].kind != MEG_MADE) add_leaf(&hash, &g->value[i]);
    for (int i = 0; i < g->nodes; i++)
        if (!g->node[i].op->report) add_node(&hash, g, &g->node[i]);
    for (int i = 0; i < g->losses; i++)
        add_text(&hash, g->value[g->loss[i].value].name);
    return hash;
}
