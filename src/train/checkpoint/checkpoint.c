/* Checkpoints: see checkpoint.h. */
#include "train/checkpoint/checkpoint.h"
#include "graph/fingerprint.h"
#include "train/checkpoint/collect.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/planfile.h"
#include "train/checkpoint/shelf.h"
#include "train/checkpoint/weights.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char MODEL[] = "model.safetensors", OPTIMIZER[] = "optimizer.safetensors",
                  WORDS[] = "plan";

struct meg_checkpoints {
    meg_engine *engine;
    meg_comm *comm;
    meg_checkpoints_options options;
    bool writer; /* rank 0 */
    meg_shelf shelf;
    int64_t last; /* the step of the checkpoint that equals the engine's memory; -1: none */
};

static meg_status agree(meg_checkpoints *k, meg_error *e, const meg_error *mine)
{
    meg_error all = *mine; /* `e` may hold an older one */
    meg_status status = k->comm ? meg_comm_agree(k->comm, &all) : all.status;
    if (status != MEG_OK) *e = all;
    return status;
}

meg_status meg_checkpoints_open(meg_engine *x, meg_comm *comm, meg_error *e,
                                const meg_checkpoints_options *o, meg_checkpoints **out)
{
    meg_error mine = {0};
    meg_checkpoints *k = calloc(1, sizeof *k);
    if (!k) abort(); /* less than a page */
    *k = (meg_checkpoints){.engine = x, .comm = comm, .options = *o, .last = -1};
    k->writer = !comm || meg_comm_rank(comm) == 0;
    k->shelf.lock = -1;
    if (k->writer) meg_shelf_open(&k->shelf, &mine, o->folder);
    meg_status status = agree(k, e, &mine);
    if (status == MEG_OK) *out = k;
    else meg_checkpoints_close(k);
    return status;
}

void meg_checkpoints_close(meg_checkpoints *k)
{
    if (!k) return;
    meg_shelf_close(&k->shelf);
    free(k);
}

/* What a checkpoint of this moment says of itself. */
static meg_manifest describe(const meg_checkpoints *k, const meg_position *at)
{
    const meg_plan *p = meg_engine_plan(k->engine);
    int64_t per_epoch = at->per_epoch > 0 ? at->per_epoch : 1;
    meg_manifest m = {.step = at->step,
                      .epoch = at->step / per_epoch,
                      .position = at->step % per_epoch,
                      .per_epoch = at->per_epoch,
                      .samples = at->samples,
                      .batch = p->options.batch,
                      .norm = p->options.norm ? p->options.norm : p->options.batch,
                      .seed = at->seed};
    snprintf(m.model, sizeof m.model, "%s", p->source->name);
    snprintf(m.optimizer, sizeof m.optimizer, "%s", p->optimizer->name);
    snprintf(m.fingerprint, sizeof m.fingerprint, "%016" PRIx64, meg_graph_fingerprint(p->source));
    meg_options_print(p->optimizer->params, p->settings, m.words, sizeof m.words);
    return m;
}

/* ---- writing ---- */

typedef struct job {
    meg_checkpoints *k;
    meg_position *at;
    bool found;
} job;

static meg_status write_files(const job *j, meg_collection *c, meg_error *e, const char *folder)
{
    meg_manifest m = describe(j->k, j->at);
    char path[MEG_SHELF_PATH + 32], step[32];
    snprintf(step, sizeof step, "%" PRId64, m.step);
    meg_saved_note notes[] = {{"megalith.model", m.model}, {"megalith.step", step}};
    meg_weights_file w = {path, notes, 2, j->k->options.shard, false};
    snprintf(path, sizeof path, "%s/%s", folder, MODEL);
    MEG_TRY(e, meg_weights_write(c, e, &w));
    w.optimizer = true;
    snprintf(path, sizeof path, "%s/%s", folder, OPTIMIZER);
    MEG_TRY(e, meg_weights_write(c, e, &w));
    snprintf(path, sizeof path, "%s/%s", folder, WORDS);
    MEG_TRY(e, meg_plan_file_write(e, path, meg_engine_plan(j->k->engine)));
    return meg_manifest_write(&m, e, folder);
}

static meg_status write_checkpoint(void *context, meg_collection *c, meg_error *e)
{
    const job *j = context;
    meg_shelf *shelf = &j->k->shelf;
    char folder[MEG_SHELF_PATH];
    MEG_TRY(e, meg_shelf_begin(shelf, e, j->at->step, folder));
    meg_status status = write_files(j, c, e, folder);
    if (status == MEG_OK) status = meg_shelf_publish(shelf, e, j->at->step);
    if (status != MEG_OK) {
        meg_shelf_drop(shelf, j->at->step);
        return meg_trail(e, status, __func__);
    }
    return meg_shelf_prune(shelf, e, j->at->step, j->k->options.keep);
}

meg_status meg_checkpoint_write(meg_checkpoints *k, meg_error *e, const meg_position *at)
{
    meg_position where = *at;
    job j = {.k = k, .at = &where};
    if (k->last == at->step) return MEG_OK;
    MEG_TRY(e, meg_collect(k->engine, k->comm, e, MEG_COLLECT_VALUES | MEG_COLLECT_OPTIMIZER,
                           write_checkpoint, &j));
    k->last = at->step;
    if (k->writer) meg_log(&k->options.log, MEG_INFO, "checkpoint of step %" PRId64, at->step);
    return MEG_OK;
}

/* ---- resuming ---- */

/* MEG_EDATA: an older checkpoint may fit. MEG_EARG: the words are wrong. */
static meg_status fits(const job *j, meg_error *e, const meg_manifest *m, const char *folder)
{
    meg_manifest now = describe(j->k, j->at);
    MEG_CHECK(e, strcmp(m->fingerprint, now.fingerprint) == 0, MEG_EDATA,
              "%s is of another model: of %s, fingerprint %.16s, but this is %s, %s", folder,
              m->model, m->fingerprint, now.model, now.fingerprint);
    MEG_CHECK(e, strcmp(m->optimizer, now.optimizer) == 0, MEG_EARG,
              "%s was trained with optimizer=%s, but this is optimizer=%s; its weights alone can"
              " be loaded",
              folder, m->optimizer, now.optimizer);
    const struct {
        const char *word;
        int64_t then, now;
    } same[] = {{"seed=", m->seed, now.seed},
                {"batch=", m->batch, now.batch},
                {"a data set of samples: ", m->samples, now.samples}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        MEG_CHECK(
            e, same[i].then == same[i].now, MEG_EARG,
            "%s was trained with %s%" PRId64 ", but this is %" PRId64
            ": training could not go on as it would have; use that, or load its weights alone",
            folder, same[i].word, same[i].then, same[i].now);
    if (strcmp(m->words, now.words) != 0 || m->norm != now.norm)
        meg_log(&j->k->options.log, MEG_WARN,
                "%s was trained with %s norm=%" PRId64 ", goes on with %s norm=%" PRId64, folder,
                m->words, m->norm, now.words, now.norm);
    return MEG_OK;
}

static meg_status read_files(meg_collection *c, meg_error *e, const char *folder, const char *whose)
{
    meg_safetensors *file[2] = {NULL, NULL};
    char path[2][MEG_SHELF_PATH + 32];
    meg_weights_file w[2] = {{.path = path[0]}, {.path = path[1], .optimizer = true}};
    meg_status status = MEG_OK;
    for (int i = 0; i < 2 && status == MEG_OK; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s", folder, i ? OPTIMIZER : MODEL);
        status = meg_safetensors_open(e, path[i], &file[i]);
        if (status == MEG_OK) status = meg_weights_check(c, e, &w[i], file[i], whose);
    }
    for (int i = 0; i < 2 && status == MEG_OK; i++) /* only now anything changes */
        status = meg_weights_read(c, e, &w[i], file[i]);
    for (int i = 0; i < 2; i++)
        meg_safetensors_close(file[i]);
    return status;
}

static meg_status try_one(job *j, meg_collection *c, meg_error *e, int64_t step)
{
    char folder[MEG_SHELF_PATH];
    meg_manifest m;
    meg_shelf_name(&j->k->shelf, step, folder);
    MEG_TRY(e, meg_manifest_read(&m, e, folder));
    MEG_CHECK(e, m.step == step, MEG_EDATA, "%s says that it is of step %" PRId64, folder, m.step);
    MEG_TRY(e, fits(j, e, &m, folder));
    MEG_TRY(e, read_files(c, e, folder, m.model));
    meg_log(&j->k->options.log, MEG_INFO, "resumed from %s", folder);
    j->at->step = step;
    j->found = true;
    return MEG_OK;
}

static meg_status choose(job *j, meg_collection *c, meg_error *e, const int64_t *step, int count)
{
    const char *folder = j->k->shelf.path;
    meg_error first = {0}, why = {0};
    int resume = j->k->options.resume;
    MEG_CHECK(e, resume != MEG_RESUME_NO || count == 0, MEG_EARG,
              "resume=no, but %s has a checkpoint of step %" PRId64
              ": use resume=auto, or another folder",
              folder, step[0]);
    MEG_CHECK(e, resume != MEG_RESUME_YES || count > 0, MEG_EARG,
              "resume=yes, but there is no checkpoint in %s", folder);
    for (int i = 0; i < count; i++) {
        meg_error_clear(&why);
        if (try_one(j, c, &why, step[i]) == MEG_OK) return MEG_OK;
        if (why.status == MEG_EARG) return meg_fail(e, why.status, "%s", why.message);
        meg_log(&j->k->options.log, MEG_WARN, "%s; the next older checkpoint is tried",
                why.message);
        if (i == 0) first = why;
    }
    if (count == 0) return MEG_OK;
    return meg_fail(
        e, first.status,
        "no checkpoint in %.200s can be used; the newest: %.600s; repair or remove them,"
        " or name another folder",
        folder, first.message);
}

static meg_status read_newest(void *context, meg_collection *c, meg_error *e)
{
    job *j = context;
    int64_t *step = NULL;
    int count = 0;
    MEG_TRY(e, meg_shelf_list(&j->k->shelf, e, &step, &count));
    meg_status status = choose(j, c, e, step, count);
    free(step);
    return status;
}

meg_status meg_checkpoint_resume(meg_checkpoints *k, meg_error *e, meg_position *at)
{
    at->step = 0;
    job j = {.k = k, .at = at};
    MEG_TRY(e, meg_collect(k->engine, k->comm, e, MEG_COLLECT_VALUES | MEG_COLLECT_OPTIMIZER,
                           read_newest, &j));
    int64_t found[2] = {j.found, at->step};
    if (k->comm) MEG_TRY(e, meg_comm_share(k->comm, e, 0, found, sizeof found));
    at->step = found[1];
    k->last = found[0] ? at->step : -1;
    return MEG_OK;
}

/* ---- words ---- */

static meg_plan_text *words_of(const meg_shelf *s, int64_t step)
{
    char folder[MEG_SHELF_PATH], path[MEG_SHELF_PATH + 32];
    meg_error ignored = {0}; /* what is wrong with a checkpoint is said when it is loaded */
    meg_plan_text *t = NULL;
    meg_shelf_name(s, step, folder);
    snprintf(path, sizeof path, "%s/%s", folder, WORDS);
    if (meg_manifest_prove(&ignored, folder, WORDS) != MEG_OK) return NULL;
    return meg_plan_file_read(&ignored, path, &t) == MEG_OK ? t : NULL;
}

void meg_checkpoint_words(const char *folder, meg_plan_text **out)
{
    meg_shelf shelf = {.lock = -1}; /* others may be writing: names come last */
    meg_error ignored = {0};
    int64_t *step = NULL;
    int count = 0;
    *out = NULL;
    snprintf(shelf.path, sizeof shelf.path, "%s", folder);
    if (meg_shelf_list(&shelf, &ignored, &step, &count) != MEG_OK) return;
    for (int i = 0; i < count && !*out; i++)
        *out = words_of(&shelf, step[i]);
    free(step);
}
