/* Layouts: see layout.h. */
#include "plan/layout/layout.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- meshes ---- */

static int by_rank(const void *a, const void *b)
{
    int x = ((const meg_seat *)a)->rank, y = ((const meg_seat *)b)->rank;
    return x < y ? -1 : x > y;
}

meg_mesh *meg_mesh_new(meg_pool *pool, const int dim[MEG_MESH_AXES], const int rank[])
{
    meg_mesh *mesh = meg_pool_alloc(pool, sizeof *mesh);
    int64_t size = 1;
    for (int m = 0; m < MEG_MESH_AXES; m++) {
        mesh->dim[m] = dim[m];
        size *= dim[m];
        assert(dim[m] >= 1 && size <= INT_MAX);
    }
    mesh->size = (int)size;
    int *ranks = meg_pool_alloc(pool, (size_t)size * sizeof *ranks);
    meg_seat *seat = meg_pool_alloc(pool, (size_t)size * sizeof *seat);
    for (int i = 0; i < mesh->size; i++) {
        ranks[i] = rank ? rank[i] : i;
        seat[i] = (meg_seat){ranks[i], i};
    }
    qsort(seat, (size_t)size, sizeof *seat, by_rank);
    for (int i = 1; i < mesh->size; i++)
        assert(seat[i - 1].rank != seat[i].rank);
    mesh->rank = ranks;
    mesh->seat = seat;
    return mesh;
}

int meg_mesh_find(const meg_mesh *mesh, int rank)
{
    meg_seat key = {rank, 0};
    const meg_seat *found = bsearch(&key, mesh->seat, (size_t)mesh->size, sizeof *mesh->seat,
                                    by_rank);
    return found ? found->position : -1;
}

/* ---- parts ---- */

meg_layout meg_layout_new(const meg_mesh *mesh, const meg_graph *g, int value)
{
    const meg_value *x = &g->value[value];
    meg_layout l = {.mesh = mesh, .whole = {x->shape, meg_box_of(1, 1, 1, 1, 1)}};
    if (x->maker < 0) return l;
    l.whole = meg_op_whole(g, &g->node[x->maker]);
    l.max = g->node[x->maker].op->max;
    return l;
}

int64_t *meg_cuts_even(meg_pool *pool, int64_t extent, int parts, int64_t grain)
{
    int64_t *at = meg_pool_alloc(pool, ((size_t)parts + 1) * sizeof *at);
    int64_t units = (extent + grain - 1) / grain;
    for (int i = 0; i <= parts; i++) {
        at[i] = units * i / parts * grain;
        if (at[i] > extent) at[i] = extent;
    }
    return at;
}

int64_t *meg_cuts_shared(meg_pool *pool, int64_t extent, int parts, int64_t grain,
                         const int64_t share[])
{
    int64_t *at = meg_pool_alloc(pool, ((size_t)parts + 1) * sizeof *at);
    int64_t units = (extent + grain - 1) / grain, all = 0, sum = 0;
    for (int i = 0; i < parts; i++)
        all += share[i];
    for (int i = 1; i <= parts; i++) {
        int64_t last = at[i - 1] + 1, most = units - (parts - i);
        sum += share[i - 1];
        at[i] = (2 * units * sum + all) / (2 * all); /* the nearest */
        if (at[i] > most) at[i] = most;
        if (at[i] < last) at[i] = last;
    }
    for (int i = 1; i <= parts; i++)
        at[i] = at[i] * grain < extent ? at[i] * grain : extent;
    return at;
}

meg_part meg_layout_part(const meg_layout *l, int position)
{
    meg_part p = {.in = true, .work = l->whole};
    int shares = 1, copies = 1;
    for (int m = MEG_MESH_AXES - 1; m >= 0; m--) {
        int dim = l->mesh->dim[m], i = 0, axis = l->on[m].axis;
        if (dim > 1) i = position % dim, position /= dim; /* most are 1 */
        if (l->on[m].how == MEG_SPLIT_COPY) p.copy += i * copies, copies *= dim;
        if (l->on[m].how == MEG_SPLIT_PARTIAL) p.share += i * shares, shares *= dim;
        if (l->on[m].how == MEG_SPLIT_COPY || !l->on[m].at) continue;
        meg_box *b = l->on[m].how == MEG_SPLIT_CUT ? &p.work.out : &p.work.sum;
        b->lo[axis] = l->on[m].at[i];
        b->hi[axis] = l->on[m].at[i + 1];
    }
    return p;
}

meg_part meg_layout_part_of(const meg_layout *l, int rank)
{
    int position = meg_mesh_find(l->mesh, rank);
    return position < 0 ? (meg_part){.in = false} : meg_layout_part(l, position);
}

static int count(const meg_layout *l, meg_split how)
{
    int product = 1;
    for (int m = 0; m < MEG_MESH_AXES; m++)
        if (l->on[m].how == how) product *= l->mesh->dim[m];
    return product;
}

int meg_layout_shares(const meg_layout *l)
{
    return count(l, MEG_SPLIT_PARTIAL);
}

int meg_layout_copies(const meg_layout *l)
{
    return count(l, MEG_SPLIT_COPY);
}

bool meg_part_idle(const meg_part *p)
{
    return !p->in || meg_box_empty(&p->work.out) || meg_box_empty(&p->work.sum);
}

meg_box *meg_layout_needs(meg_pool *pool, const meg_layout *l, const meg_graph *g,
                          const meg_node *v, int input)
{
    meg_box *need = meg_pool_alloc(pool, (size_t)l->mesh->size * sizeof *need);
    for (int i = 0; i < l->mesh->size; i++) {
        meg_part part = meg_layout_part(l, i);
        need[i] = meg_op_need(g, v, input, &part.work);
    }
    return need;
}

meg_layout meg_layout_adjoint(const meg_layout *l)
{
    static const meg_split becomes[] = {[MEG_SPLIT_COPY] = MEG_SPLIT_PARTIAL,
                                        [MEG_SPLIT_CUT] = MEG_SPLIT_CUT,
                                        [MEG_SPLIT_PARTIAL] = MEG_SPLIT_COPY};
    meg_layout adjoint = *l;
    assert(!l->max); /* carries no gradient */
    for (int m = 0; m < MEG_MESH_AXES; m++) {
        adjoint.on[m].how = becomes[l->on[m].how];
        if (adjoint.on[m].how != MEG_SPLIT_CUT) adjoint.on[m].at = NULL;
    }
    return adjoint;
}

/* ---- legality ---- */

typedef struct checker { /* of mesh axis m */
    const meg_layout *l;
    meg_error *e;
    const meg_graph *g;
    const meg_node *maker; /* NULL: an input or a weight */
    const char *name;
    int m;
} checker;

static char letter(int axis)
{
    return "ncdhw"[axis];
}

static int64_t grain_of(const checker *c, int axis)
{
    return c->maker && c->maker->op->grain ? c->maker->op->grain(c->g, c->maker, axis) : 1;
}

/* Along n and c nothing slides, so a sum that is shorter than the input runs inside groups of it; a
 * part of it, in all groups at once, is no box. */
static bool grouped(const checker *c, int axis)
{
    const meg_box *x = &c->g->value[c->maker->in[0]].shape;
    return axis <= MEG_C && c->l->whole.sum.hi[axis] < x->hi[axis];
}

/* "c h": the axes that may be cut, or whose sum may be; "" if none. */
static void choices(const checker *c, meg_split how, char text[2 * MEG_AXES + 1])
{
    const meg_box *whole = how == MEG_SPLIT_CUT ? &c->l->whole.out : &c->l->whole.sum;
    int used = 0;
    text[0] = '\0';
    for (int a = 0; a < MEG_AXES; a++) {
        bool never = how == MEG_SPLIT_CUT ? grain_of(c, a) == 0 : grouped(c, a);
        if (whole->hi[a] < 2 || never) continue;
        used += sprintf(text + used, "%s%c", used ? " " : "", letter(a));
    }
}

static meg_status check_twice(const checker *c)
{
    for (int m = 0; m < c->m; m++)
        MEG_CHECK(c->e,
                  c->l->on[m].how != c->l->on[c->m].how || c->l->on[m].axis != c->l->on[c->m].axis,
                  MEG_EARG,
                  "%s: mesh axes %d and %d both cut axis %c: cut another one, or copy along one of "
                  "them",
                  c->name, m, c->m, letter(c->l->on[m].axis));
    return MEG_OK;
}

static meg_status check_cut(const checker *c, int axis)
{
    char may[2 * MEG_AXES + 1];
    choices(c, MEG_SPLIT_CUT, may);
    MEG_CHECK(c->e, grain_of(c, axis) > 0, MEG_EARG, "%s: %s cannot be cut along %c: %s%s%s it",
              c->name, c->maker->op->name, letter(axis), *may ? "cut " : "", may,
              *may ? ", or copy" : "copy");
    return MEG_OK;
}

static meg_status check_partial(const checker *c, int axis)
{
    char may[2 * MEG_AXES + 1];
    MEG_CHECK(
        c->e, c->maker, MEG_EARG,
        "%s: an input or a weight is nobody's sum, but is to be partial along %c: cut or copy "
        "it",
        c->name, letter(axis));
    choices(c, MEG_SPLIT_PARTIAL, may);
    MEG_CHECK(c->e, c->l->whole.sum.hi[axis] > 1, MEG_EARG, "%s: %s sums nothing along %c: %s%s%s",
              c->name, c->maker->op->name, letter(axis), *may ? "make it partial along " : "", may,
              *may ? "" : "cut or copy it");
    MEG_CHECK(c->e, !grouped(c, axis), MEG_EARG,
              "%s: the sum along %c runs inside groups, so a part of it is no box: cut the output "
              "along %c by multiples of %" PRId64 " instead",
              c->name, letter(axis), letter(axis), grain_of(c, axis));
    return MEG_OK;
}

static meg_status check_count(const checker *c, int64_t extent, int64_t grain)
{
    int axis = c->l->on[c->m].axis, dim = c->l->mesh->dim[c->m];
    int64_t most = (extent + grain - 1) / grain;
    char unit[48] = "";
    if (grain > 1) snprintf(unit, sizeof unit, " in multiples of %" PRId64, grain);
    MEG_CHECK(c->e, dim <= most, MEG_EARG,
              "%s: %d parts along %c, but its extent of %" PRId64 "%s has room for %" PRId64
              ": use %s%" PRId64,
              c->name, dim, letter(axis), extent, unit, most, most > 1 ? "1.." : "", most);
    return MEG_OK;
}

static meg_status check_points(const checker *c, int64_t extent, int64_t grain)
{
    const int64_t *at = c->l->on[c->m].at;
    int dim = c->l->mesh->dim[c->m];
    char axis = letter(c->l->on[c->m].axis);
    MEG_CHECK(c->e, at[0] == 0 && at[dim] == extent, MEG_EARG,
              "%s: cuts of %c run from %" PRId64 " to %" PRId64 ": use 0 to %" PRId64, c->name,
              axis, at[0], at[dim], extent);
    for (int i = 1; i < dim; i++) {
        int64_t below = at[i] / grain * grain, above = below + grain;
        if (above > extent) above = extent;
        MEG_CHECK(c->e, at[i - 1] <= at[i] && at[i] <= at[i + 1], MEG_EARG,
                  "%s: cuts of %c must ascend, but %" PRId64 " lies between %" PRId64
                  " and %" PRId64,
                  c->name, axis, at[i], at[i - 1], at[i + 1]);
        MEG_CHECK(c->e, at[i] == below || at[i] == extent, MEG_EARG,
                  "%s: %c is cut at %" PRId64 ", but its grain is %" PRId64 ": use %" PRId64,
                  c->name, axis, at[i], grain, at[i] - below <= above - at[i] ? below : above);
    }
    return MEG_OK;
}

static meg_status check_axis(const checker *c)
{
    bool cut = c->l->on[c->m].how == MEG_SPLIT_CUT;
    int axis = c->l->on[c->m].axis;
    assert(axis >= 0 && axis < MEG_AXES && c->l->on[c->m].at);
    MEG_TRY(c->e, check_twice(c));
    MEG_TRY(c->e, cut ? check_cut(c, axis) : check_partial(c, axis));
    int64_t extent = cut ? c->l->whole.out.hi[axis] : c->l->whole.sum.hi[axis];
    int64_t grain = cut ? grain_of(c, axis) : 1;
    MEG_TRY(c->e, check_count(c, extent, grain));
    return check_points(c, extent, grain);
}

meg_status meg_layout_check(const meg_layout *l, meg_error *e, const meg_graph *g, int value)
{
    const meg_value *x = &g->value[value];
    checker c = {.l = l, .e = e, .g = g, .name = x->name};
    if (x->maker >= 0) c.maker = &g->node[x->maker];
    for (c.m = 0; c.m < MEG_MESH_AXES; c.m++)
        if (l->on[c.m].how != MEG_SPLIT_COPY) MEG_TRY(e, check_axis(&c));
    return MEG_OK;
}
