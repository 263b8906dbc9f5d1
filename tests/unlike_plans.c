/* Ranks on unlike machines, as far as one machine can play several: each rank of an MPI job takes
 * instruction sets, threads and Winograd's use of its own, so that devices choose other formats. Under
 * every plan the job must give the answer of one rank; each rank compares what it holds with it, by the
 * rule of tests/compare.h. t777-unlike.sh runs it:
 *
 *     mpirun -n RANKS unlike_plans MIX       the mixes and plans below; `all`: more plans
 *     unlike_plans --mixes                   their names
 */
#include "fuzz_mpi.h"

typedef struct mix { /* of two kinds of ranks */
    const char *name;
    const char *isa[2], *winograd[2];
    int threads[2];
    bool unlike; /* on every machine that has AVX2, some weight is held in two ways */
} mix;

static const mix mixes[] = {
    {"avx-avx2", {"AVX", "AVX2"}, {"0", "0"}, {1, 1}, true},
    {"sse41-all", {"SSE41", "ALL"}, {"0", "0"}, {1, 1}, true},
    {"avx512-avx2", {"AVX512_CORE", "AVX2"}, {"0", "0"}, {1, 1}, false},
    {"winograd", {"ALL", "ALL"}, {"0", "all"}, {1, 2}, false},
    {"everything", {"ALL", "SSE41"}, {"all", "0"}, {2, 1}, true},
};

typedef struct plan_case {
    const char *model, *options;
    const char *one, *many; /* words */
    int ranks;
    bool more; /* only if all are asked for */
} plan_case;

#define UNET   "unet", "image=1x16x16 classes=3 width=8"
#define UNET3D "unet3d", "image=1x8x8x8 classes=3 width=8 bn=0"
#define RESNET "resnet-cifar", "depth=8 image=3x16x16 classes=5 width=8"
#define CNN    "cnn", "image=1x16x16 classes=5 width=8"
#define VIT    "vit_b_16", "image=3x16x16 patch=8 layers=2 heads=2 width=16 mlp=32 classes=5"

static const plan_case cases[] = {
    {UNET, "batch=4", "replicas=2", 2, false},
    {UNET, "batch=4", "mesh=h2", 2, false},
    {UNET, "batch=4", "zero=1 bucket=1KiB", 2, false}, /* no momentum: weights stay whole */
    {UNET, "batch=4 momentum=0.9", "zero=1", 2, true},
    {UNET, "batch=4 momentum=0.9", "zero=3", 2, false},
    {UNET, "batch=4", "stages=2 micro=2", 2, false},
    {UNET, "batch=4", "stages=2 micro=2 schedule=chimera", 2, false}, /* stages on both ranks */
    {UNET, "batch=5", "micro=5 replicas=1 stages=2 schedule=gpipe", 2, true},
    {RESNET, "batch=4 norm=0", "mesh=c2", 2, false},
    {RESNET, "batch=4 norm=0", "replicas=2", 2, true},
    {RESNET, "batch=4 norm=0", "mesh=w2 wide=2", 2, true},
    {CNN, "batch=4 norm=2 optimizer=adam", "replicas=2", 2, true},
    {VIT, "batch=4 momentum=0.9", "mesh=c2", 2, true},
    {VIT, "batch=4", "replicas=2", 2, true},
    {UNET3D, "batch=2", "mesh=d2", 2, true},
    {UNET3D, "batch=2", "replicas=2 allreduce=halving_doubling", 2, true},
    {UNET, "batch=4", "mesh=2x2", 4, false},
    {UNET, "batch=4", "replicas=2 stages=2 micro=2 schedule=chimera", 4, false},
    {UNET, "batch=4 momentum=0.9", "mesh=n2h2 zero=3", 4, true},
    {UNET, "batch=4", "stages=2 mesh=h2 micro=2", 4, true},
    {UNET, "batch=3", "replicas=3 stages=1 mesh=1", 3, true},
    {RESNET, "batch=6 norm=0", "replicas=2 mesh=c2", 4, false},
    {RESNET, "batch=6 norm=0", "mesh=2x2 zero=1 allreduce=hierarchical", 4, true},
    {RESNET, "batch=8 norm=2", "stages=4 chunks=2 micro=2 schedule=interleaved replicas=2", 4,
     true},
    {CNN, "batch=6 norm=0", "mesh=h2/fc1:c2 replicas=2", 4, true},
};

enum {
    MIXES = sizeof mixes / sizeof *mixes,
    CASES = sizeof cases / sizeof *cases
};

/* On a mesh of 2 x 2 neighbours of both axes differ. */
static int kind_of(int rank)
{
    return (rank ^ rank >> 1) & 1;
}

static ranks_case alone(const plan_case *c, const meg_graph *g, const char *device, int threads)
{
    return (ranks_case){.graph = g,
                        .plan = c->one,
                        .device = device,
                        .ranks = 1,
                        .steps = 2,
                        .rate = 1e-3,
                        .threads = threads};
}

/* ---- the answer of one rank in double, which rank 0 computes for all ---- */

typedef struct answer {
    const plan_case *c;
    network_result *result;
} answer;

static void share(meg_comm *comm, void *data, int64_t bytes)
{
    meg_error e = {0};
    if (meg_comm_share(comm, &e, 0, data, bytes) != MEG_OK) meg_comm_abort(comm, 1, e.message);
}

/* Rank 0's, with the names and sizes that all have. */
static network_result *shared(meg_comm *comm, const network_result *like, network_result *first)
{
    network_result *r = calloc(1, sizeof *r);
    *r = *like;
    if (first) r->loss = first->loss;
    share(comm, &r->loss, sizeof r->loss);
    for (int i = 0; i < r->tensors; i++) {
        size_t bytes = (size_t)r->count[i] * sizeof(double);
        r->data[i] = malloc(bytes);
        if (first) memcpy(r->data[i], first->data[i], bytes);
        share(comm, r->data[i], (int64_t)bytes);
    }
    if (first) network_free(first);
    return r;
}

/* Several cases in a row have the same. */
static void find_answer(meg_comm *comm, const plan_case *c, const ranks_one *one, answer *a)
{
    network_result *first = NULL;
    if (a->result && strcmp(a->c->one, c->one) == 0 && strcmp(a->c->options, c->options) == 0)
        return;
    ranks_case judge = alone(c, one->c->graph, "ref64", 1);
    if (meg_comm_rank(comm) == 0) first = ranks_run(&judge);
    if (a->result) network_free(a->result);
    *a = (answer){c, shared(comm, one->result, first)};
}

static bool all_say(meg_comm *comm, bool mine)
{
    meg_error e = {0};
    bool all[RANKS_MOST], good = true;
    if (meg_comm_gather(comm, &e, &mine, sizeof mine, all) != MEG_OK)
        meg_comm_abort(comm, 1, e.message);
    for (int r = 0; r < meg_comm_size(comm); r++)
        good = good && all[r];
    return good;
}

/* The error of one rank on the cpu: the largest that any of these ranks would make alone, since they
 * have other kernels. */
static double find_own(meg_comm *comm, const plan_case *c, const ranks_one *one, const answer *a)
{
    meg_error e = {0};
    double all[RANKS_MOST], most = 0;
    ranks_case cpu = alone(c, one->c->graph, "cpu", one->c->threads);
    compare_own own = {.run = ranks_run_own, .context = &cpu};
    compare_find_own(a->result, &own);
    if (meg_comm_gather(comm, &e, &own.error, sizeof own.error, all) != MEG_OK)
        meg_comm_abort(comm, 1, e.message);
    for (int r = 0; r < meg_comm_size(comm); r++)
        most = fmax(most, all[r]);
    return most;
}

/* To the answer of one rank, by the rule of tests/compare.h. */
static bool near_enough(meg_comm *comm, const plan_case *c, ranks_one *one, answer *a)
{
    const char *name;
    find_answer(comm, c, one, a);
    bool whole = fuzz_mpi_fill(comm, one, a->result);
    double error = compare_error(a->result, one->result, &name), own = 0;
    if (!all_say(comm, error <= compare_float)) own = find_own(comm, c, one, a);
    return all_say(comm, compare_judge(error, name, own, c->many) && whole);
}

/* Sums over ranks have the same bits on all of them, and so has what is made of the sums. Running
 * statistics of what is copied over a mesh are each rank's own. */
static bool same_bits(meg_comm *comm, const ranks_one *one)
{
    meg_error e = {0};
    uint64_t all[RANKS_MOST];
    bool same = true;
    for (int i = 0; i < one->result->tensors; i++) {
        uint64_t mine = 0; /* it does not hold all of it */
        bool sum = one->result->gradient[i] || strstr(one->result->name[i], "(optimizer)");
        bool whole = one->has[i] && sum;
        for (int64_t k = 0; k < one->result->count[i] && whole; k++) {
            uint64_t bits;
            memcpy(&bits, &one->result->data[i][k], sizeof bits);
            whole = !isnan(one->result->data[i][k]);
            mine = meg_hash_word(mine, bits) | 1;
        }
        if (!whole) mine = 0;
        if (meg_comm_gather(comm, &e, &mine, sizeof mine, all) != MEG_OK)
            meg_comm_abort(comm, 1, e.message);
        for (int r = 0; r < meg_comm_size(comm); r++) {
            if (!mine || !all[r] || all[r] == mine) continue;
            fprintf(stderr, "%s: %s has other bits than on rank %d\n", one->c->plan,
                    one->result->name[i], r);
            same = false;
        }
    }
    return same;
}

/* ---- cases ---- */

/* Collective. Counts weights that became plain. */
static bool try_case(meg_comm *comm, const plan_case *c, const mix *m, answer *a, int *plain)
{
    char words[512];
    meg_graph *g = smooth_network(network_zoo(c->model, c->options));
    snprintf(words, sizeof words, "%s %s", c->one, c->many);
    ranks_case many = alone(c, g, "cpu", m->threads[kind_of(meg_comm_rank(comm))]);
    many.plan = words;
    many.ranks = c->ranks;
    ranks_one one = {.c = &many,
                     .comm = comm,
                     .result = calloc(1, sizeof(network_result)),
                     .has = calloc(NETWORK_TENSORS, sizeof(bool))};
    ranks_run_rank(&one);
    bool good = one.result->predicted == one.result->touched;
    if (!good) fprintf(stderr, "%s: other bytes than predicted\n", words);
    good = same_bits(comm, &one) && good;
    good = all_say(comm, good) && near_enough(comm, c, &one, a);
    *plain += one.plain;
    if (meg_comm_rank(comm) == 0)
        printf("%s: %s %s: %d weights in plain format: %s\n", m->name, c->model, words, one.plain,
               good ? "the same" : "OTHER NUMBERS");
    network_free(one.result);
    free(one.has);
    meg_graph_destroy(g);
    return good;
}

static int run(meg_comm *comm, const mix *m, bool all)
{
    int ranks = meg_comm_size(comm), failed = 0, tried = 0, plain = 0;
    answer a = {0};
    for (int i = 0; i < CASES; i++) {
        if (cases[i].ranks != ranks || (cases[i].more && !all)) continue;
        alarm(FUZZ_SECONDS);
        failed += !try_case(comm, &cases[i], m, &a, &plain);
        tried++;
    }
    if (m->unlike && plain == 0 && __builtin_cpu_supports("avx2")) {
        fprintf(stderr, "%s: no weight was held in two ways: nothing was tested\n", m->name);
        failed++;
    }
    if (meg_comm_rank(comm) == 0)
        printf("%s on %d ranks: %d plans, %d FAILED\n", m->name, ranks, tried, failed);
    if (a.result) network_free(a.result);
    return failed > 0 || tried == 0;
}

int main(int argc, char **argv)
{
    meg_error e = {0};
    meg_comm *comm = NULL;
    const char *name = argc > 1 ? argv[1] : "";
    int rank = 0;
    for (int i = 0; strcmp(name, "--mixes") == 0 && i < MIXES; i++)
        printf("%s\n", mixes[i].name);
    for (int i = 0; i < MIXES; i++) {
        if (strcmp(mixes[i].name, name) != 0) continue;
        meg_comm_launched(&rank);
        setenv("DNNL_MAX_CPU_ISA", mixes[i].isa[kind_of(rank)], 1); /* before the first device */
        setenv("MEGALITH_WINOGRAD", mixes[i].winograd[kind_of(rank)], 1);
        if (meg_comm_open(&e, &comm) != MEG_OK) fail_msg("%s", e.message);
        int status = run(comm, &mixes[i], argc > 2 && strcmp(argv[2], "all") == 0);
        meg_comm_free(comm);
        return status;
    }
    return strcmp(name, "--mixes") != 0;
}
