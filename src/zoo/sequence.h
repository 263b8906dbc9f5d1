/* Layers of sequences, for builders of transformers. Tokens lie on w and features on c, so a layer
 * that treats every token alike is a 1x1 convolution; its weight has in files the shape that
 * PyTorch's Linear gives it, (units, features).
 */
#ifndef MEG_ZOO_SEQUENCE_H
#define MEG_ZOO_SEQUENCE_H

#include "zoo/zoo.h"

typedef struct meg_linear {
    int64_t units;
    const char *weight, *bias; /* what their names end in: ".weight", ".bias" */
} meg_linear;

typedef struct meg_heads {
    int64_t count;
    bool causal; /* a token sees those before it, and itself */
} meg_heads;

/* y(units, w) = weight (units, c) x(c, w) + bias */
int meg_zoo_linear(const meg_module *m, const char *name, meg_linear l, int x);

/* Attention of the thirds of x's channels: queries, keys, values. */
int meg_zoo_attend(const meg_module *m, const char *name, meg_heads h, int x);

/* A parameter of its own, (1, rows, features) in files; it starts normal, with this deviation. */
int meg_zoo_rows(const meg_module *m, const char *name, int64_t rows, int64_t features,
                 double deviation);

/* Adds such a parameter, or a value like it: row t to token t of every sample. */
int meg_zoo_add_rows(const meg_module *m, const char *name, int rows, int x);

#endif
