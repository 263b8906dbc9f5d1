/* A file with 2.4 GB of weights inside is opened, becomes a graph, and gives its numbers to whoever
 * asks, with little memory of the process's own: the file is mapped, and what was read is let go.
 * The weights are a hole on the disk, but for their last numbers.
 */
#include "exec/start.h"
#include "import/onnx.h"
#include "import/proto.h"
#include "scratch.h"

#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const int64_t UNITS = 60000, FEATURES = 10000; /* 2.4 GB of floats */
static const int64_t LIMIT = 100 << 10;               /* KiB beyond what is in use */

/* A line of /proc/self/status, in KiB; -1: there is none. */
static int64_t status_line(const char *word)
{
    char line[256];
    int64_t found = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && found < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, word, strlen(word)) == 0) found = strtoll(line + strlen(word), NULL, 10);
    if (f) fclose(f);
    return found;
}

static void port(meg_wire *graph, uint32_t number, const char *name, int64_t extent)
{
    meg_wire batch = {0}, dim = {0}, shape = {0}, type = {0}, kind = {0}, info = {0};
    meg_wire_text(&batch, 2, "N");
    meg_wire_int(&dim, 1, extent);
    meg_wire_message(&shape, 1, &batch);
    meg_wire_message(&shape, 1, &dim);
    meg_wire_int(&type, 1, 1);
    meg_wire_message(&type, 2, &shape);
    meg_wire_message(&kind, 1, &type);
    meg_wire_text(&info, 1, name);
    meg_wire_message(&info, 2, &kind);
    meg_wire_message(graph, number, &info);
}

static void put_flag(meg_wire *node, const char *name)
{
    meg_wire a = {0};
    meg_wire_text(&a, 1, name);
    meg_wire_int(&a, 20, 2);
    meg_wire_int(&a, 3, 1);
    meg_wire_message(node, 5, &a);
}

/* y = Gemm(image, w); the weight's numbers are left out: the file is `all` bytes long. */
static meg_wire model_of(bool transposed)
{
    meg_wire t = {0}, node = {0}, graph = {0}, set = {0}, model = {0};
    meg_wire_text(&node, 1, "image");
    meg_wire_text(&node, 1, "w");
    meg_wire_text(&node, 2, "y");
    meg_wire_text(&node, 4, "Gemm");
    if (transposed) put_flag(&node, "transB");
    meg_wire_message(&graph, 1, &node);
    port(&graph, 11, "image", transposed ? FEATURES : UNITS);
    port(&graph, 12, "y", transposed ? UNITS : FEATURES);
    meg_wire_int(&t, 1, UNITS);
    meg_wire_int(&t, 1, FEATURES);
    meg_wire_int(&t, 2, 1);
    meg_wire_text(&t, 8, "w");
    meg_wire_hole(&t, 9, 4 * UNITS * FEATURES, 0);
    meg_wire_message(&graph, 5, &t);
    meg_wire_int(&set, 2, 20);
    meg_wire_int(&model, 1, 9);
    meg_wire_message(&model, 8, &set);
    meg_wire_message(&model, 7, &graph);
    return model;
}

static bool write_file(const char *path, const meg_wire *m)
{
    const float last[2] = {3, 4};
    int fd = open(path, O_WRONLY);
    off_t end = (off_t)(m->hole[0].at + (size_t)(4 * UNITS * FEATURES));
    assert_int_equal(m->used, m->hole[0].at); /* the weight comes last */
    bool done = fd >= 0 && ftruncate(fd, end) == 0 &&
                pwrite(fd, last, sizeof last, end - (off_t)sizeof last) == (ssize_t)sizeof last;
    if (fd >= 0) close(fd);
    return done;
}

/* All numbers, as the engine reads them when training starts; returns their sum. */
static double read_all(const meg_value *v)
{
    enum {
        PIECE = 4096
    };
    double piece[PIECE], sum = 0;
    int64_t count = meg_box_size(&v->shape);
    for (int64_t i = 0; i < count; i += PIECE) {
        int64_t length = count - i < PIECE ? count - i : PIECE;
        meg_start_read(v, 1, i, length, piece);
        for (int64_t k = 0; k < length; k++)
            sum += piece[k];
    }
    return sum;
}

static void large_files_take_little_memory(void **state)
{
    scratch s = scratch_new();
    meg_error e = {0};
    meg_graph *g = NULL;
    meg_wire m = model_of(true);
    char path[512];
    (void)state;
    snprintf(path, sizeof path, "%s", scratch_write(&s, "large.onnx", m.data, m.used));
    bool made = write_file(path, &m);
    int64_t before = status_line("VmRSS:");
    meg_wire_free(&m);
    if (!made || before < 0) {
        scratch_free(&s);
        print_message("no room for a file of 2.4 GB, or no /proc: nothing was tested\n");
        skip();
    }
    meg_status status = meg_onnx_load(&e, path, "loss=none", NULL, &g);
    if (status != MEG_OK) print_error("%s\n", e.message);
    int64_t loaded = status_line("VmHWM:") - before;
    double sum = g ? read_all(&g->value[meg_graph_find_value(g, "w")]) : 0;
    int64_t read = status_line("VmHWM:") - before;
    meg_graph_destroy(g);
    scratch_free(&s);
    print_message("2.4 GB: %" PRId64 " KiB to load, %" PRId64 " KiB at most while all is read\n",
                  loaded, read);
    assert_int_equal(status, MEG_OK);
    assert_true(sum > 6.99 && sum < 7.01);
    assert_in_range(loaded, 0, LIMIT);
    assert_in_range(read, 0, LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(large_files_take_little_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
