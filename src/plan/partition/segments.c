/* Segments: see segments.h. */
#include "plan/partition/segments.h"
#include "base/nearest.h"
#include "graph/groups.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_SHARES = 64
};

static const char NO_NUMBER[] = "no number from 1 to 1048576";

typedef struct words { /* where in mesh= we are */
    meg_plan *plan;
    meg_error *e;
    meg_groups *groups;
    const char *at;
    int stage;
    char brief[MEG_BRIEF]; /* mesh=, for messages */
} words;

static meg_status bad(const words *w, const char *why)
{
    char rest[MEG_BRIEF];
    return meg_fail(w->e, MEG_EARG,
                    "mesh=%s: %s at %s%s%s: use letters n c d h w with numbers (h2w2; h3:1 for "
                    "unequal parts), or 2x2 for h x w, 2x2x2 for d x h x w; ',' between stages, "
                    "'/group:' before a further "
                    "segment of a stage",
                    w->brief, why, *w->at ? "'" : "", *w->at ? meg_brief(w->at, rest) : "its end",
                    *w->at ? "'" : "");
}

static bool number(const char **at, int *out)
{
    char *end;
    long n = strtol(*at, &end, 10);
    if (end == *at || **at == '-' || **at == '+' || n < 1 || n > 1 << 20) return false;
    *at = end;
    *out = (int)n;
    return true;
}

/* "2x2": the last axes */
static meg_status plain_mesh(words *w, meg_segment *s)
{
    int n[3], count = 0;
    do {
        if (count == 3) return bad(w, "a fourth number");
        if (!number(&w->at, &n[count++])) return bad(w, NO_NUMBER);
    } while (*w->at == 'x' && w->at++);
    for (int i = 0; i < count; i++)
        s->dim[MEG_AXES - count + i] = n[i];
    return MEG_OK;
}

/* "3:1", the shares of two parts. Samples are shared evenly. */
static meg_status read_shares(words *w, meg_segment *s, int axis)
{
    int64_t *share = meg_pool_alloc(w->plan->pool, MOST_SHARES * sizeof *share);
    int next, count = 0;
    share[count++] = s->dim[axis];
    while (*w->at == ':') {
        if (axis == MEG_N) return bad(w, "samples have equal parts");
        w->at++;
        if (count == MOST_SHARES) return bad(w, "too many parts");
        if (!number(&w->at, &next)) return bad(w, NO_NUMBER);
        share[count++] = next;
    }
    if (count == 1) return MEG_OK;
    s->dim[axis] = count;
    s->share[axis] = share;
    return MEG_OK;
}

static meg_status lettered_mesh(words *w, meg_segment *s)
{
    static const char letters[] = "ncdhw";
    while (*w->at && strchr(letters, *w->at)) {
        int axis = (int)(strchr(letters, *w->at) - letters);
        w->at++;
        if (s->dim[axis] != 1) return bad(w, "an axis comes twice");
        if (!number(&w->at, &s->dim[axis])) return bad(w, NO_NUMBER);
        MEG_TRY(w->e, read_shares(w, s, axis));
    }
    return MEG_OK;
}

static meg_status read_mesh(words *w, meg_segment *s)
{
    int64_t size = 1;
    for (int a = 0; a < MEG_AXES; a++)
        s->dim[a] = 1;
    s->stage = w->stage;
    if (*w->at >= '0' && *w->at <= '9') MEG_TRY(w->e, plain_mesh(w, s));
    else MEG_TRY(w->e, lettered_mesh(w, s));
    for (int a = 0; a < MEG_AXES; a++)
        size *= s->dim[a];
    if (*w->at && *w->at != ',' && *w->at != '/') return bad(w, "no mesh");
    MEG_CHECK(w->e, size <= 1 << 20, MEG_EARG, "mesh=%s: more than %d ranks", w->brief, 1 << 20);
    s->size = (int)size;
    return MEG_OK;
}

/* The first node of a group, which must be of the stage. */
static meg_status find_group(words *w, int *out)
{
    static const char *const level[] = {"layer", "block", "module"};
    meg_plan *p = w->plan;
    size_t length = strcspn(w->at, ":/,");
    char asked[MEG_TEXT], hint[MEG_HINT];
    snprintf(asked, sizeof asked, "%.*s", (int)length, w->at);
    meg_nearest n = meg_nearest_to(asked);
    for (int i = 0; i < w->groups->count; i++) {
        const meg_group *s = &w->groups->group[i];
        meg_nearest_try(&n, s->name);
        if (strlen(s->name) != length || strncmp(s->name, w->at, length) != 0) continue;
        *out = s->node[0];
        MEG_CHECK(w->e, p->stage[*out] == w->stage, MEG_EARG,
                  "mesh=%s: %s is in stage %d, not in stage %d", w->brief, s->name, p->stage[*out],
                  w->stage);
        w->at += length;
        if (*w->at != ':') return bad(w, "no ':' behind the group");
        w->at++;
        return MEG_OK;
    }
    meg_nearest_hint(&n, hint);
    return meg_fail(
        w->e, MEG_EARG,
        "mesh=%s: %s has no group '%s'%s at level=%s: `megalith show %s --level %s` lists them",
        w->brief, p->source->name, asked, hint, level[p->options.level], p->source->name,
        level[p->options.level]);
}

static meg_segment *add_segment(meg_plan *p)
{
    return &p->segment[p->segments++];
}

/* Nodes of the stage from this one on are the newest segment's. */
static void take_nodes(meg_plan *p, int stage, int first)
{
    for (int i = first; i < p->source->nodes; i++)
        if (p->stage[i] == stage) p->segment_of[i] = p->segments - 1;
}

static meg_status read_stage(words *w)
{
    meg_plan *p = w->plan;
    int before = -1;
    MEG_TRY(w->e, read_mesh(w, add_segment(p)));
    take_nodes(p, w->stage, 0);
    while (*w->at == '/') {
        int first = 0;
        const char *group = ++w->at;
        MEG_TRY(w->e, find_group(w, &first));
        MEG_CHECK(
            w->e, first > before, MEG_EARG,
            "mesh=%s: %.*s does not come after the group before it: name them in the network's "
            "order",
            w->brief, (int)strcspn(group, ":"), group);
        before = first;
        MEG_CHECK(w->e, p->segments < MEG_SEGMENTS, MEG_EARG, "mesh: more than %d segments",
                  MEG_SEGMENTS);
        MEG_TRY(w->e, read_mesh(w, add_segment(p)));
        take_nodes(p, w->stage, first);
    }
    return MEG_OK;
}

static meg_status read_stages(words *w)
{
    meg_plan *p = w->plan;
    const char *text = p->options.mesh;
    bool all = !strchr(text, ',');
    w->at = text;
    for (w->stage = 0; w->stage < p->options.stages; w->stage++) {
        if (all) w->at = text;
        else if (w->stage > 0 && *w->at++ != ',')
            return meg_fail(w->e, MEG_EARG, "mesh=%s is for %d stages, but stages=%" PRId64,
                            w->brief, w->stage, p->options.stages);
        MEG_TRY(w->e, read_stage(w));
    }
    MEG_CHECK(w->e, *w->at == '\0', MEG_EARG, "mesh=%s has more stages than stages=%" PRId64,
              w->brief, p->options.stages);
    return MEG_OK;
}

/* feed=reader: one rank of stage 0 has the data. Where a replica is one rank, it has them anyway. */
static meg_status add_feeder(meg_plan *p, meg_error *e)
{
    bool several = p->options.stages > 1;
    for (int i = 0; i < p->segments; i++)
        several = several || p->segment[i].size > 1;
    if (p->options.feed != MEG_FEED_READER || !several) return MEG_OK;
    MEG_CHECK(e, p->segments < MEG_SEGMENTS, MEG_EARG,
              "feed=reader: more than %d segments; use feed=each", MEG_SEGMENTS - 1);
    p->feeder = p->segments;
    meg_segment *s = add_segment(p);
    *s = (meg_segment){.stage = 0, .size = 1};
    for (int a = 0; a < MEG_AXES; a++)
        s->dim[a] = 1;
    return MEG_OK;
}

meg_status meg_plan_segments(meg_plan *p, meg_error *e)
{
    const meg_plan_options *o = &p->options;
    p->segment = meg_pool_alloc(p->pool, MEG_SEGMENTS * sizeof *p->segment);
    p->segment_of = meg_pool_alloc(p->pool, ((size_t)p->source->nodes + 1) * sizeof(int));
    words w = {.plan = p, .e = e, .groups = meg_groups_new(p->source, (meg_level)o->level)};
    meg_brief(o->mesh, w.brief);
    meg_status status = read_stages(&w);
    meg_groups_free(w.groups);
    return status == MEG_OK ? add_feeder(p, e) : status;
}
