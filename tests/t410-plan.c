/* Plans and programs without a device: golden text, the program check, budgets, refusals. */
#include "plan/plan.h"
#include "zoo/zoo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static meg_graph *small(bool norm)
{
    meg_graph *g = meg_graph_create("small");
    int x = meg_graph_input(g, "image", 4, (int64_t[]){1, 1, 4, 4});
    x = meg_graph_add(g, "conv", "conv", "filters=2 kernel=3 bias=0", 1, &x);
    if (norm) x = meg_graph_add(g, "batchnorm", "bn", "", 1, &x);
    x = meg_graph_add(g, "relu", "relu", "", 1, &x);
    x = meg_graph_add(g, "flatten", "flat", "", 1, &x);
    x = meg_graph_add(g, "dense", "fc", "units=3", 1, &x);
    meg_graph_add_loss(g, "softmax_xent", "", x, 1);
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    return g;
}

static meg_plan *plan(const meg_graph *g, const char *options, int64_t samples)
{
    meg_error e;
    meg_plan *p = NULL;
    if (meg_plan_make(g, &e, &meg_profile_plain, options, samples, &p) != MEG_OK)
        fail_msg("%s", e.message);
    return p;
}

static void refused(const meg_graph *g, const char *options, meg_status status, const char *says)
{
    meg_error e;
    meg_plan *p = NULL;
    assert_int_equal(meg_plan_make(g, &e, &meg_profile_plain, options, 0, &p), status);
    assert_null(p);
    if (!strstr(e.message, says)) fail_msg("expected '%s' in: %s", says, e.message);
}

/* ---- golden text ---- */

static char *printed(const meg_plan *p)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    meg_entry_print(&p->entry[MEG_ENTRY_TRAIN], false, f);
    fclose(f);
    return text;
}

static void golden(const char *file, const char *options, bool norm)
{
    char path[512], want[512], *line, *rest;
    meg_graph *g = small(norm);
    meg_plan *p = plan(g, options, 0);
    char *text = printed(p);
    snprintf(path, sizeof path, "%s/tests/golden/%s", MEG_SOURCE_DIR, file);
    if (getenv("MEGALITH_WRITE_GOLDEN")) { /* to look at, and to commit if it is right */
        FILE *out = fopen(path, "w");
        assert_non_null(out);
        fputs(text, out);
        fclose(out);
    }
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("no %s", path);
    int number = 0;
    for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        number++;
        if (!fgets(want, sizeof want, f))
            fail_msg("%s ends before line %d: %s", file, number, line);
        want[strcspn(want, "\n")] = '\0';
        if (strcmp(line, want) != 0)
            fail_msg("%s:%d: expected\n%s\ngot\n%s", file, number, want, line);
    }
    if (fgets(want, sizeof want, f)) fail_msg("%s:%d: expected more: %s", file, number + 1, want);
    fclose(f);
    free(text);
    meg_plan_destroy(p);
    meg_graph_destroy(g);
}

static void test_golden(void **state)
{
    (void)state;
    golden("serial.txt", "batch=4 momentum=0.9", true);
    golden("micro4.txt", "batch=8 micro=4 momentum=0.9", false);
    golden("micro4-norm.txt", "batch=8 micro=4 norm=2", true);
}

/* ---- the check finds broken programs ---- */

static void broken(meg_plan *p, const char *says)
{
    meg_error e;
    assert_int_equal(meg_entry_check(&p->entry[MEG_ENTRY_TRAIN], &e), MEG_EARG);
    if (!strstr(e.message, says)) fail_msg("expected '%s' in: %s", says, e.message);
    meg_plan_destroy(p);
}

static int find(const meg_station *e, meg_code code, meg_region region)
{
    for (int i = 0; i < e->instrs; i++) {
        int s = e->instr[i].slot[code == MEG_FREE ? MEG_X : MEG_Y];
        if (e->instr[i].code == code && s >= 0 && e->slot[s].region == region) return i;
    }
    fail_msg("no such instruction");
    return -1;
}

static void test_check(void **state)
{
    (void)state;
    meg_graph *g = small(true);
    meg_error error;
    meg_plan *p = plan(g, "batch=4", 0);
    assert_int_equal(meg_entry_check(&p->entry[MEG_ENTRY_TRAIN], &error), MEG_OK);
    meg_station *e = &p->entry[MEG_ENTRY_TRAIN].station[0];
    int load = find(e, MEG_LOAD, MEG_FRAME), dead = find(e, MEG_FREE, MEG_FRAME);
    e->instr[load] = e->instr[dead]; /* nobody loads the image */
    broken(p, "");

    p = plan(g, "batch=4", 0);
    e = &p->entry[MEG_ENTRY_TRAIN].station[0];
    int last = e->instrs - 1;
    assert_int_equal(e->instr[last].code, MEG_FREE);
    e->instrs--;
    broken(p, "never freed");

    p = plan(g, "batch=4", 0);
    e = &p->entry[MEG_ENTRY_TRAIN].station[0];
    e->instr[e->instrs - 2] = e->instr[e->instrs - 1]; /* freed twice, another not at all */
    broken(p, "");

    p = plan(g, "batch=4", 0);
    e = &p->entry[MEG_ENTRY_TRAIN].station[0];
    for (int i = 0; i < e->slots; i++)
        if (e->slot[i].region == MEG_FRAME) e->slot[i].offset = 0;
    broken(p, "overlap");

    p = plan(g, "batch=4", 0);
    p->entry[MEG_ENTRY_TRAIN].station[0].frame -= 1;
    broken(p, "outside");
    meg_graph_destroy(g);
}

/* ---- refusals ---- */

static void test_refusals(void **state)
{
    (void)state;
    meg_graph *g = small(true), *bare = meg_graph_create("bare");
    refused(g, "batch=8 micro=3", MEG_EARG, "does not divide");
    refused(g, "batch=8 micro=4", MEG_EARG, "norm=2");
    refused(g, "batch=8 micro=4 norm=4", MEG_EARG, "norm=2");
    refused(g, "batch=0", MEG_EARG, "batch");
    refused(g, "optimizer=sgdd", MEG_EARG, "adam adamw sgd");
    refused(g, "optimizer=adam momentum=0.9", MEG_EARG, "momentum");
    refused(g, "bach=8", MEG_EARG, "bach");
    refused(bare, "batch=8", MEG_EARG, "no loss");
    meg_plan *p = plan(g, "batch=8", 0);
    char options[64], missing[64];
    snprintf(options, sizeof options, "batch=8 budget=%lld", (long long)p->arena - 1);
    snprintf(missing, sizeof missing, " 1 bytes are missing");
    refused(g, options, MEG_EBUDGET, missing);
    snprintf(options, sizeof options, "batch=8 budget=%lld", (long long)p->arena);
    meg_plan_destroy(plan(g, options, 0));
    meg_plan_destroy(p);
    meg_graph_destroy(g);
    meg_graph_destroy(bare);
}

/* ---- memory ---- */

static int64_t largest_live(const meg_station *e)
{
    int64_t most = 0;
    for (int i = 0; i < e->instrs; i++) {
        int64_t sum = 0;
        for (int s = 0; s < e->slots; s++)
            if (e->slot[s].region == MEG_FRAME && e->slot[s].born <= i && i <= e->slot[s].dies)
                sum += (e->slot[s].bytes + 63) / 64 * 64;
        if (sum > most) most = sum;
    }
    return most;
}

/* Recompute saves memory, micro-batches save memory, and offsets waste little. */
static void test_memory(void **state)
{
    (void)state;
    meg_error e;
    meg_graph *g = NULL;
    assert_int_equal(meg_zoo_build(&e, "resnet50", "image=3x64x64", &g), MEG_OK);
    meg_plan *p = plan(g, "batch=8", 0), *kept = plan(g, "batch=8 recompute=none", 0);
    meg_plan *micro = plan(g, "batch=8 micro=4 norm=2", 0);
    int64_t frame = p->bytes[MEG_FRAME], live = largest_live(&p->entry[MEG_ENTRY_TRAIN].station[0]);
    print_message("resnet50: frame %lld, largest live %lld, without recompute %lld, micro=4 %lld\n",
                  (long long)frame, (long long)live, (long long)kept->bytes[MEG_FRAME],
                  (long long)micro->bytes[MEG_FRAME]);
    assert_true(frame < kept->bytes[MEG_FRAME] * 9 / 10);
    assert_true(micro->bytes[MEG_FRAME] < frame / 2);
    assert_true(frame <= live + live / 20);
    meg_plan_destroy(p);
    meg_plan_destroy(kept);
    meg_plan_destroy(micro);
    meg_graph_destroy(g);

    /* With the normalisation in front of the convolution, half of all activations go. */
    assert_int_equal(meg_zoo_build(&e, "resnet-cifar", "version=2 depth=110", &g), MEG_OK);
    p = plan(g, "batch=4", 0);
    kept = plan(g, "batch=4 recompute=none", 0);
    print_message("resnet-110-v2: frame %lld, without recompute %lld\n",
                  (long long)p->bytes[MEG_FRAME], (long long)kept->bytes[MEG_FRAME]);
    assert_true(p->bytes[MEG_FRAME] < kept->bytes[MEG_FRAME] * 6 / 10);
    meg_plan_destroy(p);
    meg_plan_destroy(kept);
    meg_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
