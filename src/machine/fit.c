/* Fitting: see fit.h. There are few terms, so every choice of them is solved for itself, and the best of
 * those without a negative coefficient is taken: what an active-set method finds, without its steps.
 * Samples that lie far off count less in a second round and a third (Huber, Robust estimation of a
 * location parameter, 1964): neighbours on the machine disturb some of them.
 */
#include "machine/fit.h"
#include "base/pool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROUNDS = 4,
    FEWEST = 3 /* samples for more than one term */
};

static const double LARGEST_BASE = 3e-5; /* seconds: samples of like size look like a fixed cost */
static const double INTENSE = 4;         /* operations per byte, beyond which arithmetic decides */

typedef struct equations { /* normal ones, of all terms */
    double a[MEG_TERMS][MEG_TERMS], b[MEG_TERMS], c;
} equations;

static double relative(const meg_price_model *m, const meg_fit_sample *s)
{
    double seconds = 0;
    for (int i = 0; i < MEG_TERMS; i++)
        seconds += m->term[i] * s->figure[i];
    return seconds / s->seconds - 1;
}

/* Figures are scaled by `unit`, so that all of them are near 1. */
static equations normal(const meg_fit_sample *s, int count, const double *weight,
                        const double unit[MEG_TERMS])
{
    equations n = {.c = 0};
    for (int k = 0; k < count; k++) {
        double x[MEG_TERMS], w = weight[k];
        for (int i = 0; i < MEG_TERMS; i++)
            x[i] = s[k].figure[i] / unit[i] / s[k].seconds;
        for (int i = 0; i < MEG_TERMS; i++) {
            for (int j = 0; j < MEG_TERMS; j++)
                n.a[i][j] += w * x[i] * x[j];
            n.b[i] += w * x[i];
        }
        n.c += w;
    }
    return n;
}

/* Gauss' elimination among the terms of `chosen`; false: they are not independent. */
static bool solve(const equations *n, unsigned chosen, double x[MEG_TERMS])
{
    double a[MEG_TERMS][MEG_TERMS + 1];
    for (int i = 0; i < MEG_TERMS; i++) {
        bool in = chosen >> i & 1;
        for (int j = 0; j < MEG_TERMS; j++)
            a[i][j] = in && chosen >> j & 1 ? n->a[i][j] : i == j;
        a[i][MEG_TERMS] = in ? n->b[i] : 0;
    }
    for (int p = 0; p < MEG_TERMS; p++) { /* symmetric and positive: no pivoting */
        if (!(a[p][p] > 1e-9 * (chosen >> p & 1 ? n->a[p][p] : 1))) return false;
        for (int i = 0; i < MEG_TERMS; i++) {
            if (i == p) continue;
            double f = a[i][p] / a[p][p];
            for (int j = p; j <= MEG_TERMS; j++)
                a[i][j] -= f * a[p][j];
        }
    }
    for (int i = 0; i < MEG_TERMS; i++)
        x[i] = a[i][MEG_TERMS] / a[i][i];
    return true;
}

static double residual(const equations *n, const double x[MEG_TERMS])
{
    double sum = n->c;
    for (int i = 0; i < MEG_TERMS; i++) {
        sum -= 2 * n->b[i] * x[i];
        for (int j = 0; j < MEG_TERMS; j++)
            sum += n->a[i][j] * x[i] * x[j];
    }
    return sum;
}

/* A term more must earn its place: it fits noise, too. */
static double judged(const equations *n, const double x[MEG_TERMS])
{
    int used = 0;
    for (int i = 0; i < MEG_TERMS; i++)
        used += x[i] > 0;
    return (fmax(residual(n, x), 0) + 1e-4 * n->c) * (1 + 0.05 * used);
}

/* The terms that these samples can tell apart. One or two samples tell nothing of how terms share: all is
 * put on operations, or on bytes. A term of bytes beyond a cache wants samples that lie well beyond it. */
static unsigned terms_of(const meg_fit_sample *s, int count)
{
    int beyond[MEG_TERMS] = {0};
    unsigned all = (1u << MEG_TERMS) - 1;
    bool computes = s->figure[MEG_TERM_FLOP] > INTENSE * s->figure[MEG_TERM_BYTE];
    if (count < FEWEST) return 1u << (computes ? MEG_TERM_FLOP : MEG_TERM_BYTE);
    for (int k = 0; k < count; k++)
        for (int i = MEG_TERM_COLD; i <= MEG_TERM_FAR; i++)
            beyond[i] += s[k].figure[i] > s[k].figure[MEG_TERM_BYTE] / 2;
    for (int i = MEG_TERM_COLD; i <= MEG_TERM_FAR; i++)
        if (beyond[i] < FEWEST - 1) all &= ~(1u << i);
    return all;
}

static void best_choice(const equations *n, const double unit[MEG_TERMS], unsigned terms,
                        meg_price_model *out)
{
    double least = INFINITY;
    for (unsigned chosen = 1; chosen < 1u << MEG_TERMS; chosen++) {
        double x[MEG_TERMS];
        if (chosen & ~terms) continue;
        bool sound = solve(n, chosen, x);
        for (int i = 0; i < MEG_TERMS && sound; i++)
            sound = x[i] >= 0 && isfinite(x[i]);
        if (sound && x[MEG_TERM_BASE] > LARGEST_BASE) sound = false;
        double off = sound ? judged(n, x) : INFINITY;
        if (off >= least) continue;
        least = off;
        for (int i = 0; i < MEG_TERMS; i++)
            out->term[i] = x[i] / unit[i];
    }
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median_error(const meg_fit_sample *s, int count, const meg_price_model *m,
                           double *room)
{
    int real = 0;
    for (int k = 0; k < count; k++)
        if (s[k].weight >= 1) room[real++] = fabs(relative(m, &s[k]));
    if (real == 0) return 0;
    qsort(room, (size_t)real, sizeof *room, ascending);
    return real % 2 ? room[real / 2] : (room[real / 2 - 1] + room[real / 2]) / 2;
}

void meg_fit(const meg_fit_sample *s, int count, meg_price_model *out)
{
    size_t room = 0;
    double *weight = meg_grow(NULL, &room, 2 * (size_t)count, sizeof *weight);
    double *error = weight + count, unit[MEG_TERMS] = {0};
    for (int i = 0; i < MEG_TERMS; i++) {
        for (int k = 0; k < count; k++)
            unit[i] = fmax(unit[i], s[k].figure[i]);
        if (unit[i] <= 0) unit[i] = 1;
    }
    for (int k = 0; k < count; k++)
        weight[k] = s[k].weight;
    unsigned terms = terms_of(s, count);
    memset(out->term, 0, sizeof out->term);
    for (int round = 0; round < ROUNDS; round++) {
        equations n = normal(s, count, weight, unit);
        best_choice(&n, unit, terms, out);
        double scale = fmax(2 * median_error(s, count, out, error), 1e-3);
        for (int k = 0; k < count; k++)
            weight[k] = s[k].weight * fmin(1, scale / fmax(fabs(relative(out, &s[k])), 1e-12));
    }
    out->error = median_error(s, count, out, error);
    out->samples = 0;
    for (int k = 0; k < count; k++)
        out->samples += s[k].weight >= 1;
    free(weight);
}
