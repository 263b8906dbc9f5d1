/* Reductions against sums that every rank computes for itself, over any communicator. Integers must
 * be exact; floating point must have the same bits on all ranks, and be near. */
#ifndef TESTS_REDUCE_CHECK_H
#define TESTS_REDUCE_CHECK_H

#include "comm/allreduce/reduction.h"
#include "threads_help.h"

#include <math.h>
#include <string.h>

static inline double reduce_element(meg_number type, int rank, int64_t i)
{
    int64_t whole = (rank + 1) * 100 - i % 997 * (1 + rank % 3);
    return type <= MEG_NUMBER_F64 ? (double)whole / 7 : (double)whole;
}

static inline void reduce_set(meg_numbers *n, int64_t i, double value)
{
    if (n->type == MEG_NUMBER_F32) ((float *)n->data)[i] = (float)value;
    if (n->type == MEG_NUMBER_F64) ((double *)n->data)[i] = value;
    if (n->type == MEG_NUMBER_I32) ((int32_t *)n->data)[i] = (int32_t)value;
    if (n->type == MEG_NUMBER_I64) ((int64_t *)n->data)[i] = (int64_t)value;
}

static inline double reduce_get(const meg_numbers *n, int64_t i)
{
    switch (n->type) {
    case MEG_NUMBER_F32:
        return ((float *)n->data)[i];
    case MEG_NUMBER_F64:
        return ((double *)n->data)[i];
    case MEG_NUMBER_I32:
        return ((int32_t *)n->data)[i];
    default:
        return (double)((int64_t *)n->data)[i];
    }
}

/* The spec's data are this rank's elements; scratch exactly as large as it says. */
static inline void reduce_fill(meg_reduction_spec *s, int rank, int place)
{
    size_t bytes = (size_t)(s->data.count * meg_number_bytes(s->data.type));
    meg_allreduce a = {s->ranks, place, s->data.count, s->groups, 0};
    s->data.data = malloc(bytes + !bytes);
    int64_t scratch = meg_reduction_scratch(s->algorithm, &a, s->data.type, s->piece);
    s->scratch = malloc((size_t)scratch + !scratch);
    REQUIRE(s->data.data && s->scratch, "no memory");
    for (int64_t i = 0; i < s->data.count; i++)
        reduce_set(&s->data, i, reduce_element(s->data.type, rank, i));
}

static inline void reduce_check(const meg_reduction_spec *s)
{
    for (int64_t i = 0; i < s->data.count; i++) {
        double expected = s->combine == MEG_COMBINE_SUM ? 0 : -INFINITY, size = 1;
        for (int m = 0; m < s->ranks; m++) {
            double x = reduce_element(s->data.type, s->rank ? s->rank[m] : m, i);
            expected = s->combine == MEG_COMBINE_SUM ? expected + x : fmax(expected, x);
            size += fabs(x);
        }
        /* a rounding per addition, in the type's precision */
        double eps = s->data.type == MEG_NUMBER_F32   ? 1e-7
                     : s->data.type == MEG_NUMBER_F64 ? 1e-15
                                                      : 0;
        double got = reduce_get(&s->data, i), off = fabs(got - expected);
        REQUIRE(off <= eps * size * s->ranks,
                "%s, %d ranks, %ld numbers of type %d: [%ld] is %.17g, not %.17g",
                s->algorithm->name, s->ranks, (long)s->data.count, (int)s->data.type, (long)i, got,
                expected);
    }
}

static inline void reduce_release(meg_reduction_spec *s)
{
    free(s->data.data);
    free(s->scratch);
}

/* All bits as on rank 0. */
static inline void reduce_same(meg_comm *c, const meg_numbers *n)
{
    meg_error e = {0};
    size_t bytes = (size_t)(n->count * meg_number_bytes(n->type));
    char *first = malloc(bytes + !bytes);
    memcpy(first, n->data, bytes);
    OK(&e, meg_comm_share(c, &e, 0, first, (int64_t)bytes));
    REQUIRE(memcmp(first, n->data, bytes) == 0, "other bits than on rank 0");
    free(first);
}

/* One reduction over all ranks of the communicator. */
static inline void reduce_case(meg_comm *c, meg_reduction_spec s)
{
    meg_error e = {0};
    s.ranks = meg_comm_size(c);
    reduce_fill(&s, meg_comm_rank(c), meg_comm_rank(c));
    OK(&e, meg_reduction_run(c, &e, &s));
    reduce_check(&s);
    reduce_same(c, &s.data);
    reduce_release(&s);
}

/* All algorithms, types and operations at sizes from none to `large`. */
static inline void reduce_all(meg_comm *c, int64_t large)
{
    const int64_t counts[] = {0, 1, 7, 1001, large}, pieces[] = {64, 0};
    meg_topology *groups = meg_topology_new(meg_comm_size(c), meg_comm_node(c));
    for (int i = 0; meg_allreduce_at(i); i++)
        for (int type = 0; type < MEG_NUMBERS; type++)
            for (size_t n = 0; n < 2 * sizeof counts / sizeof *counts; n++)
                reduce_case(c, (meg_reduction_spec){
                                   .algorithm = meg_allreduce_at(i),
                                   .groups = groups,
                                   .data = {NULL, counts[n / 2], (meg_number)type},
                                   .combine = (meg_combine)((int)n % MEG_COMBINES),
                                   .tag = i + 1,
                                   .piece = counts[n / 2] == large ? 0 : pieces[n % 2],
                               });
    meg_topology_free(groups);
}

#endif
