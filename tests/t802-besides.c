/* What a process needs beside its arena: what limits.h says before there is one is enough, and not far too much, when it has
 * trained. Several networks, each in a process of its own, since a process never gets smaller.
 */
#include "machine/memory.h"
#include "train/outlook/limits.h"

#include <megalith.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    MIB = 1 << 20
};

static const char *const CASES[][4] = {
    {"cnn", "width=32", "synthetic:count=512", "batch=128"},
    {"resnet-cifar", "depth=110", "synthetic:image=3x32x32 count=64", "batch=32"},
    {"unet", "width=16 image=3x128x128",
     "synthetic:image=3x128x128 labels=pixels classes=2 count=8", "batch=4"},
    {"gpt", "tokens=64 classes=500 layers=2 heads=4 width=64",
     "synthetic:image=64 tokens=yes classes=500 count=32", "batch=8"},
};

static int64_t peak(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (int64_t)u.ru_maxrss * 1024;
}

static int fails(meg_context *ctx)
{
    fprintf(stderr, "%s\n", meg_message(ctx));
    return 1;
}

/* Of the process that it runs in. */
static int measure(const char *const c[4])
{
    meg_context *ctx = NULL;
    meg_graph *g = NULL;
    meg_data *d = NULL;
    meg_plan *p = NULL;
    meg_trainer *t = NULL;
    char words[64];
    snprintf(words, sizeof words, "goal=given %s", c[3]);
    if (meg_open("threads=2", &ctx) || meg_graph_model(ctx, c[0], c[1], &g) ||
        meg_data_open(ctx, c[2], &d))
        return fails(ctx);
    int64_t said = meg_limits_besides();
    if (meg_plan_new(g, d, words, &p) || meg_trainer_new(p, d, "", &t) || meg_train(t, 2, NULL))
        return fails(ctx);
    int64_t besides = peak() - meg_plan_bytes(p);
    fprintf(stderr, "%s: %lld MiB beside the arena, said %lld\n", c[0], (long long)(besides / MIB),
            (long long)(said / MIB));
    return besides > said || said > besides + MEG_LIMITS_LATER + MEG_LIMITS_GRAIN;
}

static void test_besides(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) _exit(measure(CASES[i]));
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status) || WEXITSTATUS(status)) fail_msg("%s: see above", CASES[i][0]);
    }
}

int main(void)
{
#ifdef __SANITIZE_ADDRESS__
    return 77; /* whose own memory is larger than all else */
#endif
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_besides)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
