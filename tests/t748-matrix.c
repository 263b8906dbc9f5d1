/* A small part of the matrix of models and plans: each model under a few plans, other ones for each.
 * All of it is ./do fuzz --matrix. */
#include "matrix.h"

enum {
    STRIDE = 89 /* of a model's plans; no divisor of their number */
};

static void test_part(void **state)
{
    (void)state;
    for (int k = 0; k < MATRIX_MODELS; k++) {
        meg_graph *g = network_zoo(matrix_models[k].model, matrix_models[k].options);
        matrix *m = matrix_of(&matrix_models[k]);
        int number = 7 * k;
        for (int i = 0; i < m->groups; i++) {
            network_result *one = NULL;
            char words[320];
            for (int p = 0; p < m->group[i].plans; p++) {
                if (number++ % STRIDE) continue;
                ranks_case c = matrix_case(g, &m->group[i], -1, words);
                if (!one) one = ranks_run(&c);
                c = matrix_case(g, &m->group[i], p, words);
                network_result *many = ranks_run(&c);
                print_message("%s: ", matrix_models[k].model);
                assert_true(compare_same(one, many, words));
                network_free(many);
            }
            if (one) network_free(one);
        }
        free(m);
        meg_graph_destroy(g);
    }
}

/* The matrix has what was promised: every schedule on 2 .. 4 seats with 1 .. 8 micro-batches, but
 * what a schedule cannot have. */
static void test_complete(void **state)
{
    static const char *const rows[] = {"serial", "gpipe",  "1f1b",    "zb_h1",
                                       "mast",   "master", "chimera", "interleaved"};
    static const int least[] = {24, 24, 24, 24, 21, 21, 14, 9}, most_replicas = 4;
    (void)state;
    matrix *m = matrix_of(&matrix_models[0]);
    int found[8] = {0}, replicas[5] = {0}, ranks[9] = {0};
    for (int i = 0; i < m->groups; i++)
        for (int p = 0; p < m->group[i].plans; p++) {
            const matrix_plan *plan = &m->group[i].plan[p];
            assert_non_null(strstr(plan->words, "norm="));
            ranks[plan->ranks]++;
            for (int k = 0; k < 8; k++) {
                char word[32];
                snprintf(word, sizeof word, "schedule=%s ", rows[k]);
                bool pipe = strstr(plan->words, word) && !strstr(plan->words, "replicas=");
                found[k] += pipe;
            }
            for (int r = 2; r <= most_replicas; r++) {
                char word[32];
                snprintf(word, sizeof word, "replicas=%d", r);
                replicas[r] += !strstr(plan->words, "stages=") && strstr(plan->words, word);
            }
        }
    for (int k = 0; k < 8; k++)
        assert_int_equal(found[k], least[k]);
    for (int r = 2; r <= most_replicas; r++)
        assert_true(replicas[r] >= 1);
    assert_true(ranks[8] > 0 && ranks[6] > 0 && ranks[4] > 0);
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_complete),
                                       cmocka_unit_test(test_part)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
