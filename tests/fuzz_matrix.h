/* Runs the matrix of tests/matrix.h on a device. A group of plans is a child process that computes
 * the answer of one rank; each of its plans is a child of that, so that a crash or a hang is a failure
 * like any other.
 *
 * In float an activation within rounding of zero may come out on the other side of it, and a batch
 * norm of few values magnifies that. It does so for some weights, a wrong plan for all: a case on
 * the cpu may try five sets of first weights, must meet the house's rule with one, and may be far
 * off with none.
 */
#ifndef TESTS_FUZZ_MATRIX_H
#define TESTS_FUZZ_MATRIX_H

#include "matrix.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

enum {
    MATRIX_SECONDS = 600, /* a case that runs for so long hangs */
    MATRIX_TRIES = 5
};

static const double matrix_double = 1e-10, matrix_float = 1e-4; /* STYLE 14 */
static const double matrix_flips =
    0.1; /* see t700-engine: more is no matter of a few activations */

typedef struct matrix_count { /* in memory that children share */
    int cases, failed, again; /* again: of which a later try was needed */
    double worst;             /* of those that are good */
} matrix_count;

typedef struct matrix_job {
    const char *device;
    const matrix_model *model;
    const meg_graph *graph;
    const matrix_group *group;
    network_result *one;
    double limit;
    matrix_count *count;
} matrix_job;

static inline network_result *matrix_answer(const matrix_job *j, int plan, int threads, int seed)
{
    char words[320];
    ranks_case c = matrix_case(j->graph, j->group, plan, words);
    c.device = j->device;
    c.threads = threads;
    c.seed = (uint64_t)seed;
    if (strcmp(j->device, "cpu") == 0) c.steps = 1; /* more would magnify rounding */
    return ranks_run(&c);
}

/* The answer of one rank, and how near it another must be. */
static inline void matrix_set_answer(matrix_job *j, int seed)
{
    j->one = matrix_answer(j, -1, 1, seed);
    j->limit = matrix_double;
    if (strcmp(j->device, "cpu") != 0) return;
    network_result *two = matrix_answer(j, -1, 2, seed);
    double own = network_difference(j->one, two, "  one rank, 1 and 2 threads");
    j->limit = fmax(matrix_float, 3 * own);
    network_free(two);
}

static inline bool matrix_try(matrix_job *j, int plan)
{
    bool cpu = strcmp(j->device, "cpu") == 0;
    for (int seed = 0; seed < (cpu ? MATRIX_TRIES : 1); seed++) {
        if (seed) matrix_set_answer(j, seed);
        network_result *many = matrix_answer(j, plan, 1, seed);
        char what[320];
        snprintf(what, sizeof what, "%s: %s", j->model->model, j->group->plan[plan].words);
        double d = network_difference(j->one, many, what);
        bool good = d <= j->limit && (cpu || j->one->correct == many->correct);
        network_free(many);
        if (good) j->count->worst = fmax(j->count->worst, d);
        if (good) j->count->again += seed > 0;
        if (good) return true;
        if (!(d <= matrix_flips)) return false;
    }
    return false;
}

static inline bool matrix_child(matrix_job *j, int plan)
{
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) return false;
    if (child == 0) {
        alarm(MATRIX_SECONDS);
        bool good = matrix_try(j, plan);
        fflush(NULL);
        _exit(!good);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* In a child of its own. */
static inline void matrix_group_run(matrix_job *j)
{
    matrix_set_answer(j, 0);
    for (int i = 0; i < j->group->plans; i++) {
        bool good = matrix_child(j, i);
        j->count->cases++;
        j->count->failed += !good;
        if (!good) printf("FAILED: %s: %s\n", j->model->model, j->group->plan[i].words);
    }
    fflush(NULL);
    _exit(0);
}

static inline void matrix_model_run(const char *device, const matrix_model *model, matrix_count *c)
{
    matrix *m = matrix_of(model);
    for (int i = 0; i < m->groups; i++) {
        int status = 0;
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            matrix_job j = {.device = device, .model = model, .group = &m->group[i], .count = c};
            j.graph = network_zoo(model->model, model->options);
            matrix_group_run(&j);
        }
        if (child > 0) waitpid(child, &status, 0);
        if (child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
        printf("FAILED: %s on one rank: %s\n", model->model, m->group[i].one);
        c->failed++;
    }
    free(m);
}

/* All models, or the one of this name. */
static inline int matrix_run(const char *device, const char *name)
{
    matrix_count *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                           0);
    int cases = 0, failed = 0;
    if (c == MAP_FAILED) return 2;
    setenv("MEGALITH_WINOGRAD", "0", 1); /* its rounding is its own */
    for (int i = 0; i < MATRIX_MODELS; i++) {
        const matrix_model *m = &matrix_models[i];
        if (name && strcmp(name, m->model) != 0) continue;
        time_t start = time(NULL);
        *c = (matrix_count){0};
        matrix_model_run(device, m, c);
        printf("%s %s on %s: %d cases, %d FAILED, %d by other weights, worst %.1e, %lld s\n",
               m->model, m->options, device, c->cases, c->failed, c->again, c->worst,
               (long long)(time(NULL) - start));
        cases += c->cases;
        failed += c->failed;
    }
    printf("%d cases: %d FAILED\n", cases, failed);
    munmap(c, sizeof *c);
    return failed > 0 || cases == 0;
}

#endif
