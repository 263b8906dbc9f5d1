/* A case of the fuzzer on the ranks of an MPI job: each compares what it holds with its own run on
 * one rank, and all together must hold everything.
 */
#ifndef TESTS_FUZZ_MPI_H
#define TESTS_FUZZ_MPI_H

#include "fuzz_case.h"

/* Prints how many ranks the case wants; 0: its plan is refused. */
static inline int fuzz_mpi_ranks(uint64_t seed)
{
    fuzz_dice d = {{seed, 0, meg_hash("fuzz")}, 0};
    bool agreed;
    meg_graph *g = fuzz_graph(&d);
    fuzz_plan p = fuzz_plan_of(&d, g);
    fuzz_freeze(&d, g);
    bool possible = fuzz_possible(g, &p, &agreed);
    printf("%d\n", possible && agreed ? p.ranks : 0);
    meg_graph_destroy(g);
    return !agreed;
}

/* Marks the elements that the rank holds of a tensor; with zero= it may hold a part. */
static inline void fuzz_mpi_mark(const ranks_one *one, int tensor, unsigned char mine[])
{
    const double *data = one->result->data[tensor];
    bool parts = strstr(one->c->plan, "zero=") != NULL;
    for (int64_t k = 0; k < one->result->count[tensor]; k++)
        mine[k] = one->has[tensor] && !(parts && isnan(data[k]));
}

/* What this rank does not hold is taken from the answer. Has somebody every element? */
static inline bool fuzz_mpi_fill(meg_comm *c, ranks_one *one, const network_result *answer)
{
    meg_error e;
    int size = meg_comm_size(c);
    if (answer->tensors != one->result->tensors) return false;
    for (int i = 0; i < answer->tensors; i++) {
        size_t count = (size_t)answer->count[i], missing = 0;
        unsigned char *mine = calloc(count, 1), *all = calloc(count * (size_t)size, 1);
        fuzz_mpi_mark(one, i, mine);
        if (meg_comm_gather(c, &e, mine, (int64_t)count, all) != MEG_OK)
            meg_comm_abort(c, 1, e.message);
        for (size_t k = 0; k < count; k++) {
            bool somebody = false;
            for (size_t r = 0; r < (size_t)size; r++)
                somebody = somebody || all[r * count + k];
            missing += !somebody;
            if (!mine[k]) one->result->data[i][k] = answer->data[i][k];
        }
        free(mine);
        free(all);
        if (missing) fprintf(stderr, "nobody has %zu elements of %s\n", missing, answer->name[i]);
        if (missing) return false;
    }
    return true;
}

static inline bool fuzz_mpi_good(meg_comm *c, const meg_graph *g, const fuzz_plan *p)
{
    ranks_case case_one = fuzz_case_of(g, p, false), case_all = fuzz_case_of(g, p, true);
    ranks_one one = {.c = &case_all,
                     .comm = c,
                     .result = calloc(1, sizeof(network_result)),
                     .has = calloc(NETWORK_TENSORS, sizeof(bool))};
    network_result *answer = ranks_run(&case_one);
    ranks_run_rank(&one);
    bool good = one.result->predicted == one.result->touched;
    if (!good)
        fprintf(stderr, "predicted %lld bytes, measured %lld\n", (long long)one.result->predicted,
                (long long)one.result->touched);
    good = fuzz_mpi_fill(c, &one, answer) && good;
    good = good && compare_same(answer, one.result, "  mpi");
    network_free(answer);
    network_free(one.result);
    free(one.has);
    return good;
}

/* Collective: the launcher has started as many ranks as the case wants. */
static inline int fuzz_mpi_case(uint64_t seed)
{
    meg_error e = {0};
    meg_comm *c = NULL;
    fuzz_dice d = {{seed, 0, meg_hash("fuzz")}, 0};
    meg_graph *g = fuzz_graph(&d);
    fuzz_plan p = fuzz_plan_of(&d, g);
    fuzz_freeze(&d, g);
    if (meg_comm_open(&e, &c) != MEG_OK) {
        fprintf(stderr, "%s\n", e.message);
        return 2;
    }
    if (meg_comm_size(c) != p.ranks) {
        fprintf(stderr, "%d ranks, but the case wants %d\n", meg_comm_size(c), p.ranks);
        return 2;
    }
    alarm(FUZZ_SECONDS);
    if (!fuzz_mpi_good(c, g, &p))
        meg_fail(&e, MEG_EARG, "seed %llu: not the answer of one rank", (unsigned long long)seed);
    meg_comm_agree(c, &e);
    if (e.status != MEG_OK && meg_comm_rank(c) == 0) fprintf(stderr, "%s\n", e.message);
    meg_comm_free(c);
    meg_graph_destroy(g);
    return e.status != MEG_OK;
}

#endif
