/* Memory is known before the first step: for every network of the zoo the highest arena byte
 * written is the one predicted, and the heap does not grow once training runs. */
#include "network.h"

#include <malloc.h>

/* Networks at a size that takes a second; those that are not here at 3x64x64. */
static const struct {
    const char *model, *options;
} sizes[] = {
    {"amoebanet-d", "layers=3 filters=32 image=3x128x128 classes=10"},
    {"cnn", ""},
    {"cosmoflow", "image=4x32x32x32 pools=4"},
    {"gpt", "tokens=40 layers=2 width=96 classes=300"},
    {"inception-v3", "aux=0 image=3x128x128 classes=10"},
    {"relaynet", "image=1x64x45"},
    {"resnet-cifar", ""},
    {"unet", "width=16 image=3x64x64"},
    {"unet3d", "width=16 image=1x16x24x16"},
    {"vit_b_16", "image=3x64x64 layers=2"},
    {"vit_b_32", "image=3x64x64 layers=2"},
    {"vit_l_16", "image=3x64x64 layers=2"},
};

static const char *options_of(const meg_model *m)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (strcmp(m->name, sizes[i].model) == 0) return sizes[i].options;
    return "image=3x64x64";
}

static int64_t heap(void)
{
    struct mallinfo2 m = mallinfo2();
    return (int64_t)(m.uordblks + m.hblkhd);
}

/* oneDNN's reference kernels are a hundred times too slow: none may be planned. */
static void no_slow_kernels(const meg_plan *p)
{
    for (int i = 0; i < MEG_ENTRIES; i++) {
        const meg_station *t = &p->entry[i].station[0];
        for (int k = 0; p->entry[i].batch && k < t->instrs; k++)
            if (strstr(t->instr[k].impl, "ref")) fail_msg("%s", t->instr[k].impl);
    }
}

static void run(const meg_model *model, const char *plan_options, int64_t samples)
{
    meg_error e;
    meg_device *d = NULL;
    meg_plan *p = NULL;
    meg_engine *x = NULL;
    meg_outcome o;
    meg_graph *g = network_zoo(model->name, options_of(model));
    if (meg_device_open(&e, "cpu", 2, &d) != MEG_OK) fail_msg("%s", e.message);
    meg_profile profile = meg_profile_of(d);
    if (meg_plan_make(g, &e, &profile, plan_options, samples, &p) != MEG_OK)
        fail_msg("%s", e.message);
    no_slow_kernels(p);
    if (meg_engine_new(p, d, NULL, &e, MEG_FILL, &x) != MEG_OK) fail_msg("%s", e.message);
    meg_engine_start(x, 1);
    int64_t first = 0;
    for (int step = 0; step < 2; step++)
        for (int i = 0; i < MEG_ENTRIES; i++) {
            meg_feed f;
            if (p->entry[i].batch == 0) continue;
            network_feed(g, p->entry[i].batch, &f);
            f.scalars.lr = 1e-3;
            if (meg_engine_step(x, &e, i, &f, &o) != MEG_OK) fail_msg("%s", e.message);
            network_unfeed(&f);
            if (step == 0) first = heap();
        }
    int64_t touched = meg_engine_touched(x), grown = heap() - first;
    print_message("%-12s %-24s predicted %11lld, measured %11lld, heap grown by %lld\n",
                  model->name, plan_options, (long long)p->arena, (long long)touched,
                  (long long)grown);
    assert_int_equal(p->arena, touched);
    assert_true(grown < 1 << 20);
    meg_engine_free(x);
    meg_plan_destroy(p);
    meg_device_close(d);
    meg_graph_destroy(g);
}

static void test_zoo(void **state)
{
    (void)state;
    for (int i = 0; meg_zoo_at(i); i++)
        if (strncmp(meg_zoo_at(i)->name, "vgg", 3) != 0 ||
            strcmp(meg_zoo_at(i)->name, "vgg11") == 0)
            run(meg_zoo_at(i), "batch=2 momentum=0.9", 0);
}

static void test_options(void **state)
{
    (void)state;
    const meg_model *m = meg_zoo_find("resnet-cifar");
    run(m, "batch=12 optimizer=adam", 12 + 7);
    run(m, "batch=12 norm=3 micro=4", 12 + 6);
    run(m, "batch=12 recompute=none", 0);
    run(m, "batch=12 recompute=segments", 12 + 7);
    run(m, "batch=12 norm=3 micro=4 recompute=segments level=layer", 12 + 6);
    run(m, "batch=6 norm=3 phases=1", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zoo),
        cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
