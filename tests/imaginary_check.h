/* How far a run on imaginary ranks is from what it should be.
 *
 * Gradients are compared by norm; one below a thousandth of the largest is judged as if it were
 * that large, since a bias in front of a norm has a true gradient of zero. A NaN, which is what
 * unwritten storage holds, is never lost on the way.
 */
#ifndef MEG_TESTS_IMAGINARY_CHECK_H
#define MEG_TESTS_IMAGINARY_CHECK_H

#include "imaginary_random.h"

static inline double larger(double a, double b) /* NaN wins */
{
    return a >= b || isnan(a) ? a : b;
}

/* ---- gradients against those of one rank ---- */

static inline bool has_gradient(const meg_value *v)
{
    return v->kind == MEG_INPUT || v->kind == MEG_PARAMETER;
}

static inline double distance(const meg_array *t, const meg_array *from)
{
    double sum = 0;
    int64_t p[MEG_AXES];
    for (bool on = meg_box_first(&t->box, p); on; on = meg_box_next(&t->box, p)) {
        double d = *real_at(t, p) - (from ? *real_at(from, p) : 0);
        sum += d * d;
    }
    return sqrt(sum);
}

/* Home' -> home: the copies of a home are shares of its gradient, and each wants their sum. */
static inline double home_error(const imaginary *run, int value, const meg_array *want)
{
    const site *home = &run->site[value];
    meg_layout adjoint = meg_layout_adjoint(&run->layout[value]);
    int size = home->mesh->size;
    meg_box made[RANKS];
    meg_array g[RANKS];
    double worst = 0;
    for (int i = 0; i < size; i++) {
        made[i] = meg_layout_part(&run->layout[value], i).work.out;
        g[i] = tensor_new(made[i], NAN);
    }
    meg_held held = {home->mesh, made, false};
    meg_transfer t = meg_transfer_new(run->pool, &adjoint, &held);
    transfer_run(&t, (storage){home->mesh, home->g}, (storage){home->mesh, g});
    for (int i = 0; i < size; i++) {
        worst = larger(worst, distance(&g[i], want));
        free(g[i].data);
    }
    return worst;
}

/* The sum over the copies is the gradient, too, wherever it is read. */
static inline double gathered_error(const imaginary *run, int value, const meg_array *want)
{
    meg_array all = tensor_new(want->box, 0);
    for (int i = 0; i < run->site[value].mesh->size; i++) {
        meg_box made = meg_layout_part(&run->layout[value], i).work.out;
        copy_box(&made, &run->site[value].g[i], &all, combine_add);
    }
    double error = distance(&all, want);
    free(all.data);
    return error;
}

static inline double largest_gradient(const imaginary *one)
{
    double largest = 0;
    for (int i = 0; i < one->graph->values; i++)
        if (has_gradient(&one->graph->value[i]))
            largest = larger(largest, distance(&one->site[i].g[0], NULL));
    return largest;
}

static inline double gradient_error(const imaginary *one, const imaginary *run)
{
    double worst = 0, largest = largest_gradient(one);
    for (int i = 0; i < one->graph->values; i++) {
        if (!has_gradient(&one->graph->value[i])) continue;
        const meg_array *want = &one->site[i].g[0];
        double unit = larger(distance(want, NULL), 1e-3 * largest);
        worst = larger(worst, gathered_error(run, i, want) / unit);
        worst = larger(worst, home_error(run, i, want) / unit);
    }
    return worst;
}

/* ---- one transfer ---- */

typedef struct ends { /* tensors of the home's ranks and of the site's */
    meg_array x[RANKS], y[RANKS];
} ends;

static inline void ends_new(const imaginary *run, const site *s, double x, double y, ends *out)
{
    const site *home = &run->site[s->value];
    for (int i = 0; i < home->mesh->size; i++)
        out->x[i] = tensor_new(home->box[i], x);
    for (int i = 0; i < s->mesh->size; i++)
        out->y[i] = tensor_new(s->box[i], y);
}

static inline void ends_free(const imaginary *run, const site *s, ends *e)
{
    for (int i = 0; i < run->site[s->value].mesh->size; i++)
        free(e->x[i].data);
    for (int i = 0; i < s->mesh->size; i++)
        free(e->y[i].data);
}

static inline void randomise(const meg_array *t, uint64_t *state)
{
    for (int64_t i = 0; i < meg_box_size(&t->box); i++)
        ((double *)t->data)[i] = (double)draw(state, -1000, 1000) / 1000;
}

static inline double dot(const meg_array *a, const meg_array *b, const meg_box *over)
{
    double sum = 0;
    int64_t p[MEG_AXES];
    for (bool on = meg_box_first(over, p); on; on = meg_box_next(over, p))
        sum += *real_at(a, p) * *real_at(b, p);
    return sum;
}

/* |<A x, y> - <x, A' y>|. At home, A keeps what is made and fills the halo around it; A' keeps its
 * gradient and adds that of the halos. */
static inline double dot_error(const imaginary *run, const site *s, uint64_t *state)
{
    const site *home = &run->site[s->value];
    meg_transfer back = meg_transfer_adjoint(run->pool, &s->fill);
    ends in, out;
    double ax_y = 0, x_ay = 0, scale = 1;
    ends_new(run, s, 0, 0, &in);
    ends_new(run, s, 0, NAN, &out);
    for (int i = 0; i < home->mesh->size; i++)
        randomise(&in.x[i], state);
    for (int i = 0; i < s->mesh->size; i++) {
        randomise(&in.y[i], state);
        if (s->home) copy_box(&s->box[i], &in.x[i], &out.y[i], combine_set);
        if (s->home) copy_box(&s->box[i], &in.y[i], &out.x[i], combine_set);
    }
    transfer_run(&s->fill, (storage){home->mesh, in.x}, (storage){s->mesh, out.y});
    transfer_run(&back, (storage){s->mesh, in.y}, (storage){home->mesh, out.x});
    for (int i = 0; i < s->mesh->size; i++) {
        ax_y += dot(&out.y[i], &in.y[i], &s->box[i]);
        scale += dot(&out.y[i], &out.y[i], &s->box[i]);
    }
    for (int i = 0; i < home->mesh->size; i++) {
        meg_box made = meg_layout_part(&run->layout[s->value], i).work.out;
        x_ay += dot(&in.x[i], &out.x[i], &made);
    }
    ends_free(run, s, &in);
    ends_free(run, s, &out);
    return fabs(ax_y - x_ay) / scale;
}

static inline int shares_with_work(const meg_layout *l)
{
    bool has[RANKS] = {false};
    int count = 0;
    for (int i = 0; i < l->mesh->size; i++) {
        meg_part part = meg_layout_part(l, i);
        if (!meg_box_empty(&part.work.sum)) has[part.share] = true;
    }
    for (int i = 0; i < RANKS; i++)
        count += has[i];
    return count;
}

/* Ones are sent: each held element must come to the number of shares, both when the first message
 * sets (over NaN) and when all add (over zero): so it gets each share once, the setting one first.
 * What a rank holds in place is there. Returns the elements for which this is not so. */
static inline int64_t miscounted(const imaginary *run, const site *s)
{
    const meg_layout *l = &run->layout[s->value];
    meg_transfer adding = s->fill;
    ends sets, adds;
    int64_t wrong = 0, p[MEG_AXES];
    if (s->home && meg_layout_shares(l) > 1) return s->fill.messages;
    adding.message = memcpy(
        meg_pool_alloc(run->pool, (size_t)adding.messages * sizeof *adding.message),
        s->fill.message, (size_t)adding.messages * sizeof *adding.message);
    for (int64_t i = 0; i < adding.messages; i++)
        adding.message[i].add = true;
    ends_new(run, s, 1, NAN, &sets);
    ends_new(run, s, 1, 0, &adds);
    transfer_run(&s->fill, (storage){run->site[s->value].mesh, sets.x}, (storage){s->mesh, sets.y});
    transfer_run(&adding, (storage){run->site[s->value].mesh, adds.x}, (storage){s->mesh, adds.y});
    for (int i = 0; i < s->mesh->size; i++) {
        meg_part own = meg_layout_part_of(l, s->mesh->rank[i]);
        if (s->home) copy_box(&own.work.out, &adds.x[i], &sets.y[i], combine_set);
        if (s->home) copy_box(&own.work.out, &adds.x[i], &adds.y[i], combine_add);
        for (bool on = meg_box_first(&s->box[i], p); on; on = meg_box_next(&s->box[i], p))
            wrong += *real_at(&sets.y[i], p) != shares_with_work(l) ||
                     *real_at(&adds.y[i], p) != shares_with_work(l);
    }
    ends_free(run, s, &sets);
    ends_free(run, s, &adds);
    return wrong;
}

#endif
