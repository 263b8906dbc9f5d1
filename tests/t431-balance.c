/* balance=memory: the largest arena of its ranks beside that of the best cut by hand, which is found by
 * planning every cut. The arenas are those of the lowered plans, as explain prints them.
 *
 * A rank's arena is planned once for each choice of its own stages: where the others are cut does not
 * change it, but for the number of stages that read a value, which is why the best is planned again.
 */
#include "graph/groups.h"
#include "network.h"

enum {
    PIECES = 16,
    STAGES = 4,
    KEYS = PIECES * PIECES * PIECES * PIECES /* two stages' first pieces and ends */
};

static const double ALLOWED = 1.05; /* of the best arena */

typedef struct sample {
    const char *device; /* NULL: plain formats */
    const char *model, *model_words, *words;
    int stages, chunks, ranks;
} sample;

/* Those of the issue, with the device's own formats; what is special. */
static const sample SAMPLES[] = {
    {"cpu", "resnet-cifar", "depth=20", "batch=64 norm=8 micro=8 schedule=1f1b", 4, 1, 4},
    {"cpu", "unet", "image=3x128x128", "batch=16 micro=8 schedule=1f1b", 4, 1, 4},
    {NULL, "resnet-cifar", "depth=20 version=2 image=3x64x64", "batch=16 micro=1", 3, 1, 3},
    {NULL, "resnet-cifar", "depth=20", "batch=48 norm=12 micro=4 zero=1 momentum=0.9", 3, 1, 6},
    {NULL, "resnet-cifar", "depth=20", "batch=32 norm=8 micro=4 recompute=none", 3, 1, 3},
    {NULL, "unet", "image=3x64x64 width=16", "batch=8 micro=4 optimizer=adam", 3, 1, 3},
    {NULL, "unet", "image=3x64x64 width=16", "batch=8 micro=4 mesh=2x2", 3, 1, 12},
};

/* Each of these networks under each of these schedules. */
static const sample NETS[] = {
    {NULL, "resnet-cifar", "depth=20", "batch=32 norm=4 momentum=0.9", 0, 0, 0},
    {NULL, "unet", "image=3x32x32 width=8", "batch=8", 0, 0, 0},
    {NULL, "vgg11", "image=3x64x64 width=16 hidden=128 classes=10", "batch=16 momentum=0.9", 0, 0,
     0},
    {NULL, "gpt", "layers=6 width=64 heads=4 tokens=32 classes=512", "batch=8", 0, 0, 0},
};

static const sample PIPES[] = {
    {NULL, NULL, NULL, "micro=4 schedule=serial", 3, 1, 3},
    {NULL, NULL, NULL, "micro=2 schedule=gpipe", 4, 1, 4},
    {NULL, NULL, NULL, "micro=4 schedule=1f1b", 2, 1, 2},
    {NULL, NULL, NULL, "micro=8 schedule=1f1b", 4, 1, 4},
    {NULL, NULL, NULL, "micro=4 schedule=zb_h1", 3, 1, 3},
    {NULL, NULL, NULL, "micro=2 schedule=mast", 3, 1, 3},
    {NULL, NULL, NULL, "micro=4 schedule=master replications=2", 4, 1, 4},
    {NULL, NULL, NULL, "micro=4 schedule=chimera", 4, 1, 4},
    {NULL, NULL, NULL, "micro=4 schedule=interleaved", 4, 2, 2},
};

typedef struct look {
    const sample *s;
    meg_graph *graph;
    meg_device *device;
    int pieces;
    const char *name[PIECES];
    int64_t *known; /* (ranks, choices of the rank's stages): its arena, 0: not yet planned */
    int64_t best;
    int cut[STAGES + 1], tried;
} look;

/* ---- one plan ---- */

static meg_plan *plan_of(const look *x, const char *words, int rank)
{
    meg_error e = {0};
    meg_plan *p = NULL;
    meg_world world = {rank, x->s->ranks};
    meg_profile own = x->device ? meg_profile_of(x->device) : meg_profile_plain;
    meg_plan_make_for(x->graph, &e, &own, &world, words, 0, &p);
    if (!p) fail_msg("%s, %s: %s", x->s->model, words, e.message);
    return p;
}

static int64_t arena_of(const look *x, const char *words, int rank)
{
    meg_plan *p = plan_of(x, words, rank);
    int64_t bytes = p->arena;
    meg_plan_destroy(p);
    return bytes;
}

static int64_t largest_of(const look *x, const char *words)
{
    int64_t most = 0;
    for (int r = 0; r < x->s->ranks; r++) {
        int64_t bytes = arena_of(x, words, r);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* "... stages=4 chunks=1 assign=a,b,c", for the first pieces of the stages. */
static void words_of(const look *x, const int first[], char out[640])
{
    int used = snprintf(out, 640, "%s stages=%d chunks=%d assign=", x->s->words, x->s->stages,
                        x->s->chunks);
    for (int s = 1; s < x->s->stages; s++)
        used += snprintf(out + used, (size_t)(640 - used), "%s%s", s > 1 ? "," : "",
                         x->name[first[s]]);
}

/* ---- all cuts ---- */

static bool sits(const sample *s, int stage, int rank)
{
    bool two = strstr(s->words, "chimera") || strstr(s->words, "mast");
    return stage % s->ranks == rank || (two && s->stages - 1 - stage == rank);
}

/* Planned once for a rank's stages, where these are all that it has: no replicas, no mesh. */
static int64_t known_of(look *x, const int first[], int rank)
{
    const sample *s = x->s;
    size_t key = 0;
    char words[640];
    words_of(x, first, words);
    if (s->ranks != s->stages / s->chunks) return arena_of(x, words, rank);
    for (int k = 0; k < s->stages; k++) {
        int end = k + 1 < s->stages ? first[k + 1] : x->pieces;
        if (sits(s, k, rank)) key = (key * PIECES + (size_t)first[k]) * PIECES + (size_t)end;
    }
    key += (size_t)rank * KEYS;
    if (!x->known[key]) x->known[key] = arena_of(x, words, rank);
    return x->known[key];
}

static void try_all(look *x, int *first, int s)
{
    int64_t most = 0;
    if (s < x->s->stages) {
        for (int i = first[s - 1] + 1; i <= x->pieces - (x->s->stages - s); i++) {
            first[s] = i;
            try_all(x, first, s + 1);
        }
        return;
    }
    for (int r = 0; r < x->s->ranks && (!x->best || most < x->best); r++) {
        int64_t bytes = known_of(x, first, r);
        if (bytes > most) most = bytes;
    }
    x->tried++;
    if (x->best && most >= x->best) return;
    x->best = most;
    memcpy(x->cut, first, sizeof x->cut);
}

/* ---- the samples ---- */

/* The pieces that plans cut: the last ones may be losses alone, which stages do not begin with. */
static void list_pieces(look *x)
{
    meg_groups *s = meg_groups_new(x->graph, MEG_LEVEL_BLOCK);
    for (int i = 0; i < s->count; i++) {
        bool loss = false;
        const meg_node *v = &x->graph->node[s->group[i].node[0]];
        for (int k = 0; k < v->inputs; k++)
            loss = loss || x->graph->value[v->in[k]].kind == MEG_LABEL;
        if (loss) continue;
        if (x->pieces == PIECES) fail_msg("%s has more than %d blocks", x->s->model, PIECES);
        x->name[x->pieces++] = strdup(s->group[i].name);
    }
    meg_groups_free(s);
}

static void check_sample(const sample *s, double *worst)
{
    look x = {.s = s};
    meg_error e = {0};
    char words[640], by_hand[640];
    int first[STAGES + 1] = {0};
    x.graph = network_zoo(s->model, s->model_words);
    if (s->device && meg_device_open(&e, s->device, 1, &x.device) != MEG_OK)
        fail_msg("%s", e.message);
    list_pieces(&x);
    x.known = calloc((size_t)s->ranks * KEYS, sizeof *x.known);
    try_all(&x, first, 1);
    words_of(&x, x.cut, by_hand);
    int64_t best = largest_of(&x, by_hand);
    snprintf(words, sizeof words, "%s stages=%d chunks=%d balance=memory", s->words, s->stages,
             s->chunks);
    int64_t got = largest_of(&x, words);
    print_message("%-12s %-46s %d stages: best of %4d cuts %10lld, found %10lld bytes: %+.1f %%\n",
                  s->model, s->words, s->stages, x.tried, (long long)best, (long long)got,
                  100 * ((double)got / (double)best - 1));
    *worst = (double)got / (double)best > *worst ? (double)got / (double)best : *worst;
    if ((double)got > ALLOWED * (double)best)
        fail_msg("%s, %s: the largest arena has %lld bytes, more than 5 %% above the %lld of %s",
                 s->model, words, (long long)got, (long long)best, by_hand);
    for (int i = 0; i < x.pieces; i++)
        free((void *)x.name[i]);
    free(x.known);
    meg_device_close(x.device);
    meg_graph_destroy(x.graph);
}

static void test_arenas(void **state)
{
    (void)state;
    double worst = 1;
    for (size_t i = 0; i < sizeof SAMPLES / sizeof *SAMPLES; i++)
        check_sample(&SAMPLES[i], &worst);
    for (size_t i = 0; i < sizeof NETS / sizeof *NETS; i++)
        for (size_t k = 0; k < sizeof PIPES / sizeof *PIPES; k++) {
            sample s = NETS[i];
            char words[256];
            snprintf(words, sizeof words, "%s %s", NETS[i].words, PIPES[k].words);
            s.words = words;
            s.stages = PIPES[k].stages;
            s.chunks = PIPES[k].chunks;
            s.ranks = PIPES[k].ranks;
            check_sample(&s, &worst);
        }
    print_message("at most %.1f %% above the best\n", 100 * (worst - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_arenas)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
