/* Reruns of blocks that backward runs again: the dynamic programme beside the exhaustive optimum of its own
 * measure, on chains small enough to enumerate; then on zoo's networks what the cut is worth once it is
 * lowered: budgets are kept, and more memory never means more work.
 */
#include "network.h"
#include "plan/partition/reruns.h"

enum {
    BLOCKS = 8,
    VALUES = 24,
    CHAINS = 300,
    LIMITS = 12
};

typedef struct dice {
    uint64_t state;
} dice;

static int64_t roll(dice *d, int64_t sides)
{
    d->state = d->state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(d->state >> 33) % sides;
}

typedef struct small {
    meg_chain chain;
    meg_chain_block block[BLOCKS];
    meg_chain_value value[VALUES];
} small;

/* Values of many sizes, long skips among them, some that stay. */
static void draw(dice *d, small *s)
{
    *s = (small){0};
    meg_chain *c = &s->chain;
    c->blocks = 1 + (int)roll(d, BLOCKS);
    c->frames = 1 + (int)roll(d, 3);
    c->apart = c->frames > 1 || roll(d, 3) == 0;
    c->block = s->block;
    c->value = s->value;
    for (int i = 0; i < c->blocks; i++) {
        s->block[i] = (meg_chain_block){roll(d, 4), roll(d, 60), roll(d, 30), roll(d, 20)};
        for (int64_t many = roll(d, 4); many > 0; many--) {
            int64_t last = i + (roll(d, 2) ? roll(d, 2) : roll(d, c->blocks - i));
            if (last >= c->blocks) last = c->blocks - 1;
            s->value[c->values++] = (meg_chain_value){.block = i,
                                                      .last = (int)last,
                                                      .bytes = 1 + roll(d, 100),
                                                      .halo = roll(d, 3) ? 0 : roll(d, 9),
                                                      .work = 1 + (double)roll(d, 50),
                                                      .held = roll(d, 4) > 0,
                                                      .stays = roll(d, 6) == 0};
        }
    }
}

/* All cuts: each block is kept, goes on with the rerun before it, or begins one. */
static double best_of(const meg_chain *c, int64_t limit, int rerun[], int at, int reruns)
{
    if (at == c->blocks)
        return meg_chain_bytes(c, rerun) <= limit ? meg_chain_work(c, rerun) : INFINITY;
    double best = INFINITY;
    int options[] = {-1, reruns, at > 0 ? rerun[at - 1] : -1};
    for (int i = 0; i < 3; i++) {
        if (i == 2 && options[i] < 0) continue;
        rerun[at] = options[i];
        double work = best_of(c, limit, rerun, at + 1, reruns + (i == 1));
        if (work < best) best = work;
    }
    return best;
}

static void test_optimal(void **state)
{
    (void)state;
    dice d = {20261117};
    int cuts = 0, impossible = 0;
    for (int i = 0; i < CHAINS; i++) {
        small s;
        int rerun[BLOCKS], all[BLOCKS];
        draw(&d, &s);
        for (int k = 0; k < s.chain.blocks; k++)
            all[k] = -1;
        int64_t most = meg_chain_bytes(&s.chain, all), least = meg_chain_least(&s.chain);
        assert_true(least <= most);
        assert_true(isinf(best_of(&s.chain, least - 1, rerun, 0, 0)));
        for (int k = 0; k < LIMITS; k++) {
            int64_t limit = least + (most - least) * k / (LIMITS - 1) - (k == 1);
            double best = best_of(&s.chain, limit, all, 0, 0);
            double work = meg_chain_cut(&s.chain, limit, rerun);
            if (isinf(best) != isinf(work) || fabs(best - work) > 1e-9)
                fail_msg("chain %d, limit %lld: work %g, the best is %g", i, (long long)limit, work,
                         best);
            impossible += isinf(best) != 0;
            if (isinf(work)) continue;
            cuts++;
            assert_true(meg_chain_bytes(&s.chain, rerun) <= limit);
            assert_true(fabs(meg_chain_work(&s.chain, rerun) - work) < 1e-9);
        }
    }
    print_message("%d cuts are the best of all, %d limits have none\n", cuts, impossible);
    assert_true(cuts > CHAINS * LIMITS / 2);
}

/* A chain of n equal blocks with one value each: reruns of about the root of n, as Chen et al. have them. */
static void test_equal(void **state)
{
    (void)state;
    enum {
        N = 100
    };
    meg_chain_block block[N] = {{0}};
    meg_chain_value value[2 * N];
    meg_chain c = {.blocks = N, .values = 2 * N, .block = block, .value = value, .frames = 1};
    int rerun[N];
    for (int i = 0; i < 2 * N; i++)
        value[i] = (meg_chain_value){i / 2, i / 2 + i % 2, 1, 0, 1, true, false};
    value[2 * N - 1].last = N - 1;
    int64_t least = meg_chain_least(&c);
    double work = meg_chain_cut(&c, least, rerun);
    print_message("100 blocks of 2 values: at least %lld of 200, with work %g of 200\n",
                  (long long)least, work);
    assert_true(least <= 32 && work < 200);
}

/* ---- lowered ---- */

typedef struct sample {
    const char *model, *model_words, *words;
    int ranks;
    double most; /* of the arena that cheap recomputing has, for the least one */
} sample;

static const sample SAMPLES[] = {
    {"resnet-cifar", "depth=56", "batch=32", 1, 0.35},
    {"unet", "image=3x128x128 width=16", "batch=4", 1, 0.85},
    {"vgg11", "image=3x64x64 width=16 hidden=128 classes=10", "batch=16", 1,
     1}, /* its first layer's
                                                                                  gradient is all */
    {"gpt", "layers=12 width=64 heads=4 tokens=64 classes=64", "batch=16", 1, 0.4},
    {"resnet-cifar", "depth=56", "batch=32 norm=8 micro=4 stages=2", 2, 0.8},
};

static meg_plan *plan_of(const meg_graph *g, const sample *s, const char *more)
{
    meg_error e = {0};
    meg_plan *p = NULL;
    char words[256];
    snprintf(words, sizeof words, "%s %s", s->words, more);
    meg_world world = {0, s->ranks};
    if (meg_plan_make_for(g, &e, &meg_profile_plain, &world, words, 0, &p) != MEG_OK)
        fail_msg("%s %s: %s", s->model, words, e.message);
    return p;
}

/* Kernels of forward that backward runs again, by flops. */
static double work_of(const meg_plan *p)
{
    double flops = 0;
    const meg_station *t = &p->entry[MEG_ENTRY_TRAIN].station[0];
    for (int i = 0; i < t->instrs; i++) {
        const meg_instr *in = &t->instr[i];
        if (in->code != MEG_KERNEL || in->pass != MEG_REPLAY) continue;
        const meg_node *v = &t->entry->graph->node[in->node];
        if (v->op->flops && !v->op->cheap)
            flops += v->op->flops(t->entry->graph, v, &t->work[in->node], MEG_FORWARD);
    }
    return flops;
}

static void test_budgets(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof SAMPLES / sizeof *SAMPLES; i++) {
        const sample *s = &SAMPLES[i];
        meg_graph *g = network_zoo(s->model, s->model_words);
        meg_plan *cheap = plan_of(g, s, ""), *least = plan_of(g, s, "recompute=segments");
        int64_t high = cheap->arena, low = least->arena;
        double before = work_of(least);
        print_message("%-12s %-34s arena %lld, least %lld (%.0f %%), flops again %.3g\n", s->model,
                      s->words, (long long)high, (long long)low, 100. * (double)low / (double)high,
                      before);
        assert_true((double)low <= s->most * (double)high);
        for (int k = 1; k <= 4; k++) {
            char more[96];
            int64_t budget = low + (high - low) * k / 4;
            snprintf(more, sizeof more, "recompute=segments budget=%lld", (long long)budget);
            meg_plan *p = plan_of(g, s, more);
            double work = work_of(p);
            print_message("    budget %11lld: arena %11lld, flops again %.3g\n", (long long)budget,
                          (long long)p->arena, work);
            assert_true(p->arena <= budget);
            assert_true(work <= before);
            assert_true(k < 4 || work == 0);
            before = work;
            meg_plan_destroy(p);
        }
        meg_plan_destroy(cheap);
        meg_plan_destroy(least);
        meg_graph_destroy(g);
    }
}

/* Same words, same program; under zero=3 ranks would have to choose alike. */
static void test_refused(void **state)
{
    (void)state;
    meg_error e = {0};
    meg_plan *p = NULL;
    meg_graph *g = network_zoo("resnet-cifar", "depth=20");
    meg_world world = {0, 2};
    assert_int_equal(meg_plan_make_for(g, &e, &meg_profile_plain, &world,
                                       "batch=8 zero=3 recompute=segments", 0, &p),
                     MEG_EUNSUPPORTED);
    assert_non_null(strstr(e.message, "use zero=1, or recompute=auto"));
    meg_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimal),
        cmocka_unit_test(test_equal),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
