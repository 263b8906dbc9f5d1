/* Freezing weights, and training what was fixed: see freeze.h. */
#include "graph/freeze.h"
#include "base/nearest.h"
#include "graph/op.h"

#include <fnmatch.h>
#include <string.h>

enum {
    NAMES = 3,        /* of weights in a message */
    PATTERN_MAX = 256 /* bytes of one pattern */
};

static bool can_be_meant(const meg_value *v)
{
    return v->kind == MEG_PARAMETER || v->kind == MEG_FIXED;
}

/* ---- names that are not there ---- */

/* A weight may be meant, or all of a layer or block: `fc1` is near `fc1.*`. */
static void try_name(meg_pool *pool, meg_nearest *n, const char *name)
{
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.'))
        meg_nearest_try(n, meg_pool_text(pool, "%.*s.*", (int)(dot - name), name));
    meg_nearest_try(n, name);
}

static meg_status nothing_matches(const meg_graph *g, meg_error *e, const char *word,
                                  const char *pattern)
{
    char hint[MEG_HINT], names[512] = "";
    meg_pool *pool = meg_pool_new();
    meg_nearest n = meg_nearest_to(pattern);
    for (int i = 0, count = 0; i < g->values; i++) {
        const char *name = g->value[i].name;
        size_t used = strlen(names);
        if (!can_be_meant(&g->value[i])) continue;
        try_name(pool, &n, name);
        if (count++ < NAMES)
            snprintf(names + used, sizeof names - used, "%s%s", count > 1 ? ", " : "; it has ",
                     name);
    }
    meg_nearest_hint(&n, hint);
    meg_status status = meg_fail(e, MEG_EARG, "%s=%s: no weight of %s has such a name%s%s", word,
                                 pattern, g->name, hint, n.word ? "" : names);
    meg_pool_free(pool);
    return status;
}

/* ---- choosing ---- */

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

/* Does something for one pattern of the choice. */
typedef meg_status chooser(meg_graph *g, meg_error *e, const meg_freezing *c, const char *pattern);

static meg_status freeze_one(meg_graph *g, meg_error *e, const meg_freezing *c, const char *pattern)
{
    (void)c;
    int found = 0;
    for (int i = 0; i < g->values; i++) {
        meg_value *v = &g->value[i];
        if (!can_be_meant(v) || fnmatch(pattern, v->name, 0) != 0) continue;
        found++;
        v->kind = MEG_FIXED;
    }
    return found ? MEG_OK : nothing_matches(g, e, "freeze", pattern);
}

static meg_status train_one(meg_graph *g, meg_error *e, const meg_freezing *c, const char *pattern)
{
    int found = 0, settled = 0;
    for (int i = 0; i < g->values; i++) {
        meg_value *v = &g->value[i];
        if (!can_be_meant(v) || fnmatch(pattern, v->name, 0) != 0) continue;
        found++;
        settled += v->kind == MEG_FIXED || (c->doubtful && c->doubtful[i]);
        MEG_CHECK(e, v->kind == MEG_PARAMETER || has_gradient(g, i), MEG_EARG,
                  "train=%s: %s has no gradient: it cannot be trained", pattern, v->name);
        v->kind = MEG_PARAMETER;
        v->unsaved = false;
    }
    if (!found) return nothing_matches(g, e, "train", pattern);
    MEG_CHECK(e, settled, MEG_EARG,
              "train=%s has no effect: these weights are trained anyway; to train no others, give "
              "freeze=*, too",
              pattern);
    return MEG_OK;
}

/* After all was chosen. */
static meg_status check_frozen(meg_graph *g, meg_error *e, const meg_freezing *c,
                               const char *pattern)
{
    (void)c;
    for (int i = 0; i < g->values; i++)
        if (g->value[i].kind == MEG_FIXED && fnmatch(pattern, g->value[i].name, 0) == 0)
            return MEG_OK;
    return meg_fail(e, MEG_EARG,
                    "freeze=%s has no effect: train= names all of these weights, and wins; leave "
                    "one of them out",
                    pattern);
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

bool meg_names_match(const char *patterns, const char *name)
{
    char pattern[PATTERN_MAX];
    while (next_pattern(&patterns, pattern) > 0)
        if (fnmatch(pattern, name, 0) == 0) return true;
    return false;
}

static meg_status each(meg_graph *g, meg_error *e, const meg_freezing *c, const char *patterns,
                       chooser *one)
{
    char pattern[PATTERN_MAX];
    int more;
    while ((more = next_pattern(&patterns, pattern)) > 0)
        MEG_TRY(e, one(g, e, c, pattern));
    MEG_CHECK(e, more == 0, MEG_EARG, "a pattern of more than %d bytes", PATTERN_MAX - 1);
    return MEG_OK;
}

meg_status meg_graph_choose(meg_graph *g, meg_error *e, const meg_freezing *c)
{
    MEG_TRY(e, each(g, e, c, c->freeze, freeze_one));
    MEG_TRY(e, each(g, e, c, c->train, train_one));
    return each(g, e, c, c->freeze, check_frozen);
}

meg_status meg_graph_freeze_names(meg_graph *g, meg_error *e, const char *patterns)
{
    return meg_graph_choose(g, e, &(meg_freezing){.freeze = patterns, .train = ""});
}

meg_status meg_graph_train_names(meg_graph *g, meg_error *e, const char *patterns)
{
    return meg_graph_choose(g, e, &(meg_freezing){.freeze = "", .train = patterns});
}
