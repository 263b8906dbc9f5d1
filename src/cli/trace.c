/* Traces: see trace.h. Kernels come from the device's worker, steps and messages from the training
 * thread; each event is written under the lock of the FILE. Times are microseconds since the beginning,
 * by the clock of the first rank. The first writes beside the file, others into files without a name,
 * whose text the first appends in the end: hosts need not share a folder.
 */
#define _GNU_SOURCE
#include "cli/trace.h"
#include "base/clock.h"
#include "base/files/json.h"
#include "base/files/outfile.h"
#include "cli/report/kernel.h"
#include "cli/report/together.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LANE_TRAINER = 1,
    LANE_DEVICE = 2,
    LANE_WAITING = 3,
    LANE_TRAFFIC = 4, /* and on: messages overlap, events of a lane may not */
    LANES = 64        /* of traffic, at most; beyond that they do overlap */
};

struct meg_trace {
    meg_session *session;
    int rank;
    FILE *file;
    char *path;
    meg_outfile out; /* rank 0's */
    meg_pool *pool;
    double begin;
    int lanes;
    double busy[LANES]; /* until when each has an event */
};

/* ---- events ---- */

static void event(meg_trace *t, int lane, const char *name, double start, double seconds)
{
    fprintf(t->file, ",\n{\"ph\": \"X\", \"pid\": %d", t->rank + 1);
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

void meg_trace_step(meg_trace *t, const meg_progress *p)
{
    char name[48];
    snprintf(name, sizeof name, "step %" PRId64, p->step);
    flockfile(t->file);
    event(t, LANE_TRAINER, name, p->begin, p->end - p->begin);
    fputc('}', t->file);
    funlockfile(t->file);
}

/* ---- messages ---- */

static void print_lane(const meg_trace *t, int lane, const char *name)
{
    fprintf(t->file,
            ",\n{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"thread_name\", "
            "\"args\": {\"name\": \"%s\"}}",
            t->rank + 1, lane, name);
}

/* They come in the order in which they end, so that one which begins after the last of a lane has
 * ended fits there. */
static int lane_for(meg_trace *t, double begin, double end)
{
    int lane = 0;
    while (lane < t->lanes && t->busy[lane] > begin)
        lane++;
    if (lane == LANES) lane--;
    if (lane == t->lanes) {
        char name[48];
        snprintf(name, sizeof name, "communication %d", lane + 1);
        print_lane(t, LANE_TRAFFIC + lane, name);
        t->lanes++;
    }
    t->busy[lane] = end;
    return LANE_TRAFFIC + lane;
}

/* "send conv1 to rank 3", "receive gradient of conv1 from rank 3", "sum gradients over 4 ranks" */
static void name_traffic(const meg_traffic_item *a, char *out, size_t size)
{
    static const char *const how[] = {"send", "receive", "sum"};
    static const char *const whom[] = {"to rank", "from rank", "over"};
    int kind = (int)a->code - MEG_SEND;
    bool sums = a->code == MEG_REDUCE;
    snprintf(out, size, "%s %s%s %s %d%s", how[kind], a->gradient ? "gradient of " : "", a->what,
             whom[kind], sums ? a->reduce->ranks : a->peer, sums ? " ranks" : "");
}

static void observe_traffic(void *context, const meg_traffic_event *v)
{
    meg_trace *t = context;
    const meg_traffic_item *a = v->item;
    char name[MEG_TEXT] = "wait";
    flockfile(t->file);
    if (a) name_traffic(a, name, sizeof name);
    event(t, a ? lane_for(t, v->begin, v->end) : LANE_WAITING, name, v->begin, v->end - v->begin);
    if (a)
        fprintf(t->file,
                ", \"args\": {\"bytes\": %" PRId64 ", \"%s\": %d, \"tag\": %d, "
                "\"micro\": %d, \"waited_us\": %.3f}",
                a->bytes, a->code == MEG_REDUCE ? "ranks" : "peer",
                a->code == MEG_REDUCE ? a->reduce->ranks : a->peer, a->tag, a->micro,
                1e6 * (v->begin - v->posted));
    fputc('}', t->file);
    funlockfile(t->file);
}

/* ---- files ---- */

static void print_head(const meg_trace *t)
{
    if (t->rank == 0) fputs("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n", t->file);
    fprintf(t->file,
            "%s{\"ph\": \"M\", \"pid\": %d, \"name\": \"process_name\", "
            "\"args\": {\"name\": \"rank %d\"}}",
            t->rank == 0 ? "" : ",\n", t->rank + 1, t->rank);
    fprintf(t->file,
            ",\n{\"ph\": \"M\", \"pid\": %d, \"name\": \"process_sort_index\", "
            "\"args\": {\"sort_index\": %d}}",
            t->rank + 1, t->rank);
    print_lane(t, LANE_TRAINER, "trainer");
    print_lane(t, LANE_DEVICE, "device");
    if (meg_ranks(t->session->ctx) > 1) print_lane(t, LANE_WAITING, "waiting");
}

static meg_status open_file(meg_trace *t)
{
    meg_error *e = t->session->error;
    if (t->rank == 0) {
        MEG_TRY(e, meg_outfile_open(&t->out, e, t->path));
        int fd = dup(t->out.fd); /* the one is closed with the stream, the other synced */
        t->file = fd >= 0 ? fdopen(fd, "w") : NULL;
        if (!t->file && fd >= 0) close(fd);
    } else {
        t->file = tmpfile();
    }
    MEG_CHECK(e, t->file, MEG_EIO, "cannot write %s: %s",
              t->rank == 0 ? t->path : "a temporary file", strerror(errno));
    return MEG_OK;
}

/* The first rank's clock; its beginning is that of all. */
static meg_status set_clock(meg_trace *t)
{
    meg_comm *c = t->session->ctx->comm;
    double ahead, begin = meg_clock();
    MEG_TRY(t->session->error, meg_together_clock(c, t->session->error, &ahead));
    MEG_TRY(t->session->error, meg_comm_share(c, t->session->error, 0, &begin, sizeof begin));
    t->begin = begin + ahead;
    return MEG_OK;
}

meg_status meg_trace_begin(meg_session *s, const char *path, meg_trace **out)
{
    meg_pool *pool = meg_pool_new();
    meg_trace *t = meg_pool_alloc(pool, sizeof *t);
    *t = (meg_trace){.session = s, .rank = meg_rank(s->ctx), .pool = pool, .out = {.fd = -1}};
    t->path = meg_pool_text(pool, "%s", path);
    meg_status status = meg_session_agree(s, open_file(t));
    if (status == MEG_OK) status = set_clock(t);
    if (status != MEG_OK) {
        meg_trace_drop(t);
        return status;
    }
    print_head(t);
    meg_device_observe(s->ctx->device, observe, t);
    meg_engine_observe(s->trainer->engine, observe_traffic, t);
    *out = t;
    return MEG_OK;
}

static void stop(meg_trace *t)
{
    meg_device_observe(t->session->ctx->device, NULL, NULL);
    if (t->session->trainer) meg_engine_observe(t->session->trainer->engine, NULL, NULL);
}

static meg_status put_in_place(meg_trace *t)
{
    errno = 0;
    fputs("\n]}\n", t->file);
    bool bad = ferror(t->file);
    bad = fclose(t->file) || bad;
    t->file = NULL;
    MEG_CHECK(t->session->error, !bad, MEG_EIO, "cannot write %s: %s; it is as it was", t->path,
              strerror(errno ? errno : EIO));
    return meg_outfile_commit(&t->out, t->session->error);
}

meg_status meg_trace_end(meg_trace *t)
{
    meg_session *s = t->session;
    meg_error *e = s->error;
    stop(t);
    meg_status status = MEG_OK;
    if (t->rank > 0 && ferror(t->file))
        status = meg_fail(e, MEG_EIO,
                          "cannot write a temporary file for the trace: is a disk full?");
    status = meg_session_agree(s, status);
    if (status == MEG_OK && meg_ranks(s->ctx) > 1)
        status = meg_together_collect(s->ctx->comm, e, t->file);
    if (status == MEG_OK && t->rank == 0) status = put_in_place(t);
    status = meg_session_agree(s, status);
    meg_trace_drop(t);
    return status;
}

void meg_trace_drop(meg_trace *t)
{
    if (!t) return;
    if (t->file) {
        stop(t);
        fclose(t->file);
    }
    meg_outfile_close(&t->out);
    meg_pool_free(t->pool);
}
