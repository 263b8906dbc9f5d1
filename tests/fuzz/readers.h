/* The readers of files that may come from anywhere, as functions of bytes: what libFuzzer calls
 * (target.c, `./do fuzz-readers`) and what the ordinary test replays (t640-fuzz-corpus.c).
 *
 * Whatever the bytes are, a reader returns; what it accepts is then used: every number is read,
 * every shape inferred for another batch. Files go to a folder of the process's own, in memory
 * where there is such a place.
 */
#ifndef TESTS_FUZZ_READERS_H
#define TESTS_FUZZ_READERS_H

#include "graph/op.h"
#include "import/onnx/onnx.h"
#include "import/safetensors/safetensors.h"
#include "machine/osu.h"
#include "machine/prices.h"
#include "plan/text.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void fuzz_reader(const char *folder, const uint8_t *data, size_t size);

/* A reader that fails must say why. */
static inline void fuzz_said(meg_status status, const meg_error *e)
{
    if (status == MEG_OK || e->message[0]) return;
    fprintf(stderr, "status %d without a message\n", status);
    abort();
}

static inline void fuzz_put(const char *path, const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size || close(fd) != 0) {
        perror(path);
        abort();
    }
}

/* ---- ONNX ---- */

/* Reads the first and the last numbers of all weights. */
static inline void fuzz_numbers(const meg_graph *g)
{
    double piece[64], sum = 0;
    for (int i = 0; i < g->values; i++) {
        const meg_value *v = &g->value[i];
        int64_t size = meg_box_size(&v->shape), count = size < 64 ? size : 64;
        if (!v->stored.data) continue;
        meg_stored_read(&v->stored, 0, count, piece);
        sum += piece[0];
        meg_stored_read(&v->stored, size - count, count, piece);
        sum += piece[count - 1];
    }
    if (sum == 0.123) fputs("", stderr); /* so that the reads are not optimised away */
}

static inline void fuzz_onnx(const char *folder, const uint8_t *data, size_t size)
{
    static const char *const options[] = {"loss=none", "image=3x8x8"}; /* and a loss */
    char path[512];
    float beside[64] = {1, 2, 3}; /* what external data may name */
    snprintf(path, sizeof path, "%s/external.bin", folder);
    fuzz_put(path, beside, sizeof beside);
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    fuzz_put(path, data, size);
    for (int i = 0; i < 2; i++) {
        meg_error e = {0}, again = {0};
        meg_graph *g = NULL;
        meg_status status = meg_onnx_load(&e, path, options[i], NULL, &g);
        fuzz_said(status, &e);
        if (status != MEG_OK) continue;
        fuzz_numbers(g);
        fuzz_said(meg_graph_rebatch(g, &again, 2), &again);
        meg_graph_destroy(g);
    }
}

/* ---- safetensors ---- */

/* Bytes that begin with '{' are the index of a sharded file, whose shards are good. */
static inline void fuzz_safetensors(const char *folder, const uint8_t *data, size_t size)
{
    static const float numbers[] = {1, 2, 3, 4};
    char path[512];
    for (int i = 1; i <= 2 && size && data[0] == '{'; i++) {
        meg_error e = {0};
        meg_saved t = {i == 1 ? "a" : "b", MEG_F32, 1, {4}, numbers};
        snprintf(path, sizeof path, "%s/%d.safetensors", folder, i);
        if (access(path, R_OK) != 0)
            meg_safetensors_write(&e, path, &(meg_saved_file){1, 0, &t, NULL});
    }
    snprintf(path, sizeof path, "%s/model.safetensors%s", folder,
             size && data[0] == '{' ? ".index.json" : "");
    fuzz_put(path, data, size);
    meg_error e = {0};
    meg_safetensors *f = NULL;
    meg_status status = meg_safetensors_open(&e, path, &f);
    fuzz_said(status, &e);
    if (status != MEG_OK) return;
    unsigned sum = 0;
    for (int i = 0; i < meg_safetensors_count(f); i++) {
        meg_error refused = {0};
        meg_saved t;
        if (meg_safetensors_find(f, meg_safetensors_name(f, i)) != i) abort();
        status = meg_safetensors_at(f, &refused, i, &t);
        fuzz_said(status, &refused);
        if (status != MEG_OK) continue;
        int64_t bytes = meg_dtype_bytes(t.dtype);
        for (int k = 0; k < t.rank; k++)
            bytes *= t.dims[k];
        for (int64_t k = 0; k < bytes; k++)
            sum += ((const uint8_t *)t.data)[k];
    }
    if (sum == 123456789u) fputs("", stderr);
    meg_safetensors_close(f);
}

/* ---- plans ---- */

static inline void fuzz_plan(const char *folder, const uint8_t *data, size_t size)
{
    (void)folder;
    meg_error e = {0}, joined = {0};
    meg_plan_text *t = NULL;
    const char *all;
    meg_status status = meg_plan_text_read(&e, "f.plan", (const char *)data, size, &t);
    fuzz_said(status, &e);
    if (status != MEG_OK) return;
    fuzz_said(meg_plan_text_join(t, &joined, "batch=8 momentum=0.5 keep_grads", &all), &joined);
    meg_plan_text_free(t);
}

/* ---- prices ---- */

/* What was read can be written, and that is read again. */
static inline void fuzz_prices(const char *folder, const uint8_t *data, size_t size)
{
    (void)folder;
    meg_error e = {0};
    meg_prices *p = NULL, *again = NULL;
    char *text = NULL;
    size_t bytes = 0;
    meg_status status = meg_prices_read(&e, "prices", (const char *)data, size, &p);
    fuzz_said(status, &e);
    if (status != MEG_OK) return;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) abort();
    meg_prices_write(p, out);
    fclose(out);
    if (meg_prices_read(&e, "again", text, bytes, &again) != MEG_OK) {
        fprintf(stderr, "%s\n", e.message);
        abort();
    }
    free(text);
    meg_prices_free(p);
    meg_prices_free(again);
}

/* ---- outputs of the OSU Micro-Benchmarks ---- */

/* What was read makes a link, alone or with a latency beside it, or is refused with a reason. */
static inline void fuzz_osu(const char *folder, const uint8_t *data, size_t size)
{
    (void)folder;
    meg_error e = {0};
    meg_osu o[2];
    meg_status status = meg_osu_read(&e, "osu", (const char *)data, size, &o[0]);
    fuzz_said(status, &e);
    if (status != MEG_OK) return;
    o[1] = (meg_osu){.kind = MEG_OSU_LATENCY, .rows = 2, .row = {{0, 1e-6}, {1 << 20, 1e-4}}};
    for (int count = 1; count <= 2; count++) {
        meg_error why = {0};
        meg_link l;
        status = meg_osu_link(&why, "osu", o, count, &l);
        fuzz_said(status, &why);
        if (status != MEG_OK) continue;
        double seconds = meg_link_seconds(&l, 12345);
        if (!(seconds > 0)) abort();
    }
}

#endif
