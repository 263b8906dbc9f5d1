/* Cells: what shares a mean and a variance. A value is cut into boxes of equal extents, the last
 * along an axis perhaps smaller:
 *
 *     batchnorm norm=2    2 x 1 x D x H x W       groupnorm    1 x C/groups x D x H x W
 *     gap, instancenorm   1 x 1 x D x H x W       layernorm    1 x C x 1 x 1 x 1, or a sample
 *
 * Cell p is element p of the means. A work sums the elements that lie both in its sum box and in
 * the cells of its output box; so an axis may be cut between cells, or, into partial means, through
 * them.
 */
#ifndef MEG_OPS_NORM_CELLS_H
#define MEG_OPS_NORM_CELLS_H

#include "graph/op.h"
#include "ops/attrs.h"

typedef struct meg_cells {
    meg_box shape; /* of the value; begins at 0 */
    int64_t size[MEG_AXES];
} meg_cells;

/* The cells that a box touches. */
static inline meg_box meg_cells_over(const meg_cells *s, meg_box b)
{
    for (int a = 0; a < MEG_AXES; a++) {
        b.lo[a] /= s->size[a];
        b.hi[a] = (b.hi[a] + s->size[a] - 1) / s->size[a];
    }
    return b;
}

/* The elements of a box of cells. */
static inline meg_box meg_cells_inside(const meg_cells *s, meg_box cells)
{
    for (int a = 0; a < MEG_AXES; a++) {
        cells.lo[a] *= s->size[a];
        cells.hi[a] *= s->size[a];
    }
    return meg_box_meet(cells, s->shape);
}

static inline meg_box meg_cell(const meg_cells *s, const int64_t p[MEG_AXES])
{
    meg_box cell;
    for (int a = 0; a < MEG_AXES; a++)
        cell.lo[a] = p[a], cell.hi[a] = p[a] + 1;
    return meg_cells_inside(s, cell);
}

static inline double meg_cell_count(const meg_cells *s, const int64_t p[MEG_AXES])
{
    meg_box cell = meg_cell(s, p);
    return (double)meg_box_size(&cell);
}

/* What mean and var have in common. */
extern const meg_param meg_mean_params[];
meg_cells meg_mean_cells(const meg_graph *g, const meg_node *v);
void meg_mean_shape(const meg_graph *g, const meg_node *v, meg_value *out);
meg_box meg_mean_sum(const meg_graph *g, const meg_node *v);
meg_box meg_mean_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w);
double meg_mean_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p);

#endif
