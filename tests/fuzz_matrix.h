/* Runs the matrix of tests/matrix.h on a device. A group of plans is a child process that computes
 * the answer of one rank, in double; each of its plans is a child of that, so that a crash or a hang is
 * a failure like any other. On the cpu, networks have no kinks (tests/smooth.h); the rule is that of
 * tests/compare.h.
 */
#ifndef TESTS_FUZZ_MATRIX_H
#define TESTS_FUZZ_MATRIX_H

#include "matrix.h"
#include "smooth.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

enum {
    MATRIX_SECONDS = 600 /* a case that runs for so long hangs */
};

typedef struct matrix_count { /* in memory that children share */
    int cases, failed;
    double worst, own; /* the largest error; of one rank on the device */
} matrix_count;

typedef struct matrix_job {
    const char *device;
    const matrix_model *model;
    const meg_graph *graph;
    const matrix_group *group;
    network_result *one; /* the answer */
    double own;          /* the error of one rank on the device; in double 0 */
    matrix_count *count;
} matrix_job;

static inline network_result *matrix_answer(const matrix_job *j, int plan, const char *device)
{
    char words[320];
    ranks_case c = matrix_case(j->graph, j->group, plan, words);
    c.device = device;
    return ranks_run(&c);
}

static inline void matrix_set_answer(matrix_job *j)
{
    const char *name;
    j->one = matrix_answer(j, -1, "ref64");
    if (strcmp(j->device, "ref64") == 0) return;
    network_result *own = matrix_answer(j, -1, j->device);
    j->own = compare_error(j->one, own, &name);
    j->count->own = fmax(j->count->own, j->own);
    network_free(own);
}

static inline bool matrix_try(matrix_job *j, int plan)
{
    char what[320];
    const char *name;
    snprintf(what, sizeof what, "%s: %s", j->model->model, j->group->plan[plan].words);
    network_result *many = matrix_answer(j, plan, j->device);
    double error = compare_error(j->one, many, &name);
    j->count->worst = fmax(j->count->worst, error);
    bool good = strcmp(j->device, "ref64") == 0 ? compare_same(j->one, many, what)
                                                : compare_judge(error, name, j->own, what);
    network_free(many);
    return good;
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
    matrix_set_answer(j);
    for (int i = 0; i < j->group->plans; i++) {
        bool good = matrix_child(j, i);
        j->count->cases++;
        j->count->failed += !good;
        if (!good) printf("FAILED: %s: %s\n", j->model->model, j->group->plan[i].words);
    }
    fflush(NULL);
    _exit(0);
}

static inline const char *matrix_options(const matrix_model *m, const char *device)
{
    return m->in_float && strcmp(device, "ref64") != 0 ? m->in_float : m->options;
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
            meg_graph *g = network_zoo(model->model, matrix_options(model, device));
            if (strcmp(device, "ref64") != 0) g = smooth_network(g);
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
    for (int i = 0; (m = at(i, &plans)); i++, free(plans)) {
        if (name && !strstr(m->model, name) && !strstr(m->options, name)) continue;
        time_t start = time(NULL);
        *c = (matrix_count){0};
        matrix_model_run(device, m, plans, c);
        printf("%s %s on %s: %d cases, %d FAILED, worst %.1e, one rank %.1e, %lld s\n", m->model,
               matrix_options(m, device), device, c->cases, c->failed, c->worst, c->own,
               (long long)(time(NULL) - start));
        cases += c->cases;
        failed += c->failed;
    }
    printf("%d cases: %d FAILED\n", cases, failed);
    munmap(c, sizeof *c);
    return failed > 0 || cases == 0;
}

#endif
