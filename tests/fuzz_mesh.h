/* Random plans that cut inside layers, for graphs of tests/fuzz_conv.h and for tokens: a mesh per
 * stage, sometimes several segments of a stage, with replicas, schedules of both directions and stages
 * that take turns on a rank; 2 to 8 ranks. The meshes are drawn first, and the graph keeps its extents above them.
 */
#ifndef TESTS_FUZZ_MESH_H
#define TESTS_FUZZ_MESH_H

#include "fuzz_case.h"
#include "fuzz_conv.h"

enum {
    MESH_RANKS = 8,
    MESH_STAGES = 4,
    MESH_BLOCKS = 32,
    MESH_TEXT = 40
};

typedef struct mesh_draw { /* what the words are made from */
    fuzz_dice *dice;
    bool tokens;
    int space;
    int64_t floor[MEG_AXES]; /* the most parts along each axis */
    int stages, chunks, replicas, micro;
    const char *schedule;
    int size[MESH_STAGES], also[MESH_STAGES]; /* ranks; of a further segment */
    char mesh[MESH_STAGES][MESH_TEXT],
        more[MESH_STAGES][MESH_TEXT]; /* more: of a further segment; "": none */
    char name[MESH_BLOCKS][16];       /* of blocks */
    int names;
} mesh_draw;

static inline bool mesh_may(const mesh_draw *m, int axis)
{
    if (m->tokens) return axis == MEG_N || axis == MEG_C || axis == MEG_W;
    return axis <= MEG_C || axis >= MEG_AXES - m->space;
}

/* "h3", or now and then "h2:1:3" */
static inline int mesh_axis(mesh_draw *m, int axis, int dim, char *text, size_t size)
{
    if (axis == MEG_N || dim > 4 || fuzz_pick(m->dice, 4))
        return snprintf(text, size, "%c%d", "ncdhw"[axis], dim);
    int used = snprintf(text, size, "%c", "ncdhw"[axis]);
    for (int i = 0; i < dim; i++)
        used += snprintf(text + used, size - (size_t)used, "%s%d", i ? ":" : "",
                         1 + (int)fuzz_pick(m->dice, 3));
    return used;
}

/* A mesh of at most so many ranks: its words, and how many it has. */
static inline int mesh_words(mesh_draw *m, int budget, char text[MESH_TEXT])
{
    static const int most[MEG_AXES] = {2, 3, 3, 4, 5};
    int dim[MEG_AXES] = {1, 1, 1, 1, 1}, size = 1, used = 0, axes = 1 + (int)fuzz_pick(m->dice, 3);
    for (int i = 0; i < axes; i++) {
        int axis = (int)fuzz_pick(m->dice, MEG_AXES), room = budget / size;
        if (!mesh_may(m, axis) || dim[axis] > 1 || room < 2) continue;
        dim[axis] = 2 + (int)fuzz_pick(m->dice, (room < most[axis] ? room : most[axis]) - 1);
        size *= dim[axis];
    }
    strcpy(text, "1");
    for (int a = 0; a < MEG_AXES; a++) {
        if (dim[a] > 1) used += mesh_axis(m, a, dim[a], text + used, MESH_TEXT - (size_t)used);
        if (dim[a] > m->floor[a]) m->floor[a] = dim[a];
    }
    return size;
}

/* Draws again until somebody is cut. */
static inline void mesh_stages(mesh_draw *m)
{
    int budget = MESH_RANKS / m->replicas / m->stages, most = 1;
    bool alike = fuzz_pick(m->dice, 2);
    while (most == 1)
        for (int i = 0; i < m->stages; i++) {
            m->more[i][0] = '\0';
            m->also[i] = 0;
            m->size[i] = mesh_words(m, budget, m->mesh[i]);
            if (i > 0 && alike) {
                m->size[i] = m->size[0];
                memcpy(m->mesh[i], m->mesh[0], sizeof m->mesh[i]);
            } else if (fuzz_pick(m->dice, 4) == 0) {
                m->also[i] = mesh_words(m, budget, m->more[i]);
            }
            if (m->size[i] > most) most = m->size[i];
        }
}

static inline bool mesh_two(const mesh_draw *m)
{
    return strstr("mast master chimera", m->schedule) != NULL;
}

/* Who runs what. */
static inline void mesh_pipe(mesh_draw *m)
{
    static const char *const rows[] = {"serial", "gpipe",  "1f1b",        "zb_h1",
                                       "mast",   "master", "interleaved", "chimera"};
    fuzz_dice *d = m->dice;
    if (fuzz_pick(d, 5) > 2) m->stages = 2 + (int)fuzz_pick(d, 2);
    m->replicas = m->stages < 3 && fuzz_pick(d, 3) == 0 ? 2 : 1;
    m->micro = 1 + (int)fuzz_pick(d, 3);
    if (m->stages > 1) m->schedule = rows[fuzz_pick(d, m->stages % 2 ? 7 : 8)];
    if (mesh_two(m) && m->micro < 2) m->micro = 2;
    if (strcmp(m->schedule, "interleaved") == 0) { /* two or four stages on one or two seats */
        m->chunks = 2;
        m->stages = 2 * m->stages - 2;
        m->micro = m->stages / 2 * (1 + (int)fuzz_pick(d, 2));
    }
}

static inline mesh_draw mesh_draw_of(fuzz_dice *d)
{
    mesh_draw m = {
        .dice = d, .floor = {1, 1, 1, 1, 1}, .schedule = "auto", .stages = 1, .chunks = 1};
    m.tokens = fuzz_pick(d, 6) == 0;
    m.space = fuzz_pick(d, 6) ? 2 : 3;
    mesh_pipe(&m);
    mesh_stages(&m);
    if (mesh_two(&m) && fuzz_pick(d, 2)) { /* many ranks in front of single ones */
        m.size[0] = mesh_words(&m, MESH_RANKS / m.replicas - (m.stages - 1), m.mesh[0]);
        for (int i = 1; i < m.stages; i++)
            m.size[i] = 1, m.also[i] = 0, strcpy(m.mesh[i], "1"), m.more[i][0] = '\0';
    }
    return m;
}

/* ---- words ---- */

/* The blocks that the graph has nodes of, in order. */
static inline void mesh_blocks(mesh_draw *m, const meg_graph *g)
{
    for (int i = 0; i < g->nodes && m->names < MESH_BLOCKS; i++) {
        const char *name = g->node[i].name;
        size_t length = strcspn(name, ".");
        if (name[0] != 'b' || name[length] != '.' || length > 8) continue;
        if (m->names > 0 && strncmp(m->name[m->names - 1], name, length) == 0 &&
            m->name[m->names - 1][length] == '\0')
            continue;
        snprintf(m->name[m->names++], sizeof m->name[0], "%.*s", (int)length, name);
    }
}

/* Stages and segments begin at given blocks: (stages) numbers, the last one past the end. */
static inline void mesh_firsts(mesh_draw *m, int first[MESH_STAGES + 1])
{
    for (int i = 0; i < m->stages; i++)
        first[i] = m->names * i / m->stages;
    first[m->stages] = m->names;
}

static inline void mesh_text(mesh_draw *m, char *text, size_t size)
{
    int first[MESH_STAGES + 1];
    mesh_firsts(m, first);
    int used = snprintf(text, size, "level=block assign=");
    for (int i = 1; i < m->stages; i++)
        used += snprintf(text + used, size - (size_t)used, "%s%s", i > 1 ? "," : "",
                         m->name[first[i]]);
    if (m->stages == 1) used = snprintf(text, size, "level=block");
    used += snprintf(text + used, size - (size_t)used, " mesh=");
    for (int i = 0; i < m->stages; i++) {
        used += snprintf(text + used, size - (size_t)used, "%s%s", i ? "," : "", m->mesh[i]);
        int room = first[i + 1] - first[i] - 1;
        if (m->more[i][0] && room > 0)
            used += snprintf(text + used, size - (size_t)used, "/%s:%s",
                             m->name[first[i] + 1 + fuzz_pick(m->dice, room)], m->more[i]);
        else m->also[i] = 0;
        if (m->also[i] > m->size[i]) m->size[i] = m->also[i];
    }
}

/* Stages k, k + seats, ... take turns on the ranks of the largest of them. */
static inline int mesh_turns(const mesh_draw *m)
{
    int seats = m->stages / m->chunks, sum = 0;
    for (int k = 0; k < seats; k++) {
        int most = 1;
        for (int i = k; i < m->stages; i += seats)
            if (m->size[i] > most) most = m->size[i];
        sum += most;
    }
    return sum * m->replicas;
}

/* Ranks of a replica: those of the stages' largest meshes; but where a stage of two directions, the
 * second in reverse order, would meet a part of itself, opposite stages have the larger number. */
static inline int mesh_ranks(const mesh_draw *m)
{
    if (m->chunks > 1) return mesh_turns(m);
    int sum = 0, paired = 0, at = 0;
    bool meets = false;
    for (int i = 0; i < m->stages; i++) {
        int other = m->size[m->stages - 1 - i];
        sum += m->size[i];
        paired += other > m->size[i] ? other : m->size[i];
    }
    for (int i = 0; i < m->stages; at += m->size[i++]) {
        int behind = sum - at - m->size[i], apart = behind > at ? behind - at : at - behind;
        meets = meets || (apart > 0 && apart < m->size[i]);
    }
    return (mesh_two(m) && meets ? paired : sum) * m->replicas;
}

static inline fuzz_plan mesh_plan_of(mesh_draw *m, const meg_graph *g)
{
    static const char *const channels[] = {"auto", "filter", "channel"};
    static const char *const bucket[] = {"16MiB", "1", "300", "4KiB"};
    fuzz_dice *d = m->dice;
    fuzz_plan out = {0};
    int64_t least = m->replicas * m->floor[MEG_N];
    int64_t each = least + fuzz_pick(d, 3), batch = each * m->micro, norm = 0;
    char mesh[256];
    if (fuzz_normalises(g)) {
        norm = m->micro == 1 ? fuzz_pick(d, batch + 1) : 1 + fuzz_pick(d, each);
        while (m->micro > 1 && each % norm)
            norm--;
    }
    mesh_text(m, mesh, sizeof mesh);
    out.ranks = mesh_ranks(m);
    out.samples = batch * 2 + (fuzz_pick(d, 3) ? 0 : fuzz_pick(d, batch));
    bool micro = fuzz_pick(d, 2);
    out.eval = micro || m->micro == 1;
    int used = snprintf(out.one, sizeof out.one, "batch=%lld norm=%lld momentum=0.9",
                        (long long)batch, (long long)norm);
    snprintf(out.many, sizeof out.many,
             "%s micro=%d stages=%d chunks=%d replicas=%d schedule=%s %s channels=%s bucket=%s "
             "recompute=%s",
             out.one, m->micro, m->stages, m->chunks, m->replicas, m->schedule, mesh,
             channels[fuzz_pick(d, 3)], bucket[fuzz_pick(d, 4)], fuzz_pick(d, 3) ? "auto" : "none");
    bool pixels = m->floor[MEG_D] > 1 || m->floor[MEG_H] > 1 || m->floor[MEG_W] > 1;
    if (pixels && fuzz_pick(d, 3) == 0) {
        size_t end = strlen(out.many);
        snprintf(out.many + end, sizeof out.many - end, " wide=%d", 2 + (int)fuzz_pick(d, 4));
    }
    fuzz_homes(d, &out);
    fuzz_again(d, &out);
    if (micro) snprintf(out.one + used, sizeof out.one - (size_t)used, " micro=%d", m->micro);
    return out;
}

static inline meg_graph *mesh_case_of(fuzz_dice *d, fuzz_plan *p)
{
    meg_graph *g = NULL;
    mesh_draw m = mesh_draw_of(d);
    int blocks = 0;
    if (m.tokens) {
        fuzz_net n = {.g = g = meg_graph_create("fuzz"), .dice = d, .tied = -1};
        fuzz_tokens(&n);
    } else g = conv_graph(d, m.space, m.floor, &blocks);
    if (g->error.status != MEG_OK) return g;
    mesh_blocks(&m, g);
    *p = mesh_plan_of(&m, g);
    return g;
}

#endif
