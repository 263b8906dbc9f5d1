/* No network of the zoo, at its usual size, is planned with a kernel that nobody tuned: oneDNN's
 * reference code anywhere, plain C for a convolution or a matrix product. Plans only: nothing runs,
 * no memory is taken. Once for every instruction set that this machine has.
 */
#include "network.h"

#include "cpu_isas.h"

static bool product(const char *op)
{
    static const char *const names[] = {"conv", "conv_transpose", "dense", "matmul", "attention"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(op, names[i]) == 0) return true;
    return false;
}

static bool reference(const char *impl)
{
    return strncmp(impl, "ref", 3) == 0 || strstr(impl, ":ref") != NULL;
}

/* Returns how many products it has seen. */
static int check_entry(const char *model, const meg_entry *entry)
{
    int products = 0;
    for (int i = 0; entry->batch && i < entry->station[0].instrs; i++) {
        const meg_instr *in = &entry->station[0].instr[i];
        const meg_node *v = in->node < 0 ? NULL : &entry->graph->node[in->node];
        const char *op = v ? v->op->name : "";
        bool multiplies = in->code == MEG_KERNEL && product(op);
        products += multiplies;
        if (reference(in->impl) || (multiplies && strcmp(in->impl, "plain") == 0))
            fail_msg("%s, %s: %s %s %s is done by %s", model, entry->name, meg_pass_name(in->pass),
                     op, v ? v->name : "", in->impl);
    }
    return products;
}

static void check_model(meg_device *d, const meg_model *m)
{
    meg_error e = {0};
    meg_graph *g = NULL;
    meg_plan *p = NULL;
    int products = 0;
    if (meg_zoo_build(&e, m->name, "", &g) != MEG_OK) fail_msg("%s", e.message);
    meg_profile profile = meg_profile_of(d);
    if (meg_plan_make(g, &e, &profile, "batch=1", 0, &p) != MEG_OK) fail_msg("%s", e.message);
    for (int i = 0; i < MEG_ENTRIES; i++)
        products += check_entry(m->name, &p->entry[i]);
    print_message("%-16s %5d products, %7.1f MiB, %.3f s\n", m->name, products,
                  (double)p->arena / (1 << 20), p->seconds);
    assert_true(products > 0);
    meg_plan_destroy(p);
    meg_graph_destroy(g);
}

static void test_zoo(void **state)
{
    for (int i = 0; meg_zoo_at(i); i++)
        check_model(devices(state)[1], meg_zoo_at(i));
}

/* The test's own judgement. */
static void test_names(void **state)
{
    (void)state;
    assert_true(reference("ref:any") && reference("gemm:ref") && reference("simple:ref"));
    assert_false(reference("jit:avx2") || reference("winograd:avx512"));
}

static int tests(void)
{
    const struct CMUnitTest list[] = {cmocka_unit_test(test_zoo), cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(list, open_devices, close_devices);
}

int main(void)
{
    return for_each_isa(tests);
}
