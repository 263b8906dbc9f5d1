/* Batches for the engine: see filled.h. */
#include "train/step/filled.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t bytes_of(const meg_wanted *w) /* of a sample */
{
    return meg_box_size(&w->box) * meg_dtype_bytes(w->dtype);
}

static meg_status make_room(meg_filled *f, meg_error *e, const meg_batch *b, int64_t samples)
{
    if (f->count != b->wants) {
        meg_filled_free(f);
        f->fed = calloc((size_t)b->wants + 1, sizeof *f->fed);
        f->own = calloc((size_t)b->wants + 1, sizeof *f->own);
        MEG_CHECK(e, f->fed && f->own, MEG_ENOMEM, "no memory for a batch");
        f->count = b->wants;
    }
    for (int i = 0; i < b->wants && b->count < samples && f->room < samples; i++) {
        free(f->own[i]);
        f->own[i] = malloc((size_t)(samples * bytes_of(&b->want[i])) + 1);
        MEG_CHECK(e, f->own[i], MEG_ENOMEM, "no memory for a batch of %lld samples",
                  (long long)samples);
    }
    if (b->count < samples && f->room < samples) f->room = samples;
    return MEG_OK;
}

static void not_counted(const meg_wanted *w, void *to, int64_t count)
{
    int32_t *whole = to;
    float *single = to;
    double *wide = to;
    for (int64_t i = 0; i < count; i++)
        if (w->dtype == MEG_I32) whole[i] = -1;
        else if (w->dtype == MEG_F32) single[i] = NAN;
        else wide[i] = (double)NAN;
}

static void fill(const meg_wanted *w, const void *from, char *to, int64_t has, int64_t samples)
{
    int64_t each = bytes_of(w);
    memcpy(to, from, (size_t)(has * each));
    if (w->label) not_counted(w, to + has * each, (samples - has) * meg_box_size(&w->box));
    else memset(to + has * each, 0, (size_t)((samples - has) * each));
}

meg_status meg_filled_take(meg_filled *f, meg_error *e, const meg_batch *b, int64_t samples,
                           meg_feed *feed)
{
    MEG_TRY(e, make_room(f, e, b, samples));
    for (int i = 0; i < b->wants; i++) {
        const meg_wanted *w = &b->want[i];
        bool whole = b->count == samples, any = !meg_box_empty(&w->box);
        if (!whole && any) fill(w, b->data[i], f->own[i], b->count, samples);
        f->fed[i] = (meg_fed){.name = w->name,
                              .data = any ? (whole ? b->data[i] : f->own[i]) : NULL,
                              .dtype = w->dtype,
                              .box = w->box};
    }
    feed->count = b->wants;
    feed->fed = f->fed;
    return MEG_OK;
}

void meg_filled_free(meg_filled *f)
{
    for (int i = 0; i < f->count && f->own; i++)
        free(f->own[i]);
    free(f->own);
    free(f->fed);
    *f = (meg_filled){0};
}
