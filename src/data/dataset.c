/* Data sets: the registry of readers, opening by "reader:options", and what readers share. */
#include "base/nearest.h"
#include "base/registry.h"
#include "data/reader.h"

#include <stdlib.h>
#include <string.h>

#define MEG_READER(name) extern const meg_reader meg_reader_##name;
#include "data/readers.def"
#undef MEG_READER

static const meg_reader *const READERS[] = {
#define MEG_READER(name) &meg_reader_##name,
#include "data/readers.def"
#undef MEG_READER
};

MEG_REGISTRY_AT(meg_reader, meg_reader_at, READERS)

MEG_REGISTRY_FIND(meg_reader, meg_reader_find, meg_reader_at)

static MEG_REGISTRY_NAME(name_at, meg_reader_at)

    static meg_status unknown(meg_error *e, const char *name)
{
    size_t length = strlen(name), tail = strlen(".npy");
    const char *end = name + (length > tail ? length - tail : 0);
    if (strcmp(end, ".npy") == 0 || strcmp(end, ".npz") == 0)
        return meg_fail(e, MEG_EARG, "data: '%.64s' is a file: write npy:images=%.64s%s", name,
                        name, end[3] == 'y' ? " labels=FILE.npy" : "");
    return meg_unknown(e, "data: unknown reader", name, name_at);
}

meg_status meg_dataset_open(meg_error *e, const char *source, meg_dataset *out)
{
    char name[64];
    size_t length = strcspn(source, ":");
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name), source);
    const meg_reader *reader = meg_reader_find(name);
    if (!reader) return unknown(e, name);

    meg_dataset d = {.reader = reader};
    bool longer = strlen(source) >= sizeof d.source;
    snprintf(d.source, sizeof d.source, longer ? "%.250s..." : "%s", source);
    meg_pool *pool = meg_pool_new();
    void *settings = meg_pool_alloc(pool, reader->settings_bytes + 1);
    const char *options = source[length] ? source + length + 1 : "";
    meg_status status = meg_options_fill(e, &(meg_form){reader->params, reader->name, pool},
                                         options, settings);
    const meg_ruled ruled = {reader->name, reader->params, reader->rules, options, settings};
    if (status == MEG_OK) status = meg_rules_check(e, NULL, &ruled);
    if (status == MEG_OK) status = reader->open(e, settings, &d);
    meg_pool_free(pool);
    if (status != MEG_OK) return meg_trail(e, status, __func__);
    *out = d;
    return MEG_OK;
}

void meg_dataset_close(meg_dataset *d)
{
    if (!d || !d->reader) return;
    d->reader->close(d);
    *d = (meg_dataset){0};
}

void meg_dataset_shape(meg_dataset *d, int rank, const int64_t dims[])
{
    d->count = dims[0];
    d->rank = rank;
    d->sample = meg_box_of(1, 1, 1, 1, 1);
    for (int i = 0; i < rank; i++) {
        d->dims[i] = dims[i];
        if (i > 0) d->sample.hi[i == 1 ? MEG_C : MEG_AXES - rank + i] = dims[i];
    }
    d->label = meg_box_of(1, 1, 1, 1, 1);
}

void meg_dataset_tokens(meg_dataset *d)
{
    d->tokens = true;
    d->sample.hi[MEG_W] = d->sample.hi[MEG_C];
    d->sample.hi[MEG_C] = 1;
}

void meg_dataset_label(meg_dataset *d, bool real, int rank, const int64_t dims[])
{
    d->real = real;
    d->label = meg_box_of(1, 1, 1, 1, 1);
    for (int i = 1; i < rank; i++)
        d->label.hi[real && i == 1 ? MEG_C : MEG_AXES - rank + i] = dims[i];
}

meg_status meg_dataset_read(const meg_dataset *d, meg_error *e, const meg_ask *ask, void *out)
{
    if (d->reader->get) return d->reader->get(d, e, ask, out);
    if (ask->field == MEG_FIELD_SAMPLE) return d->reader->read(d, e, ask->index, &ask->box, out);
    return d->reader->label(d, e, ask->index, &ask->box, out);
}

void meg_dataset_wants(const meg_dataset *d, meg_wanted out[2])
{
    out[0] = (meg_wanted){
        .name = "samples", .all = d->sample, .box = d->sample, .ids = d->tokens, .ignore = -1};
    out[1] = (meg_wanted){.name = "labels",
                          .field = MEG_FIELD_LABEL,
                          .label = true,
                          .dtype = d->real ? MEG_F32 : MEG_I32,
                          .all = d->label,
                          .box = d->label,
                          .ignore = -1};
}

meg_run meg_run_first(const meg_box *sample, const meg_box *box)
{
    meg_run r = {.sample = *sample};
    r.length = meg_box_runs(sample, box, &r.heads);
    r.on = !meg_box_empty(box) && meg_box_first(&r.heads, r.p);
    if (r.on) r.at = meg_box_at(sample, r.p);
    return r;
}

void meg_run_next(meg_run *r)
{
    r->on = meg_box_next(&r->heads, r->p);
    r->done += r->length;
    if (r->on) r->at = meg_box_at(&r->sample, r->p);
}
