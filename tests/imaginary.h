/* A graph under a plan on imaginary ranks: all of them live in this process, in double, and compute
 * with the operators' plain-C kernels. What the engine will do with programs, done the plain way.
 *
 * A *site* is one storage of a value on one mesh. The home site is where the value is made; a
 * consumer on the same mesh reads it there, halo and all, if the value is not partial and part and
 * need together fill a box; else it reads a second site of its own mesh. Inputs and weights have a
 * home, too: filling their other sites is the fetch, whose adjoint brings the gradient.
 *
 *     home:  [ made | halo ]     site of another mesh:  [ what its consumers need ]
 *
 * A site has one transfer for all its consumers. One each would send the halo gradient, which they
 * share, once per consumer: counted twice. Unwritten storage holds NaN.
 */
#ifndef MEG_TESTS_IMAGINARY_H
#define MEG_TESTS_IMAGINARY_H

#include "plan/layout/transfer.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

typedef struct imaginary_plan {
    const meg_layout *layout; /* (values) */
    const meg_mesh *reader;   /* the one rank that computes the loss of the last value */
} imaginary_plan;

typedef struct site {
    int value;
    const meg_mesh *mesh;
    bool home;
    meg_box *box;      /* (mesh->size) of the storage */
    meg_array *x, *g;  /* (mesh->size) value and gradient, over box */
    bool touched;      /* g has its first contribution */
    meg_transfer fill; /* from the home's parts */
} site;

typedef struct imaginary {
    meg_pool *pool;
    const meg_graph *graph;
    const meg_layout *layout; /* (values) */
    int sites;
    site *site;      /* site[value] is the home; the last one is the reader's */
    int *use;        /* (nodes x MEG_INPUTS) the site that each input is read from */
    meg_array **aux; /* (nodes x MEG_AUXES) -> (mesh->size) */
} imaginary;

/* ---- tensors of double ---- */

static inline double *real_at(const meg_array *t, const int64_t p[MEG_AXES])
{
    return (double *)t->data + meg_box_at(&t->box, p);
}

/* Memory of its own, so that the address sanitizer sees its ends. */
static inline meg_array tensor_new(meg_box box, double fill)
{
    int64_t size = meg_box_size(&box);
    double *x = malloc(((size_t)size + 1) * sizeof *x);
    if (!x) abort();
    for (int64_t i = 0; i <= size; i++)
        x[i] = fill;
    return (meg_array){box, x};
}

typedef double combine(double old, double new);

static inline double combine_set(double old, double new)
{
    (void)old;
    return new;
}

static inline double combine_add(double old, double new)
{
    return old + new;
}

static inline double combine_max(double old, double new) /* NaN wins: it must show */
{
    return isnan(old) || old > new ? old : new;
}

static inline void copy_box(const meg_box *box, const meg_array *from, const meg_array *to,
                            combine *with)
{
    int64_t p[MEG_AXES];
    for (bool on = meg_box_first(box, p); on; on = meg_box_next(box, p))
        *real_at(to, p) = with(*real_at(to, p), *real_at(from, p));
}

typedef struct storage { /* of a value on the ranks of a mesh */
    const meg_mesh *mesh;
    const meg_array *t; /* (mesh->size) by position */
} storage;

static inline void transfer_run(const meg_transfer *t, storage from, storage to)
{
    for (int64_t i = 0; i < t->messages; i++) {
        const meg_parcel *p = &t->message[i];
        copy_box(&p->box, &from.t[meg_mesh_find(from.mesh, p->from)],
                 &to.t[meg_mesh_find(to.mesh, p->to)],
                 !p->add  ? combine_set
                 : t->max ? combine_max
                          : combine_add);
    }
}

/* ---- sites ---- */

/* Would one storage for both hold elements that belong to neither? */
static inline bool gap(const meg_box *a, const meg_box *b)
{
    meg_box hull = meg_box_hull(*a, *b), both = meg_box_meet(*a, *b);
    return meg_box_size(&hull) != meg_box_size(a) + meg_box_size(b) - meg_box_size(&both);
}

static inline int site_new(imaginary *run, int value, const meg_mesh *mesh)
{
    size_t size = (size_t)mesh->size;
    run->site[run->sites] = (site){.value = value, .mesh = mesh};
    site *s = &run->site[run->sites];
    s->box = meg_pool_alloc(run->pool, size * sizeof *s->box); /* empty */
    s->x = meg_pool_alloc(run->pool, size * sizeof *s->x);
    s->g = meg_pool_alloc(run->pool, size * sizeof *s->g);
    return run->sites++;
}

/* The site of this value on this mesh, apart from its home; made if there is none yet. */
static inline int other_site(imaginary *run, int value, const meg_mesh *mesh)
{
    for (int s = run->graph->values; s < run->sites; s++)
        if (run->site[s].value == value && run->site[s].mesh == mesh) return s;
    return site_new(run, value, mesh);
}

static inline void place_input(imaginary *run, const meg_node *v, int input)
{
    int from = v->in[input];
    const meg_layout *l = &run->layout[v->out[0]], *home = &run->layout[from];
    const meg_box *need = meg_layout_needs(run->pool, l, run->graph, v, input);
    bool here = l->mesh == home->mesh && meg_layout_shares(home) == 1;
    for (int i = 0; here && i < l->mesh->size; i++) {
        meg_part made = meg_layout_part(home, i);
        here = !gap(&made.work.out, &need[i]);
    }
    int s = here ? from : other_site(run, from, l->mesh);
    for (int i = 0; i < l->mesh->size; i++)
        run->site[s].box[i] = meg_box_hull(run->site[s].box[i], need[i]);
    run->use[v->id * MEG_INPUTS + input] = s;
}

static inline void aux_new(imaginary *run, const meg_node *v)
{
    const meg_layout *l = &run->layout[v->out[0]];
    for (int k = 0; k < v->op->auxes; k++) {
        meg_array *aux = meg_pool_alloc(run->pool, (size_t)l->mesh->size * sizeof *aux);
        for (int i = 0; i < l->mesh->size; i++) {
            meg_box box;
            meg_dtype type; /* none is wider than double */
            meg_part part = meg_layout_part(l, i);
            v->op->aux(run->graph, v, &part.work, k, &box, &type);
            aux[i] = tensor_new(box, NAN);
        }
        run->aux[v->id * MEG_AUXES + k] = aux;
    }
}

static inline void site_fill(imaginary *run, site *s)
{
    const meg_layout *home = &run->layout[s->value];
    meg_held held = {s->mesh, s->box, s->home};
    if (!s->home || meg_layout_shares(home) == 1) /* a partial home has no halo to fill */
        s->fill = meg_transfer_new(run->pool, home, &held);
    for (int i = 0; i < s->mesh->size; i++) {
        s->x[i] = tensor_new(s->box[i], NAN);
        s->g[i] = tensor_new(s->box[i], NAN);
    }
}

static inline imaginary *imaginary_new(const meg_graph *g, const imaginary_plan *plan)
{
    meg_pool *pool = meg_pool_new();
    imaginary *run = meg_pool_alloc(pool, sizeof *run);
    *run = (imaginary){.pool = pool, .graph = g, .layout = plan->layout};
    size_t inputs = (size_t)g->nodes * MEG_INPUTS;
    run->site = meg_pool_alloc(pool, ((size_t)g->values + inputs + 1) * sizeof *run->site);
    run->use = meg_pool_alloc(pool, inputs * sizeof *run->use);
    run->aux = meg_pool_alloc(pool, (size_t)g->nodes * MEG_AUXES * sizeof *run->aux);
    for (int value = 0; value < g->values; value++) {
        site *s = &run->site[site_new(run, value, plan->layout[value].mesh)];
        s->home = true;
        for (int i = 0; i < s->mesh->size; i++)
            s->box[i] = meg_layout_part(&plan->layout[value], i).work.out;
    }
    for (int i = 0; i < g->nodes; i++) {
        aux_new(run, &g->node[i]);
        for (int k = 0; k < g->node[i].inputs; k++)
            place_input(run, &g->node[i], k);
    }
    int reader = site_new(run, g->values - 1, plan->reader);
    run->site[reader].box[0] = g->value[g->values - 1].shape;
    for (int s = 0; s < run->sites; s++)
        site_fill(run, &run->site[s]);
    return run;
}

static inline void imaginary_free(imaginary *run)
{
    for (int s = 0; s < run->sites; s++)
        for (int i = 0; i < run->site[s].mesh->size; i++) {
            free(run->site[s].x[i].data);
            free(run->site[s].g[i].data);
        }
    for (int k = 0; k < run->graph->nodes * MEG_AUXES; k++) {
        const meg_node *v = &run->graph->node[k / MEG_AUXES];
        for (int i = 0; run->aux[k] && i < run->layout[v->out[0]].mesh->size; i++)
            free(run->aux[k][i].data);
    }
    meg_pool_free(run->pool);
}

/* ---- forward ---- */

typedef double leaf_source(const void *context, const meg_graph *g, int value, const int64_t p[]);

static inline void load(imaginary *run, int value, leaf_source *leaf, const void *context)
{
    int64_t p[MEG_AXES];
    for (int i = 0; i < run->layout[value].mesh->size; i++) {
        meg_box made = meg_layout_part(&run->layout[value], i).work.out;
        for (bool on = meg_box_first(&made, p); on; on = meg_box_next(&made, p))
            *real_at(&run->site[value].x[i], p) = leaf(context, run->graph, value, p);
    }
}

/* The transfers that leave a value, once it is made. */
static inline void spread(imaginary *run, int value)
{
    const site *home = &run->site[value];
    for (int s = 0; s < run->sites; s++) {
        const site *to = &run->site[s];
        if (to->value == value)
            transfer_run(&to->fill, (storage){home->mesh, home->x}, (storage){to->mesh, to->x});
    }
}

/* What a pass of node v reads at position i; writes are the caller's. */
static inline meg_call call_of(const imaginary *run, const meg_node *v, meg_pass pass, int i)
{
    int y = v->out[0];
    meg_call c = {.graph = run->graph, .node = v};
    meg_mask reads = meg_node_reads(v, pass), all = reads | meg_node_writes(v, pass);
    c.work = meg_layout_part(&run->layout[y], i).work;
    for (int k = 0; k < v->inputs; k++)
        if (reads & MEG_BIT(MEG_X + k))
            c.t[MEG_X + k] = run->site[run->use[v->id * MEG_INPUTS + k]].x[i];
    for (int k = 0; k < v->op->auxes; k++)
        if (all & MEG_BIT(MEG_AUX + k)) c.t[MEG_AUX + k] = run->aux[v->id * MEG_AUXES + k][i];
    if (reads & MEG_BIT(MEG_Y)) c.t[MEG_Y] = run->site[y].x[i];
    if (reads & MEG_BIT(MEG_DY)) c.t[MEG_DY] = run->site[y].g[i];
    return c;
}

/* A kernel sets all of its output tensor, hence one without halo: an unfilled halo stays NaN. */
static inline void compute(imaginary *run, const meg_node *v)
{
    const meg_layout *l = &run->layout[v->out[0]];
    for (int i = 0; i < l->mesh->size; i++) {
        meg_part part = meg_layout_part(l, i);
        if (meg_part_idle(&part)) continue;
        meg_call c = call_of(run, v, MEG_FORWARD, i);
        c.t[MEG_Y] = tensor_new(part.work.out, NAN);
        meg_op_kernel(v->op, MEG_FORWARD, MEG_F64)(&c);
        copy_box(&part.work.out, &c.t[MEG_Y], &run->site[v->out[0]].x[i], combine_set);
        free(c.t[MEG_Y].data);
    }
}

/* The loss: sum of (y + noise)^2 / 2 over the last value, a leaf's noise. */
static inline double imaginary_forward(imaginary *run, leaf_source *leaf, const void *context)
{
    const meg_graph *g = run->graph;
    for (int value = 0; value < g->values; value++)
        if (g->value[value].maker < 0) load(run, value, leaf, context), spread(run, value);
    for (int i = 0; i < g->nodes; i++) {
        compute(run, &g->node[i]);
        spread(run, g->node[i].out[0]);
    }
    const site *reader = &run->site[run->sites - 1];
    double loss = 0;
    int64_t p[MEG_AXES];
    for (bool on = meg_box_first(&reader->box[0], p); on; on = meg_box_next(&reader->box[0], p)) {
        double d = *real_at(&reader->x[0], p) + leaf(context, g, reader->value, p);
        *real_at(&reader->g[0], p) = d;
        loss += d * d / 2;
    }
    return loss;
}

/* ---- backward ---- */

/* The first contribution sets: here it finds zeros. */
static inline void touch(site *s)
{
    for (int i = 0; i < s->mesh->size && !s->touched; i++)
        for (int64_t k = 0; k < meg_box_size(&s->box[i]); k++)
            ((double *)s->g[i].data)[k] = 0;
    s->touched = true;
}

/* The gradient comes home along the adjoints; that of a value which is cut, copied, partial
 * arrives cut, partial, copied. */
static inline void collect(imaginary *run, int value)
{
    site *home = &run->site[value];
    touch(home);
    for (int s = 0; s < run->sites; s++) {
        site *from = &run->site[s];
        if (from->value != value || !from->touched) continue;
        meg_transfer back = meg_transfer_adjoint(run->pool, &from->fill);
        transfer_run(&back, (storage){from->mesh, from->g}, (storage){home->mesh, home->g});
    }
}

/* Each contribution is a tensor of its own, since kernels set; then it is added. */
static inline void differentiate(imaginary *run, const meg_node *v, meg_pass pass, int i)
{
    meg_call c = call_of(run, v, pass, i);
    meg_mask writes = meg_node_writes(v, pass);
    for (int k = 0; k < v->inputs; k++)
        if (writes & MEG_BIT(MEG_DX + k))
            c.t[MEG_DX + k] = tensor_new(run->site[run->use[v->id * MEG_INPUTS + k]].box[i], NAN);
    meg_op_kernel(v->op, pass, MEG_F64)(&c);
    for (int k = 0; k < v->inputs; k++) {
        site *s = &run->site[run->use[v->id * MEG_INPUTS + k]];
        if (!(writes & MEG_BIT(MEG_DX + k))) continue;
        touch(s);
        copy_box(&s->box[i], &c.t[MEG_DX + k], &s->g[i], combine_add);
        free(c.t[MEG_DX + k].data);
    }
}

static inline void imaginary_backward(imaginary *run)
{
    const meg_graph *g = run->graph;
    for (int s = 0; s < run->sites; s++)
        run->site[s].touched = s == run->sites - 1; /* the reader has written its gradient */
    for (int k = g->nodes - 1; k >= 0; k--) {
        const meg_node *v = &g->node[k];
        const meg_layout *l = &run->layout[v->out[0]];
        collect(run, v->out[0]);
        for (int i = 0; i < l->mesh->size; i++) {
            meg_part part = meg_layout_part(l, i);
            if (meg_part_idle(&part)) continue;
            differentiate(run, v, MEG_BACKWARD, i);
            if (meg_op_has(v->op, MEG_WEIGHT)) differentiate(run, v, MEG_WEIGHT, i);
        }
    }
    for (int value = 0; value < g->values; value++)
        if (g->value[value].maker < 0) collect(run, value);
}

#endif
