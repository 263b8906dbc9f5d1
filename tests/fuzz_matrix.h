/* Runs the matrix of tests/matrix.h on a device. A group of plans is a child process that computes
 * the answer of one rank; each of its plans is a child of that, so that a crash or a hang is a failure
 * like any other.
 *
 * In float an activation within rounding of zero may come out on the other side of it, and batch norms
 * of few values magnify that, on one rank as on many. It does so for some weights, a wrong plan for
 * all. So a case on the cpu is compared with one rank on the cpu and, if that differs, with one
 * rank in double; and it may try five sets of first weights, of which one must do.
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

typedef struct matrix_count { /* in memory that children share */
    int cases, failed;
    int doubles, again; /* by comparison with double, by other weights */
    double worst;       /* of those that are good */
} matrix_count;

typedef struct matrix_job {
    const char *device;
    const matrix_model *model;
    const meg_graph *graph;
    const matrix_group *group;
    network_result *one;
    int steps;
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
    c.steps = j->steps;
    if (j->steps == 1 && j->model->steep) c.samples = 0; /* no tail */
    return ranks_run(&c);
}

/* The answer of one rank, and how near it another must be. */
static inline void matrix_set_answer(matrix_job *j, int seed)
{
    j->one = matrix_answer(j, -1, 1, seed);
    j->limit = matrix_double;
    if (strcmp(j->device, "ref64") == 0) return;
    network_result *two = matrix_answer(j, -1, 2, seed);
    double own = network_difference(j->one, two, "  one rank, 1 and 2 threads");
    j->limit = fmax(matrix_float, 3 * own);
    network_free(two);
}

/* Is this the answer, of whichever device? */
static inline bool matrix_same(const matrix_job *j, const network_result *one,
                               const network_result *many, const char *what)
{
    double d = network_difference(one, many, what);
    if (!(d <= j->limit)) return false;
    j->count->worst = fmax(j->count->worst, d);
    return strcmp(j->device, "ref64") != 0 || one->correct == many->correct;
}

static inline bool matrix_same_in_double(const matrix_job *j, const network_result *many, int seed,
                                         const char *what)
{
    matrix_job exact = *j;
    exact.device = "ref64";
    network_result *one = matrix_answer(&exact, -1, 1, seed);
    bool same = matrix_same(j, one, many, what);
    network_free(one);
    return same;
}

static inline bool matrix_try(matrix_job *j, int plan)
{
    bool exact = strcmp(j->device, "ref64") == 0;
    char what[320];
    snprintf(what, sizeof what, "%s: %s", j->model->model, j->group->plan[plan].words);
    for (int seed = 0; seed < (exact ? 1 : MATRIX_TRIES); seed++) {
        if (seed) matrix_set_answer(j, seed);
        network_result *many = matrix_answer(j, plan, 1, seed);
        bool good = matrix_same(j, j->one, many, what);
        bool other = !good && !exact && matrix_same_in_double(j, many, seed, "  in double");
        network_free(many);
        j->count->doubles += other;
        j->count->again += (good || other) && seed > 0;
        if (good || other) return true;
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

static inline void matrix_model_run(const char *device, const matrix_model *model, const matrix *m,
                                    matrix_count *c)
{
    for (int i = 0; i < m->groups; i++) {
        int status = 0;
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            matrix_job j = {.device = device, .model = model, .group = &m->group[i], .count = c};
            j.steps = strcmp(device, "ref64") == 0 ? 2 : 1; /* more would magnify rounding */
            meg_graph *g = network_zoo(model->model, model->options);
            if (model->steep && strcmp(device, "ref64") != 0) matrix_calm(g);
            j.graph = g;
            matrix_group_run(&j);
        }
        if (child > 0) waitpid(child, &status, 0);
        if (child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
        printf("FAILED: %s on one rank: %s\n", model->model, m->group[i].one);
        c->failed++;
    }
}

typedef const matrix_model *matrix_at(int i, matrix **plans); /* plans: to be freed */

static inline const matrix_model *matrix_at_plans(int i, matrix **plans)
{
    *plans = i < MATRIX_MODELS ? matrix_of(&matrix_models[i]) : NULL;
    return i < MATRIX_MODELS ? &matrix_models[i] : NULL;
}

/* All models, or those with this word in name or options. */
static inline int matrix_run(matrix_at *at, const char *device, const char *name)
{
    const matrix_model *m;
    matrix *plans;
    matrix_count *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                           0);
    int cases = 0, failed = 0;
    if (c == MAP_FAILED) return 2;
    setenv("MEGALITH_WINOGRAD", "0", 1); /* its rounding is its own */
    for (int i = 0; (m = at(i, &plans)); i++, free(plans)) {
        if (name && !strstr(m->model, name) && !strstr(m->options, name)) continue;
        time_t start = time(NULL);
        *c = (matrix_count){0};
        matrix_model_run(device, m, plans, c);
        printf("%s %s on %s: %d cases, %d FAILED, %d by comparison with double, %d by other "
               "weights, worst %.1e, %lld s\n",
               m->model, m->options, device, c->cases, c->failed, c->doubles, c->again, c->worst,
               (long long)(time(NULL) - start));
        cases += c->cases;
        failed += c->failed;
    }
    printf("%d cases: %d FAILED\n", cases, failed);
    munmap(c, sizeof *c);
    return failed > 0 || cases == 0;
}

#endif
