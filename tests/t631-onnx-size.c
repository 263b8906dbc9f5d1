/* A file with 2.4 GB of weights inside is opened, becomes a graph, and gives its numbers to whoever
 * asks, with little memory of the process's own: the file is mapped, and what was read is let go.
 * The weights are a hole on the disk, but for their last numbers.
 */
#include "exec/start.h"
#include "graph/stored.h"
#include "import/onnx/onnx.h"
#include "import/onnx/wire/proto.h"
#include "scratch.h"

#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const int64_t LIMIT = 100 << 10; /* KiB beyond what is in use */

typedef struct matrix { /* the weight, as the file has it */
    int64_t rows, columns;
    bool transposed; /* transB: rows are units */
} matrix;

static const matrix LARGE = {60000, 10000, true};   /* 2.4 GB of floats */
static const matrix TURNED = {15000, 10000, false}; /* 600 MB: a trainer has its gradients, too */

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
static meg_wire model_of(const matrix *w)
{
    meg_wire t = {0}, node = {0}, graph = {0}, set = {0}, model = {0};
    meg_wire_text(&node, 1, "image");
    meg_wire_text(&node, 1, "w");
    meg_wire_text(&node, 2, "y");
    meg_wire_text(&node, 4, "Gemm");
    if (w->transposed) put_flag(&node, "transB");
    meg_wire_message(&graph, 1, &node);
    port(&graph, 11, "image", w->transposed ? w->columns : w->rows);
    port(&graph, 12, "y", w->transposed ? w->rows : w->columns);
    meg_wire_int(&t, 1, w->rows);
    meg_wire_int(&t, 1, w->columns);
    meg_wire_int(&t, 2, 1);
    meg_wire_text(&t, 8, "w");
    meg_wire_hole(&t, 9, 4 * w->rows * w->columns, 0);
    meg_wire_message(&graph, 5, &t);
    meg_wire_int(&set, 2, 20);
    meg_wire_int(&model, 1, 9);
    meg_wire_message(&model, 8, &set);
    meg_wire_message(&model, 7, &graph);
    return model;
}

/* Writes the model; false: there is no room for it, or no /proc to measure with. */
static bool write_model(scratch *s, const matrix *w, char path[512])
{
    const float last[2] = {3, 4};
    meg_wire m = model_of(w);
    snprintf(path, 512, "%s", scratch_write(s, "large.onnx", m.data, m.used));
    int fd = open(path, O_WRONLY);
    off_t end = (off_t)(m.hole[0].at + (size_t)(4 * w->rows * w->columns));
    assert_int_equal(m.used, m.hole[0].at); /* the weight comes last */
    bool done = fd >= 0 && ftruncate(fd, end) == 0 &&
                pwrite(fd, last, sizeof last, end - (off_t)sizeof last) == (ssize_t)sizeof last;
    if (fd >= 0) close(fd);
    meg_wire_free(&m);
    return done && status_line("VmRSS:") >= 0;
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
    char path[512];
    (void)state;
    if (!write_model(&s, &LARGE, path)) {
        scratch_free(&s);
        print_message("no room for a file of 2.4 GB, or no /proc: nothing was tested\n");
        skip();
    }
    int64_t before = status_line("VmRSS:");
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

/* The way of a trainer. What it keeps is anonymous memory, and grows until all has started; so the
 * peak beyond that is pages of the file and what was needed for a while. */
static void transposed_weights_start_with_little_memory(void **state)
{
    scratch s = scratch_new();
    meg_context *ctx = NULL;
    meg_graph *g = NULL;
    meg_data *d = NULL;
    meg_plan *p = NULL;
    meg_trainer *t = NULL;
    char path[512];
    (void)state;
    bool made = write_model(&s, &TURNED, path);
    int64_t before = status_line("VmRSS:") - status_line("RssAnon:");
    meg_status status = meg_open("device=ref log=quiet", &ctx);
    if (made && !status) status = meg_graph_load(ctx, path, NULL, &g);
    if (made && !status)
        status = meg_data_open(ctx, "synthetic:image=15000 classes=10000 count=2", &d);
    if (made && !status) status = meg_plan_new(g, d, "batch=1", &p);
    if (made && !status) status = meg_trainer_new(p, d, "lr=0", &t);
    if (status) print_error("%s\n", meg_message(ctx));
    int64_t kept = status_line("RssAnon:"), peak = status_line("VmHWM:");
    meg_trainer_free(t);
    meg_plan_free(p);
    meg_data_free(d);
    meg_graph_free(g);
    meg_close(ctx);
    scratch_free(&s);
    if (!made) skip();
    print_message("600 MB, transposed: %" PRId64 " KiB in use, %" PRId64 " KiB at most beyond\n",
                  kept, peak - before - kept);
    assert_int_equal(status, MEG_OK);
    assert_in_range(kept, 4 * TURNED.rows * TURNED.columns >> 10, INT32_MAX);
    assert_in_range(peak - before - kept, 0, LIMIT);
}

/* In the file's order or element by element: the same numbers. */
static void both_orders_read_the_same(void **state)
{
    enum {
        ROWS = 20000, /* more than a tile has */
        COLUMNS = 19  /* more than a band */
    };
    const int64_t first = 7 * COLUMNS, count = (ROWS - 9) * COLUMNS;
    float *data = malloc(sizeof(float) * ROWS * COLUMNS), *narrow = calloc((size_t)count, 4);
    double *want = malloc(8 * (size_t)count), *wide = calloc((size_t)count, 8);
    meg_stored s = {.data = data, .rows = ROWS, .columns = COLUMNS, .scale = 0.5};
    (void)state;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        data[i] = (float)i;
    meg_stored_read(&s, first, count, want);
    assert_true(meg_stored_fill(&s, first, count, true, wide));
    assert_true(meg_stored_fill(&s, first, count, false, narrow));
    assert_false(meg_stored_fill(&s, first + 1, count, true, wide)); /* no whole rows */
    assert_memory_equal(wide, want, 8 * (size_t)count);
    for (int64_t i = 0; i < count; i++)
        if ((double)narrow[i] < want[i] || (double)narrow[i] > want[i])
            fail_msg("element %" PRId64 ": %g, expected %g", i, (double)narrow[i], want[i]);
    free(data), free(narrow), free(want), free(wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_files_take_little_memory),
        cmocka_unit_test(both_orders_read_the_same),
        cmocka_unit_test(transposed_weights_start_with_little_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
