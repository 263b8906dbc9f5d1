/* A chain of equal layers, of which replays are known in closed form; a machine whose messages take no time. */
#ifndef TESTS_CHAIN_H
#define TESTS_CHAIN_H

#include "graph/graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

enum {
    WIDTH = 64,
    REAL = 8 /* bytes of a number: plain profiles are in double */
};

static const char QUICK[] = "inside=0s,1000000TB/s ranks=16 cores=16";

static meg_graph *chain(int layers)
{
    meg_graph *g = meg_graph_create("chain");
    int x = meg_graph_input(g, "x", 2, (int64_t[]){1, WIDTH});
    for (int i = 0; i < layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "fc%d", i);
        x = meg_graph_add(g, "dense", name, "units=64 bias=no", 1, &x);
    }
    meg_graph_add_loss(g, "softmax_xent", "", x, 1);
    assert_int_equal(g->error.status, MEG_OK);
    return g;
}

#endif
