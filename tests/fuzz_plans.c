/* ./do fuzz N SEED: N random graphs under random plans, each against one rank.
 * ./do fuzz --matrix [FIRST]: all models under all plans of tests/matrix.h. */
#include "fuzz_case.h"
#include "matrix.h"

enum {
    MATRIX_SECONDS = 600
};

static bool matrix_good(int number)
{
    const matrix_model *m = &matrix_models[number / MATRIX_PLANS];
    const matrix_plan *p = &matrix_plans[number % MATRIX_PLANS];
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) return false;
    if (child == 0) {
        alarm(MATRIX_SECONDS);
        bool good = matrix_case(m, p, "ref64") <= fuzz_same;
        fflush(NULL);
        _exit(!good);
    }
    int status = 0;
    waitpid(child, &status, 0);
    bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!good) printf("FAILED: %s %s: %s %s\n", m->model, m->options, p->one, p->many);
    return good;
}

static int matrix(int first)
{
    int bad = 0, all = MATRIX_MODELS * MATRIX_PLANS;
    for (int i = first; i < all; i++)
        bad += !matrix_good(i);
    printf("%d of %d cases: %d FAILED\n", all - first, all, bad);
    return bad > 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--matrix") == 0) return matrix(argc > 2 ? atoi(argv[2]) : 0);
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    int64_t count = argc > 1 ? strtoll(argv[1], NULL, 10) : 100, by[3] = {0, 0, 0};
    for (int64_t i = 0; i < count; i++) {
        fprintf(stderr, "seed %llu\n", (unsigned long long)(seed + (uint64_t)i));
        by[fuzz_run(seed + (uint64_t)i)]++;
    }
    printf("%lld cases: %lld agree, %lld refused, %lld FAILED\n", (long long)count,
           (long long)by[FUZZ_GOOD], (long long)by[FUZZ_REFUSED], (long long)by[FUZZ_BAD]);
    return by[FUZZ_BAD] > 0 || by[FUZZ_REFUSED] * 10 > count + 10;
}
