/* Descriptions of machines: what is read, what is refused, and that what is printed reads back. */
#include "machine/description.h"
#include "machine/links.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static meg_machine read(const char *text)
{
    meg_error e = {0};
    meg_machine m;
    if (meg_machine_read(&e, "test", text, &m) != MEG_OK) fail_msg("%s: %s", text, e.message);
    return m;
}

static void test_words(void **state)
{
    (void)state;
    meg_machine m = read(
        "nodes=4 ranks=2 # two sockets\ncores=16 memory=16GiB\n"
        "inside=1us,8GB/s between=50us,64KiB:60MB/s,1MiB:1Gbit/s,all:125MB/s,cpu:0.5\n"
        "flops=15.7T bandwidth=900GB/s launch=7us disk=2GB/s,500MB/s");
    assert_int_equal(m.nodes, 4);
    assert_int_equal(m.ranks, 2);
    assert_int_equal(m.cores, 16);
    assert_int_equal(m.memory, (int64_t)16 << 30);
    assert_true(m.inside.latency == 1e-6 && m.inside.points == 1 &&
                m.inside.at[0].bandwidth == 8e9);
    assert_int_equal(m.between.points, 2);
    assert_true(m.between.at[0].bytes == 65536 && m.between.at[0].bandwidth == 60e6);
    assert_true(m.between.at[1].bandwidth == 125e6 && m.between.all == 125e6 &&
                m.between.cpu == 0.5);
    assert_true(fabs(m.flops - 15.7e12) < 1 && m.bandwidth == 900e9 && m.launch == 7e-6);
    assert_true(m.read == 2e9 && m.write == 500e6);
    assert_int_equal(m.all_cores, 0);
    assert_int_equal(read("nodes=4 cores=2 all_cores=2").all_cores, 2);
    m = read("ranks=8"); /* a core for each */
    assert_int_equal(m.cores, 8);
    assert_int_equal(meg_machine_memory(&m, 3), 0);
    m = read("nodes=3 memory=16GiB,64GiB"); /* the last node is like the one before it */
    assert_int_equal(m.memory, (int64_t)64 << 30);
    assert_int_equal(meg_machine_memory(&m, 0), (int64_t)16 << 30);
    assert_int_equal(meg_machine_memory(&m, 1), (int64_t)64 << 30);
    assert_int_equal(meg_machine_memory(&m, 2), (int64_t)64 << 30);
}

/* Field by field: what lies between them is nobody's. */
static void expect_same(const meg_link *a, const meg_link *b)
{
    assert_true(a->latency == b->latency && a->all == b->all && a->both == b->both &&
                a->cpu == b->cpu && a->hop == b->hop);
    assert_int_equal(a->points, b->points);
    assert_int_equal(a->sums, b->sums);
    assert_memory_equal(a->at, b->at, sizeof a->at);
    assert_memory_equal(a->sum, b->sum, sizeof a->sum);
}

static void test_prints_what_it_read(void **state)
{
    static const char *const texts[] = {
        "",
        "nodes=512 ranks=8 memory=16GiB inside=9us,50GB/s between=20us,12.5GB/s,all:12.5GB/s",
        "cores=3 inside=123.456ns,1:1MB/s,4096:1.7GB/s,1048576:3.3GB/s,all:5GB/s,cpu:1",
        "nodes=3 memory=16GiB,1,2GB",
        "nodes=4 cores=2 all_cores=2",
        "between=1us,1GB/s,all:2GB/s,both:1.5GB/s,cpu:0.5,hop:12us,sum:64KiB:2GB/s,sum:1MiB:3GB/s",
        "flops=1.23456789T bandwidth=1Mbit/s disk=3MB/s,1B/s launch=0.5ms"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char once[1024], twice[1024];
        meg_machine m = read(texts[i]), back;
        meg_machine_print(&m, once, sizeof once);
        back = read(once);
        meg_machine_print(&back, twice, sizeof twice);
        assert_string_equal(once, twice);
        assert_true(m.inside.latency == back.inside.latency && m.flops == back.flops);
        assert_memory_equal(&m.memory_of, &back.memory_of, sizeof m.memory_of);
        assert_int_equal(m.memory, back.memory);
        expect_same(&m.inside, &back.inside);
        expect_same(&m.between, &back.between);
    }
}

static void test_bandwidth_by_size(void **state)
{
    (void)state;
    meg_machine m = read("inside=1us,1000:1MB/s,3000:2MB/s");
    assert_true(meg_link_bandwidth(&m.inside, 10) == 1e6);
    assert_true(meg_link_bandwidth(&m.inside, 1 << 20) == 2e6);
    /* 1,000 bytes take 1 ms, 3,000 take 1.5 ms: so 2,000 take 1.25 ms. */
    assert_true(fabs(meg_link_seconds(&m.inside, 2000) - (1e-6 + 1.25e-3)) < 1e-12);
    assert_true(meg_link_seconds(&m.inside, 0) == 1e-6);
}

/* Two pairs do not fill the network, four do; inside a node two do. */
static void test_links_of_a_book(void **state)
{
    (void)state;
    static const char *const lines[] = {"between latency=3e-05 pairs=1 at=1024:1e7,1048576:1e8",
                                        "between latency=3e-05 pairs=2 at=1024:1e7,1048576:1e8",
                                        "between latency=3e-05 pairs=4 at=1024:1e7,1048576:6e7",
                                        "inside latency=1e-06 pairs=1 at=1048576:4e9",
                                        "inside latency=1e-06 pairs=2 at=1048576:3e9"};
    static const double between[] = {1e8, 2e8, 2.4e8, 2.4e8, 2.4e8}, inside[] = {0, 0, 0, 0, 6e9};
    meg_prices *book = meg_prices_new(&(meg_prices_head){.threads = 1, .ranks = 1, .isa = "avx2"});
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        meg_error e = {0};
        meg_machine m = meg_machine_default;
        meg_prices_add_link(book, lines[i]);
        if (meg_links_read(&e, book, &m) != MEG_OK) fail_msg("%s", e.message);
        assert_true(fabs(m.between.all - between[i]) < 1);
        if (i > 3) assert_true(fabs(m.inside.all - inside[i]) < 1);
    }
    meg_prices_free(book);
}

static void refuse(const char *text, const char *says)
{
    meg_error e = {0};
    meg_machine m;
    assert_int_not_equal(meg_machine_read(&e, "test", text, &m), MEG_OK);
    if (!strstr(e.message, says)) fail_msg("%s: expected '%s' in '%s'", text, says, e.message);
}

static void test_refusals(void **state)
{
    (void)state;
    refuse("nodes=0", "nodes");
    refuse("node=3", "unknown word");
    refuse("inside=8GB/s", "no latency");
    refuse("inside=1us", "no bandwidth");
    refuse("inside=1us,8GB", "no bandwidth");
    refuse("inside=1us,-8GB/s", "no bandwidth");
    refuse("inside=1us,0GB/s", "no bandwidth");
    refuse("inside=1us,1MiB:1GB/s,1KiB:2GB/s", "ascend");
    refuse("between=1us,1GB/s,cpu:x", "cores");
    refuse("inside=1us,1GB/s,both:1GB/s", "leave both:1GB/s out");
    refuse("inside=1us,1GB/s,hop:fast", "write it like hop:12us");
    refuse("between=1us,1GB/s,all:0B/s", "no bandwidth");
    refuse("flops=1T", "give both");
    refuse("flops=nan bandwidth=1GB/s", "no such number");
    refuse("disk=1GB", "disk");
    refuse("inside=1us,1:1B/s,2:1B/s,3:1B/s,4:1B/s,5:1B/s,6:1B/s,7:1B/s,8:1B/s,9:1B/s,10:1B/s,"
           "11:1B/s,12:1B/s,13:1B/s,14:1B/s,15:1B/s,16:1B/s,17:1B/s",
           "more than 16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_prints_what_it_read),
        cmocka_unit_test(test_bandwidth_by_size),
        cmocka_unit_test(test_links_of_a_book),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
