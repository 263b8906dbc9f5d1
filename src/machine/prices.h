/* A book of prices: what kernels cost on some machine, as data. `megalith probe` measures and writes it,
 * plans read it; nobody measures while planning, so that the same book gives the same plan at any hour.
 *
 *     measured   key -> seconds             one kernel just as it runs: operator, pass, shapes, formats
 *     fitted     family -> coefficients     seconds = sum of term x figure of the kernel (fit.h), times what
 *                                           measured kernels of the family and of like size are off it
 *     rates      what the machine does per second: for kernels of which the book knows nothing
 *
 * The first that knows the kernel answers. A book is text (prices_text.c):
 *
 *     megalith prices 1
 *     machine threads=1 ranks=2 isa=avx2
 *     rates flops=4.1e10 plain=1e9 bandwidth=9e9 launch=2e-06 step=5e-05
 *     model base=1e-06 flop=2.8e-11 byte=0 cold=5e-11 far=0 error=0.04 samples=12 : conv fwd jit:avx2
 *     price 0.000121 flops=2e+08 bytes=1e+06 : conv fwd jit:avx2 filters=64 kernel=3 ...
 *     inside latency=4e-07 at=1024:2.1e9,65536:8e9
 */
#ifndef MEG_MACHINE_PRICES_H
#define MEG_MACHINE_PRICES_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct meg_rates { /* of this machine with this many threads */
    double flops;          /* multiply-adds of well-blocked loops, floating-point operations / s */
    double plain;          /* the same of the plain-C kernels */
    double bandwidth;      /* bytes / s, read and written */
    double launch;         /* seconds from the end of a kernel to the begin of the next */
    double step;           /* seconds of a step besides its kernels: its begin and its end */
    double issue;          /* of the thread that fills the device's queue, for a kernel, */
    double post; /* and for a message or sum: matters where it shares the workers' cores */
    double
        resume; /* seconds from the end of what a device stood still for until it goes on, and until
                      what it ended is on its way, besides the link's own; 0: as `step` */
    double turn, turn_work; /* of a turn of the reference loop (exec/probe/drift.h) when prices were
                               made: on the wall, of the worker's own time; 0: not known */
} meg_rates;

/* What is known of a kernel before it is timed. */
typedef struct meg_price_query {
    const char *key;       /* the kernel in all its details; "": it was never measured */
    const char *family;    /* those that are computed alike: "conv fwd jit:avx2" */
    const char *impl;      /* the last word of the family: "jit:avx2", "plain" */
    double flops, traffic; /* operations, bytes read and written, as this implementation does it */
} meg_price_query;

enum {
    MEG_TERM_BASE, /* 1: what each kernel costs */
    MEG_TERM_FLOP, /* operations */
    MEG_TERM_BYTE, /* bytes read and written */
    MEG_TERM_COLD, /* those beyond what a core's cache holds */
    MEG_TERM_FAR,  /* those beyond what the package's cache holds */
    MEG_TERMS
};

/* The figures that the terms are multiplied with. */
void meg_price_figures(const meg_price_query *q, double figure[MEG_TERMS]);

typedef struct meg_price_model {
    const char *family;
    double term[MEG_TERMS];
    double error; /* the median of |fitted - measured| / measured */
    int samples;
} meg_price_model;

typedef struct meg_price {
    const char *key;       /* begins with the family */
    double seconds;        /* without the launch */
    double flops, traffic; /* both 0: not known, so it says nothing of its neighbours */
    double
        seen; /* seconds of the steps that it was measured in: what it counts where it is measured again */
} meg_price;

typedef struct meg_prices meg_prices;

typedef struct meg_prices_head { /* of what machine the book is */
    int threads, ranks;          /* of a rank; that were probed at once on a node */
    char isa[32];                /* instruction set */
    meg_rates rates;
} meg_prices_head;

/* Round figures of no machine in particular, for tests, and where nobody asked for seconds. */
const meg_prices *meg_prices_builtin(void);

meg_prices *meg_prices_new(const meg_prices_head *head);
void meg_prices_free(meg_prices *p);
const meg_prices_head *meg_prices_head_of(const meg_prices *p);

/* What is there already is replaced. Texts are copied. */
void meg_prices_add(meg_prices *p, const meg_price *one);

/* Measured once more: both count, by how long each was looked at; what is long ago not for ever. */
void meg_prices_again(meg_prices *p, const meg_price *one);
void meg_prices_add_model(meg_prices *p, const meg_price_model *m);
void meg_prices_add_link(meg_prices *p, const char *line); /* "inside latency=..." */

/* The i-th, in the order of their texts; NULL past the end. */
const meg_price *meg_prices_at(const meg_prices *p, int i);
const meg_price_model *meg_prices_model_at(const meg_prices *p, int i);
const char *meg_prices_link_at(const meg_prices *p, int i);

const meg_price *meg_prices_find(const meg_prices *p, const char *key);
const meg_price_model *meg_prices_model(const meg_prices *p, const char *family);

/* What the machine's rates say of a kernel, without its launch. */
double meg_rates_guess(const meg_rates *r, const meg_price_query *q);

double meg_prices_step(const meg_prices *p); /* of a step besides its kernels; NULL as below */

/* Seconds of a kernel, its launch included. `p` NULL: the built-in book's. */
double meg_prices_seconds(const meg_prices *p, const meg_price_query *q);

/* ---- text (prices_text.c) ---- */

enum {
    MEG_PRICES_TEXT_MAX = 64 << 20
};

/* Bytes without trust: a message names `what` and the line. */
meg_status meg_prices_read(meg_error *e, const char *what, const char *text, size_t size,
                           meg_prices **out);
void meg_prices_write(const meg_prices *p, FILE *out);

#endif
