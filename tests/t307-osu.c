/* Outputs of the OSU Micro-Benchmarks: what is read of each kind, the link that they make together, machine files
 * that name them, and what is refused, with its line.
 */
#include "machine/osu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FOLDER MEG_SOURCE_DIR "/tests/golden/osu/"

static meg_osu load(const char *name)
{
    static char text[1 << 16];
    char path[1024];
    meg_error e = {0};
    meg_osu o;
    snprintf(path, sizeof path, FOLDER "%s.txt", name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("there is no %s", path);
    size_t size = fread(text, 1, sizeof text, f);
    fclose(f);
    if (meg_osu_read(&e, name, text, size, &o) != MEG_OK) fail_msg("%s", e.message);
    return o;
}

static void near(const char *what, double expected, double got)
{
    if (!(fabs(got - expected) <= 0.006 * expected)) /* three digits */
        fail_msg("%s: expected %g, got %g", what, expected, got);
}

static void test_kinds(void **state)
{
    static const struct {
        const char *name;
        meg_osu_kind kind;
        int rows;
        double last; /* of the row of 2^20 bytes or more: seconds, bytes a second */
    } CASES[] = {{"latency", MEG_OSU_LATENCY, 24, 355.61e-6},
                 {"latency-7", MEG_OSU_LATENCY, 23, 393.07e-6},
                 {"bw", MEG_OSU_BANDWIDTH, 23, 12289.91e6},
                 {"bibw", MEG_OSU_BOTH_WAYS, 23, 22859.22e6},
                 {"mbw_mr", MEG_OSU_PAIRS, 23, 12380e6},
                 {"allreduce", MEG_OSU_ALLREDUCE, 19, 204.64e-6}};
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        meg_osu o = load(CASES[i].name);
        assert_int_equal(o.kind, CASES[i].kind);
        assert_int_equal(o.rows, CASES[i].rows);
        near(CASES[i].name, CASES[i].last, o.row[o.rows - 1].figure);
    }
    assert_string_equal(meg_osu_name(MEG_OSU_PAIRS), "osu_mbw_mr");
}

/* The bandwidth of one message is that of half a round trip, not of osu_bw's window. */
static void test_link(void **state)
{
    meg_osu o[] = {load("latency"), load("bw"), load("mbw_mr")};
    meg_error e = {0};
    meg_link l;
    (void)state;
    assert_int_equal(meg_osu_link(&e, "test", o, 3, &l), MEG_OK);
    near("latency", 1.05e-6, l.latency);
    assert_int_equal(l.points, 7); /* 1 KiB, 4 KiB .. 4 MiB */
    assert_int_equal(l.at[0].bytes, 1024);
    assert_int_equal(l.at[6].bytes, 4 << 20);
    near("4 MiB", (4 << 20) / 354.56e-6, l.at[6].bandwidth);
    near("all", 12.38e9, l.all);
    for (int i = 0; i < o[0].rows; i++) { /* it gives back what was measured */
        double seconds = meg_link_seconds(&l, o[0].row[i].bytes), want = o[0].row[i].figure;
        if (o[0].row[i].bytes >= 16384 && fabs(seconds - want) > 0.05 * want)
            fail_msg("%d bytes: expected %g s, got %g", (int)o[0].row[i].bytes, want, seconds);
    }
    assert_int_equal(meg_osu_link(&e, "test", o, 1, &l), MEG_OK);
    assert_true(l.all == 0);
    assert_int_equal(meg_osu_link(&e, "test", o, 2, &l), MEG_OK);
    near("all of one pair", 12.29e9, l.all);
    meg_osu both[] = {load("latency"), load("bibw"), load("mbw_mr")};
    assert_int_equal(meg_osu_link(&e, "test", both, 3, &l), MEG_OK);
    near("half of both ways", 11.43e9, l.all);
    assert_int_equal(meg_osu_link(&e, "test", both + 1, 2, &l), MEG_EDATA);
    assert_non_null(strstr(e.message, "osu_latency"));
}

static void test_machine_file(void **state)
{
    meg_error e = {0};
    meg_machine m, back;
    char once[1024];
    (void)state;
    if (meg_machine_load(&e, FOLDER "cluster.txt", &m) != MEG_OK) fail_msg("%s", e.message);
    assert_int_equal(m.nodes, 16);
    near("inside", 3.05e-6, m.inside.latency);
    assert_true(m.inside.cpu == 1 && m.inside.all == 0 && m.between.cpu == 0);
    near("between", 12.38e9, m.between.all);
    meg_machine_print(&m, once, sizeof once);
    if (meg_machine_read(&e, "test", once, &back) != MEG_OK) fail_msg("%s: %s", once, e.message);
    assert_memory_equal(&m.between, &back.between, sizeof m.between);
    assert_memory_equal(&m.inside, &back.inside, sizeof m.inside);
    assert_int_equal(meg_machine_read(&e, "test", "file=" FOLDER "cluster.txt nodes=2 ranks=8", &m),
                     MEG_OK);
    assert_true(m.nodes == 2 && m.ranks == 8 && m.cores == 8 && m.memory == (int64_t)16 << 30);
    near("from a file that is named", 12.38e9, m.between.all);
    assert_int_equal(meg_machine_read(&e, "test", "inside=osu:none.txt", &m), MEG_EIO);
    assert_non_null(strstr(e.message, "none.txt"));
}

static void refuse(const char *text, const char *why)
{
    meg_error e = {0};
    meg_osu o;
    if (meg_osu_read(&e, "f.txt", text, strlen(text), &o) == MEG_OK) fail_msg("taken: %s", text);
    if (!strstr(e.message, why)) fail_msg("%s: expected '%s', got '%s'", text, why, e.message);
}

static void test_refusals(void **state)
{
    char many[2048] = "# OSU MPI Latency Test v5.9\n";
    (void)state;
    refuse("", "no output of osu_latency");
    refuse("# OSU MPI Bcast Latency Test v5.9\n1 2\n", "no output of osu_latency");
    refuse("# OSU MPI_Put Bandwidth Test v5.9\n1 2\n", "no output of osu_latency");
    refuse("# OSU MPI Latency Test v5.9\n# Size Latency (us)\n", "no rows");
    refuse("# OSU MPI Latency Test v5.9\n1 2\nkilled\n", "f.txt:3: a row has");
    refuse("# OSU MPI Latency Test v5.9\n1\n", "f.txt:2: a row has");
    refuse("# OSU MPI Latency Test v5.9\n1.5 2\n", "f.txt:2: a row has");
    refuse("# OSU MPI Latency Test v5.9\n1 nan\n", "f.txt:2: a figure");
    refuse("# OSU MPI Latency Test v5.9\n1 0.00\n", "f.txt:2: a figure");
    refuse("# OSU MPI Latency Test v5.9\n2 1\n2 1\n", "f.txt:3: sizes");
    for (int i = 0; i < 65; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), "%d 1\n", i);
    refuse(many, "f.txt:66: more than 64");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_link),
        cmocka_unit_test(test_machine_file),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
