/* Readers of ONNX operators: tables of rows, groups of nodes that are one operator here, and what the
 * readers have of one another.
 */
#ifndef MEG_IMPORT_ONNX_OPERATORS_OPERATORS_H
#define MEG_IMPORT_ONNX_OPERATORS_OPERATORS_H

#include "import/onnx/build/kinds.h"
#include "import/onnx/build/view.h"
#include "import/onnx/fold/fold.h"

/* Tables of rows; each ends with a row without op. */
extern const meg_onnx_row meg_onnx_layers[], meg_onnx_products[], meg_onnx_norms[],
    meg_onnx_points[], meg_onnx_functions[], meg_onnx_masks[], meg_onnx_shapes[],
    meg_onnx_constants[], meg_onnx_helpers[], meg_onnx_reduces[], meg_onnx_blocks[],
    meg_onnx_einsums[], meg_onnx_attentions[];

/* Those of operators with a file of their own. */
#define MEG_ONNX(name) extern const meg_onnx_row meg_onnx_reads_##name[];
#include "import/onnx/operators.def"
#undef MEG_ONNX

/* ---- groups of nodes ---- */

/* Those that this framework wrote for one operator: own.c. */
void meg_onnx_find_own(meg_onnx_build *b);
bool meg_onnx_is_own(const meg_onnx_node *n);
meg_status meg_onnx_read_own(meg_onnx_build *b, const meg_onnx_node *n);

/* Makes one node of groups that are one operator here: patterns.c. */
void meg_onnx_find_patterns(meg_onnx_build *b);

/* Nodes that are attention together: attention.c. Fills b->attention; the nodes of a group but for its
 * last are skipped. */
void meg_onnx_find_attention(meg_onnx_build *b);

/* Reads the group as one operator; not *done: its nodes are to be read one by one, first those that
 * wait for the last, by number; -1: no more. */
meg_status meg_onnx_read_attention(meg_onnx_build *b, const meg_onnx_attention *a, bool *done);
int meg_onnx_waiting(const meg_onnx_attention *a, int i);

/* What the file has as (.., tokens, features), turned: (.., features, tokens), as attention takes it: (n, features of all
 * heads, tokens); and what attention makes, with the axes of q. */
meg_status meg_onnx_arrange_tokens(meg_onnx_build *b, const meg_onnx_node *n,
                                   const meg_onnx_symbol *s, bool turned, int *out);
meg_onnx_view meg_onnx_view_like(const meg_onnx_build *b, const meg_onnx_view *q, int value);

/* ---- nodes that read views ---- */

/* Does the node read a view? Then it is read so: through_views.c. */
bool meg_onnx_has_view(const meg_onnx_build *b, const meg_onnx_node *n);
meg_status meg_onnx_read_view(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row);

/* Of two operands, one spread over the other: view_pairs.c. */
meg_status meg_onnx_read_spread(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row);

/* ---- weights and constants that are computed with: alone.c ---- */

/* Does the node compute with a trained weight, and with constants, but with no data? Then it is read so. */
bool meg_onnx_stands_alone(const meg_onnx_build *b, const meg_onnx_node *n);
meg_status meg_onnx_read_alone(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row);

/* A constant as data of one sample: the symbol gets a view without a batch. */
meg_status meg_onnx_lift(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_symbol *s);

/* The leaf that is lifted so. */
meg_status meg_onnx_lifted(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_symbol *s, int *out);

/* ---- of one another ---- */

/* A layer of one input that works point by point, in either order of the axes. */
meg_status meg_onnx_point(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_layer *l);
bool meg_onnx_is_function(const meg_onnx_node *n); /* of the table in functions.c */

/* Data as a mask, 1 where it is not 0: masks.c. */
meg_status meg_onnx_mask_of(meg_onnx_build *b, const meg_onnx_node *n);

/* Inputs i and k, if both are data, must have the same axes. */
meg_status meg_onnx_line_up(const meg_onnx_build *b, const meg_onnx_node *n, int i, int k);
void meg_onnx_widest_first(const meg_onnx_build *b, int in[2]);

/* A constant that is spread over another value, as a parameter, or as it is. */
meg_status meg_onnx_spread(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_symbol *s, int other,
                           int *out);

/* Entries of an axis of data behind the batch, named by a constant: entries.c. */
meg_status meg_onnx_gather_entries(meg_onnx_build *b, const meg_onnx_node *n, int x, int axis);
meg_status meg_onnx_read_expand(meg_onnx_build *b, const meg_onnx_node *n);

/* Reshape, Squeeze, Unsqueeze, Flatten of a weight: the same numbers, other extents: constants.c. */
meg_status meg_onnx_reshape_weight(meg_onnx_build *b, const meg_onnx_node *n);

/* Slice of a weight that takes all of it: learned positions, up to the tokens that there are. */
meg_status meg_onnx_slice_weight(meg_onnx_build *b, const meg_onnx_node *n);

#endif
