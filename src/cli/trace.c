/* Traces: see trace.h. Kernels come from the device's worker, steps from the training thread; each
 * event is written under the lock of the FILE. Times are microseconds since the beginning.
 */
#define _GNU_SOURCE
#include "cli/trace.h"
#include "cli/kernel.h"
#include "cli/measure.h"
#include "import/json.h"
#include "import/outfile.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct meg_trace {
    meg_device *device;
    FILE *file;
    char *path, *temporary; /* temporary: NULL when it is gone */
    meg_pool *pool;
    double begin;
};

enum {
    LANE_TRAINER = 1,
    LANE_DEVICE = 2
};

static void event(meg_trace *t, int lane, const char *name, double start, double seconds)
{
    fputs(",\n{\"ph\": \"X\", \"pid\": 1", t->file);
    fprintf(t->file, ", \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"name\": ", lane,
            1e6 * (start - t->begin), 1e6 * seconds);
    meg_json_print(t->file, name);
}

static void observe(void *context, const meg_prepared *k, double start, double seconds)
{
    meg_trace *t = context;
    const meg_request *r = &k->request;
    char name[MEG_TEXT], shape[MEG_TEXT];
    const char *pass = meg_kernel_pass(r);
    snprintf(name, sizeof name, "%s%s%s", meg_kernel_name(r), *pass ? " " : "", pass);
    meg_kernel_shape(r, shape, sizeof shape);
    flockfile(t->file);
    event(t, LANE_DEVICE, name, start, seconds);
    fputs(", \"args\": {\"node\": ", t->file);
    meg_json_print(t->file, r->node ? r->node->name : "");
    fputs(", \"shape\": ", t->file);
    meg_json_print(t->file, shape);
    fputs(", \"implementation\": ", t->file);
    meg_json_print(t->file, k->spec.impl);
    fputs("}}", t->file);
    funlockfile(t->file);
}

void meg_trace_step(meg_trace *t, int64_t step, double seconds)
{
    char name[48];
    snprintf(name, sizeof name, "step %" PRId64, step);
    flockfile(t->file);
    event(t, LANE_TRAINER, name, meg_clock() - seconds, seconds);
    fputc('}', t->file);
    funlockfile(t->file);
}

static void print_head(FILE *out)
{
    static const char lane[] = ",\n{\"ph\": \"M\", \"pid\": 1, \"tid\": %d, "
                               "\"name\": \"thread_name\", \"args\": {\"name\": \"%s\"}}";
    fputs("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n"
          "{\"ph\": \"M\", \"pid\": 1, \"name\": \"process_name\", "
          "\"args\": {\"name\": \"megalith\"}}",
          out);
    fprintf(out, lane, LANE_TRAINER, "trainer");
    fprintf(out, lane, LANE_DEVICE, "device");
}

meg_status meg_trace_begin(meg_error *e, const char *path, meg_device *d, meg_trace **out)
{
    MEG_TRY(e, meg_outfile_check(e, path));
    meg_pool *pool = meg_pool_new();
    meg_trace *t = meg_pool_alloc(pool, sizeof *t);
    *t = (meg_trace){.device = d, .pool = pool, .begin = meg_clock()};
    t->path = meg_pool_text(pool, "%s", path);
    t->temporary = meg_pool_text(pool, "%s.%ld.tmp", path, (long)getpid());
    t->file = fopen(t->temporary, "wx");
    if (!t->file) {
        meg_fail(e, MEG_EIO, "cannot write %s: %s", path, strerror(errno));
        meg_pool_free(pool);
        return MEG_EIO;
    }
    print_head(t->file);
    meg_device_observe(d, observe, t);
    *out = t;
    return MEG_OK;
}

meg_status meg_trace_end(meg_trace *t, meg_error *e)
{
    meg_device_observe(t->device, NULL, NULL);
    errno = 0;
    fputs("\n]}\n", t->file);
    bool bad = ferror(t->file);
    bad = fclose(t->file) || bad;
    t->file = NULL;
    if (!bad) bad = rename(t->temporary, t->path) != 0;
    if (!bad) t->temporary = NULL;
    if (bad)
        meg_fail(e, MEG_EIO, "cannot write %s: %s; it is as it was", t->path,
                 strerror(errno ? errno : EIO));
    meg_trace_drop(t);
    return bad ? MEG_EIO : MEG_OK;
}

void meg_trace_drop(meg_trace *t)
{
    if (!t) return;
    if (t->file) {
        meg_device_observe(t->device, NULL, NULL);
        fclose(t->file);
    }
    if (t->temporary) unlink(t->temporary);
    meg_pool_free(t->pool);
}
