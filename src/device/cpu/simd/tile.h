/* A tile of attention: products of some queries with some keys, on their way to the softmax. */
#ifndef MEG_DEVICE_CPU_SIMD_TILE_H
#define MEG_DEVICE_CPU_SIMD_TILE_H

#include <stdint.h>

enum {
    MEG_TILE_ROWS = 64,  /* queries */
    MEG_TILE_COLS = 256, /* keys; a multiple of the rows: a row that sees none has no softmax */
    MEG_TILE_SIZE = MEG_TILE_ROWS * MEG_TILE_COLS
};

typedef struct meg_tile {
    int64_t rows, cols;
    int64_t seen; /* row r sees the columns below seen + r */
    float *s;     /* (rows, MEG_TILE_COLS): products; becomes the exponentials */
    float *top;   /* (rows): the largest product so far */
    float *sum;   /* (rows): of exponentials so far */
    float *scale; /* (rows): becomes what all that was summed before is to be multiplied by */

    /* backward */
    float *ds;         /* as s: gradients of the exponentials; becomes those of the products */
    const float *z;    /* (rows): log of the sum of exponentials */
    const float *mean; /* (rows): of the gradients, by the softmax */
    float factor;      /* of the products */
} meg_tile;

#endif
