/* Processors and their neighbours on imaginary machines: counts, order, shares of ranks; sets, and what
 * this machine says of itself.
 */
#include "machine/topology.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static meg_topology *opened(const char *text)
{
    meg_error e = {0};
    meg_topology *t = NULL;
    if (meg_topology_open(&e, text, &t) != MEG_OK) fail_msg("%s", e.message);
    return t;
}

static meg_processors first(int count)
{
    meg_processors p = {{0}};
    for (int i = 0; i < count; i++)
        meg_processors_add(&p, i);
    return p;
}

/* "0 8 1 9" */
static void expect(const meg_topology *t, const meg_processors *set, const char *want)
{
    int list[MEG_PROCESSORS], count = meg_topology_order(t, set, list);
    char got[256] = "";
    for (int i = 0; i < count; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", i ? " " : "", list[i]);
    if (strcmp(got, want) != 0) fail_msg("expected %s, got %s", want, got);
}

static void counts(const char *text, const meg_processors *within, const char *want)
{
    meg_topology *t = opened(text);
    meg_topology_counts n = meg_topology_count(t, within);
    char got[64];
    snprintf(got, sizeof got, "%d %d %d %d", n.packages, n.nodes, n.cores, n.processors);
    if (strcmp(got, want) != 0) fail_msg("%s: expected %s, got %s", text, want, got);
    meg_topology_close(t);
}

static void test_counts(void **state)
{
    (void)state;
    meg_processors two = first(2), none = first(0);
    counts("package:2 core:4 pu:2", NULL, "2 1 8 16");
    counts("package:2 numa:2 core:4 pu:1", NULL, "2 4 16 16");
    counts("package:2 numa:2 core:4 pu:1", &two, "1 1 2 2");
    counts("package:1 core:1 pu:2", &two, "1 1 1 2");
    counts("package:2 core:4 pu:2", &none, "0 0 0 0");
}

/* The picture of comm/cores.c, where the second thread of core k has the number k + 8. */
static void test_order(void **state)
{
    (void)state;
    meg_topology *t = opened("package:1 core:4 pu:2(indexes=0,8,1,9,2,10,3,11)");
    meg_processors set = {{0}};
    static const char *const parts[] = {"0 8", "1 9 2", "10 3 11"};
    for (int i = 0; i < 4; i++) {
        meg_processors_add(&set, i);
        meg_processors_add(&set, i + 8);
    }
    expect(t, &set, "0 8 1 9 2 10 3 11");
    for (int i = 0; i < 3; i++) {
        meg_processors part = meg_topology_part(t, &set, i, 3);
        expect(t, &part, parts[i]);
    }
    meg_processors_add(&set, 77); /* that the machine does not know: last */
    expect(t, &set, "0 8 1 9 2 10 3 11 77");
    meg_topology_close(t);
}

/* Packages whose numbers alternate, as some systems have them: a part keeps to one. */
static void test_packages(void **state)
{
    (void)state;
    meg_topology *t = opened("package:2 core:2 pu:1(indexes=0,2,1,3)");
    meg_processors set = first(4);
    for (int i = 0; i < 2; i++) {
        meg_processors part = meg_topology_part(t, &set, i, 2);
        assert_int_equal(meg_topology_count(t, &part).packages, 1);
        assert_int_equal(meg_processors_count(&part), 2);
    }
    meg_topology_close(t);
}

static void test_refused(void **state)
{
    (void)state;
    meg_error e = {0};
    meg_topology *t = NULL;
    assert_int_equal(meg_topology_open(&e, "two sockets", &t), MEG_EARG);
    assert_null(t);
    if (!strstr(e.message, "package:2 core:4")) fail_msg("no example in: %s", e.message);
    meg_topology_close(NULL);
}

/* Of this machine every processor that the thread may use is found, and it can be kept to. */
static void test_here(void **state)
{
    (void)state;
    meg_topology *t = opened(NULL);
    meg_processors mine = meg_processors_mine();
    int list[MEG_PROCESSORS], count = meg_topology_order(t, &mine, list);
    meg_topology_counts all = meg_topology_count(t, NULL);
    print_message("%d packages, %d nodes, %d cores, %d processors, %d for this thread\n",
                  all.packages, all.nodes, all.cores, all.processors, count);
    assert_int_equal(count, meg_processors_count(&mine));
    assert_true(all.nodes >= 1 && all.processors >= 1);
    meg_processors one = meg_topology_part(t, &mine, 0, count);
    assert_int_equal(meg_processors_count(&one), 1);
    if (meg_processors_keep(&one)) {
        meg_processors now = meg_processors_mine();
        assert_true(meg_processors_equal(&now, &one));
    }
    (void)meg_processors_keep(&mine);
    meg_topology_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),   cmocka_unit_test(test_order),
        cmocka_unit_test(test_packages), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
