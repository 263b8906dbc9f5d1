/* A case of the fuzzer: a random graph under a random plan must give the answer of one rank. The
 * case is a child process, so that a crash or a hang is a failure like any other.
 */
#ifndef TESTS_FUZZ_CASE_H
#define TESTS_FUZZ_CASE_H

#include "fuzz_graph.h"
#include "ranks.h"
#include "smooth.h"

#include <sys/wait.h>

enum {
    FUZZ_SECONDS = 120 /* a case that runs for so long hangs */
};

typedef struct fuzz_plan {
    char one[256], many[1024]; /* options */
    int ranks;
    int64_t samples; /* of the data set: the rest of the last batch is a tail */
    bool eval;       /* both evaluate the same batch: they have the same micro-batches */
    int frozen;      /* weights of the graph that are not trained */
} fuzz_plan;

static inline bool fuzz_normalises(const meg_graph *g)
{
    for (int i = 0; i < g->nodes; i++)
        if (strcmp(g->node[i].op->name, "batchnorm") == 0) return true;
    return false;
}

typedef struct fuzz_pipe { /* who runs what */
    int stages, chunks, micro, replications;
    const char *schedule;
} fuzz_pipe;

static inline fuzz_pipe fuzz_pipe_of(fuzz_dice *d)
{
    static const char *const rows[] = {"serial", "gpipe",  "1f1b",    "zb_h1",
                                       "mast",   "master", "chimera", "interleaved"};
    fuzz_pipe p = {.stages = 1 + (int)fuzz_pick(d, 4), .chunks = 1, .micro = 1, .schedule = "auto"};
    p.micro = 1 + (int)fuzz_pick(d, 5);
    if (p.stages == 1) return p;
    p.schedule = rows[fuzz_pick(d, 8)];
    if (strcmp(p.schedule, "chimera") == 0) p.stages += p.stages % 2;
    bool two = strstr("mast master chimera", p.schedule) != NULL;
    if (two && p.micro < 2) p.micro = 2;
    if (strcmp(p.schedule, "master") == 0) p.replications = 2 + (int)fuzz_pick(d, p.micro - 1);
    if (strcmp(p.schedule, "interleaved") == 0) {
        int seats = 1 + (int)fuzz_pick(d, 3);
        p.chunks = seats == 3 ? 2 : 2 + (int)fuzz_pick(d, 2);
        p.stages = seats * p.chunks;
        p.micro = seats * (1 + (int)fuzz_pick(d, 2));
    }
    return p;
}

/* Adds what each rank holds of shared weights; drawn last, so that the rest stays what it was. */
static inline void fuzz_homes(fuzz_dice *d, fuzz_plan *p)
{
    static const char *const word[] = {"", " zero=1", " zero=3", " zero=3"};
    size_t used = strlen(p->many);
    snprintf(p->many + used, sizeof p->many - used, "%s", word[fuzz_pick(d, 4)]);
}

/* In half of the plans whole blocks are run again; the dice stay as they were. */
static inline void fuzz_again(const fuzz_dice *d, fuzz_plan *p)
{
    fuzz_dice own = *d;
    char *at = strstr(p->many, "recompute="), rest[sizeof p->many];
    if (fuzz_pick(&own, 2) || strstr(p->many, "zero=3")) return;
    at += strlen("recompute=");
    snprintf(rest, sizeof rest, "%s", at + strcspn(at, " "));
    snprintf(at, sizeof p->many - (size_t)(at - p->many), "segments%s", rest);
}

static inline fuzz_plan fuzz_plan_of(fuzz_dice *d, const meg_graph *g)
{
    static const char *const bucket[] = {"16MiB", "1", "300", "4KiB"};
    static const char *const reduce[] = {"ring", "halving_doubling", "ring"};
    static const char *const level[] = {"layer", "block", "layer"};
    fuzz_pipe p = fuzz_pipe_of(d);
    fuzz_plan out = {.ranks = p.stages / p.chunks};
    int replicas = 1 + (int)fuzz_pick(d, 8 / out.ranks < 4 ? 8 / out.ranks : 4);
    int64_t each = replicas + fuzz_pick(d, 4), batch = each * p.micro, norm = 0;
    out.ranks *= replicas;
    if (fuzz_normalises(g)) {
        norm = p.micro == 1 ? fuzz_pick(d, batch + 1) : 1 + fuzz_pick(d, each);
        while (p.micro > 1 && each % norm)
            norm--;
    }
    out.samples = batch * 2 + (fuzz_pick(d, 2) ? fuzz_pick(d, batch) : 0);
    bool micro = fuzz_pick(d, 2);
    out.eval = micro || p.micro == 1;
    int used = snprintf(out.one, sizeof out.one, "batch=%lld norm=%lld momentum=0.9",
                        (long long)batch, (long long)norm);
    snprintf(out.many, sizeof out.many,
             "%s micro=%d stages=%d chunks=%d replicas=%d schedule=%s replications=%d level=%s "
             "balance=%s bucket=%s allreduce=%s recompute=%s phases=%d",
             out.one, p.micro, p.stages, p.chunks, replicas, p.schedule, p.replications,
             level[fuzz_pick(d, 3)], fuzz_pick(d, 2) ? "compute" : "memory",
             bucket[fuzz_pick(d, 4)], reduce[fuzz_pick(d, 3)], fuzz_pick(d, 2) ? "auto" : "none",
             fuzz_pick(d, 4) == 0);
    fuzz_homes(d, &out);
    fuzz_again(d, &out);
    if (micro) snprintf(out.one + used, sizeof out.one - (size_t)used, " micro=%d", p.micro);
    return out;
}

/* All ranks must agree whether the plan is possible. */
static inline bool fuzz_possible(const meg_graph *g, const fuzz_plan *p, bool *agreed)
{
    int good = 0;
    for (int r = 0; r < p->ranks; r++) {
        meg_error e;
        meg_plan *plan = NULL;
        meg_world world = {r, p->ranks};
        good += meg_plan_make_for(g, &e, &meg_profile_plain, &world, p->many, p->samples, &plan) ==
                MEG_OK;
        if (good <= r) fprintf(stderr, "  refused: %s\n", e.message);
        meg_plan_destroy(plan);
        if (good == 0) break;
    }
    *agreed = good == 0 || good == p->ranks;
    return good > 0;
}

enum {
    FUZZ_GOOD,
    FUZZ_BAD,
    FUZZ_REFUSED
};

static inline ranks_case fuzz_case_of(const meg_graph *g, const fuzz_plan *p, bool many)
{
    return (ranks_case){.graph = g,
                        .plan = many ? p->many : p->one,
                        .device = "ref64",
                        .ranks = many ? p->ranks : 1,
                        .steps = 2,
                        .rate = 1e-3, /* products of products diverge at more */
                        .samples = p->samples,
                        .eval = p->eval};
}

/* The cpu's formats and kernels under the same plan, of the network without its kinks. With fewer nodes
 * it may have too few for the plan's stages: then there is nothing to compare. */
static inline bool fuzz_float(const meg_graph *g, const fuzz_plan *p)
{
    bool good = true, agreed;
    meg_graph *smooth = smooth_network(meg_graph_copy(g));
    ranks_case one = fuzz_case_of(smooth, p, false), all = fuzz_case_of(smooth, p, true);
    all.device = "cpu";
    if (fuzz_possible(smooth, p, &agreed)) good = ranks_agree(&one, &all, "  on the cpu");
    meg_graph_destroy(smooth);
    return good;
}

static inline int fuzz_compare(const meg_graph *g, const fuzz_plan *p)
{
    ranks_case one = fuzz_case_of(g, p, false), all = fuzz_case_of(g, p, true);
    return ranks_agree(&one, &all, "  fuzz") && fuzz_float(g, p) ? FUZZ_GOOD : FUZZ_BAD;
}

/* Draws a graph, whose error says if it is none, and a plan for it. */
typedef meg_graph *fuzz_make(fuzz_dice *d, fuzz_plan *p);

static inline meg_graph *fuzz_make_pipe(fuzz_dice *d, fuzz_plan *p)
{
    meg_graph *g = fuzz_graph(d);
    if (g->error.status == MEG_OK) *p = fuzz_plan_of(d, g);
    return g;
}

/* No bias is zero: behind zeros (padding) and in front of norms it would leave values that are zero up to
 * rounding, where rectifiers have their kink. */
static inline void fuzz_unsettle(meg_graph *g)
{
    for (int i = 0; i < g->values; i++) {
        meg_value *x = &g->value[i];
        if (x->kind != MEG_PARAMETER || x->start != MEG_ZEROS) continue;
        x->start = MEG_UNIFORM;
        x->bound = 0.3;
    }
}

/* Of every other case, freezes some weights; drawn last, so that the rest stays what it was. Returns
 * how many. */
static inline int fuzz_freeze(fuzz_dice *d, meg_graph *g)
{
    int64_t share = fuzz_pick(d, 6); /* 0 to 2: none; else 1 in 2, 3 or 4 */
    int frozen = 0, last = -1;
    for (int i = 0; i < g->values && share > 2; i++) {
        if (g->value[i].kind != MEG_PARAMETER) continue;
        last = i;
        if (fuzz_pick(d, share - 1) > 0) continue;
        g->value[i].kind = MEG_FIXED;
        frozen++;
    }
    if (last >= 0) g->value[last].kind = MEG_PARAMETER; /* something is trained */
    return frozen;
}

/* The graph and the plan of a seed. */
static inline meg_graph *fuzz_draw(fuzz_make *make, uint64_t seed, fuzz_plan *p)
{
    fuzz_dice d = {{seed, 0, meg_hash("fuzz")}, 0};
    meg_graph *g = make(&d, p);
    if (g->error.status != MEG_OK) return g;
    fuzz_unsettle(g);
    p->frozen = fuzz_freeze(&d, g);
    return g;
}

static inline int fuzz_run_here(fuzz_make *make, uint64_t seed)
{
    bool agreed;
    fuzz_plan p;
    meg_graph *g = fuzz_draw(make, seed, &p);
    if (g->error.status != MEG_OK) {
        fprintf(stderr, "  graph: %s\n", g->error.message);
        return FUZZ_BAD;
    }
    fprintf(stderr, "  %d nodes, %d weights frozen, %d ranks, %lld samples: %s\n", g->nodes,
            p.frozen, p.ranks, (long long)p.samples, p.many);
    bool possible = fuzz_possible(g, &p, &agreed);
    int result = !agreed ? FUZZ_BAD : !possible ? FUZZ_REFUSED : fuzz_compare(g, &p);
    meg_graph_destroy(g);
    return result;
}

/* Prints a line to repeat a failure. */
static inline int fuzz_run(fuzz_make *make, uint64_t seed, const char *option)
{
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) return FUZZ_BAD;
    if (child == 0) {
        alarm(FUZZ_SECONDS);
        int result = fuzz_run_here(make, seed);
        fflush(NULL);
        _exit(result);
    }
    int status = 0;
    waitpid(child, &status, 0);
    int result = WIFEXITED(status) && WEXITSTATUS(status) <= FUZZ_REFUSED ? WEXITSTATUS(status)
                                                                          : FUZZ_BAD;
    if (WIFSIGNALED(status))
        fprintf(stderr, "  %s\n", WTERMSIG(status) == SIGALRM ? "hangs" : "crashed");
    if (result == FUZZ_BAD)
        fprintf(stderr, "FAILED: ./do fuzz %s1 %llu\n", option, (unsigned long long)seed);
    return result;
}

#endif
