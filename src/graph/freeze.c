/* Freezing weights, and training what was fixed: see freeze.h. */
#include "graph/freeze.h"
#include "graph/op.h"

#include <fnmatch.h>
#include <string.h>

enum {
    NAMES = 3,        /* of near weights in a message */
    PATTERN_MAX = 256 /* bytes of one pattern */
};

/* How many letters of the names are the same from the beginning. */
static int common(const char *a, const char *b)
{
    int length = 0;
    while (a[length] && a[length] == b[length])
        length++;
    return length;
}

static bool can_be_meant(const meg_value *v)
{
    return v->kind == MEG_PARAMETER || v->kind == MEG_FIXED;
}

static meg_status nothing_matches(const meg_graph *g, meg_error *e, const char *word,
                                  const char *pattern)
{
    char near[512] = "";
    int best = 0, count = 0;
    for (int i = 0; i < g->values; i++) {
        int length = can_be_meant(&g->value[i]) ? common(g->value[i].name, pattern) : 0;
        best = length > best ? length : best;
    }
    for (int i = 0; i < g->values && count < NAMES; i++) {
        const meg_value *v = &g->value[i];
        size_t used = strlen(near);
        if (!can_be_meant(v) || common(v->name, pattern) < best) continue;
        snprintf(near + used, sizeof near - used, "%s%s", count++ ? ", " : "", v->name);
    }
    return meg_fail(e, MEG_EARG, "%s=%s: no weight of %s has such a name%s%s%s", word, pattern,
                    g->name, count ? "; the nearest: " : "", near, count == NAMES ? ", .." : "");
}

/* Does a node make a gradient of this value? Weights of classes have none. */
static bool has_gradient(const meg_graph *g, int value)
{
    for (int i = 0; i < g->nodes; i++) {
        const meg_node *v = &g->node[i];
        meg_mask writes = 0;
        if (meg_op_has(v->op, MEG_BACKWARD)) writes |= meg_node_writes(v, MEG_BACKWARD);
        if (meg_op_has(v->op, MEG_WEIGHT)) writes |= meg_node_writes(v, MEG_WEIGHT);
        for (int k = 0; k < v->inputs; k++)
            if (v->in[k] == value && writes & MEG_BIT(MEG_DX + k)) return true;
    }
    return false;
}

static meg_status choose_one(meg_graph *g, meg_error *e, const char *pattern, bool train)
{
    const char *word = train ? "train" : "freeze";
    int found = 0;
    for (int i = 0; i < g->values; i++) {
        meg_value *v = &g->value[i];
        if (!can_be_meant(v) || fnmatch(pattern, v->name, 0) != 0) continue;
        found++;
        MEG_CHECK(e, !train || v->kind == MEG_PARAMETER || has_gradient(g, i), MEG_EARG,
                  "%s=%s: %s has no gradient: it cannot be trained", word, pattern, v->name);
        v->kind = train ? MEG_PARAMETER : MEG_FIXED;
        if (train) v->unsaved = false;
    }
    return found ? MEG_OK : nothing_matches(g, e, word, pattern);
}

/* Cuts the next pattern off; 0: none is left, -1: it is too long. */
static int next_pattern(const char **at, char out[PATTERN_MAX])
{
    while (**at == ',')
        ++*at;
    size_t length = strcspn(*at, ",");
    if (length >= PATTERN_MAX) return -1;
    memcpy(out, *at, length);
    out[length] = '\0';
    *at += length;
    return length > 0;
}

static meg_status choose(meg_graph *g, meg_error *e, const char *patterns, bool train)
{
    char pattern[PATTERN_MAX];
    int more;
    while ((more = next_pattern(&patterns, pattern)) > 0)
        MEG_TRY(e, choose_one(g, e, pattern, train));
    MEG_CHECK(e, more == 0, MEG_EARG, "a pattern of more than %d bytes", PATTERN_MAX - 1);
    return MEG_OK;
}

bool meg_names_match(const char *patterns, const char *name)
{
    char pattern[PATTERN_MAX];
    while (next_pattern(&patterns, pattern) > 0)
        if (fnmatch(pattern, name, 0) == 0) return true;
    return false;
}

meg_status meg_graph_freeze_names(meg_graph *g, meg_error *e, const char *patterns)
{
    return choose(g, e, patterns, false);
}

meg_status meg_graph_train_names(meg_graph *g, meg_error *e, const char *patterns)
{
    return choose(g, e, patterns, true);
}
