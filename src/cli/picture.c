/* Pictures: see picture.h. */
#include "cli/picture.h"
#include "cli/page/page.h"
#include "cli/page/path.h"
#include "cli/writable.h"
#include "train/advice.h"

#include <inttypes.h>
#include <string.h>

meg_status meg_picture_begin(meg_picture *p, meg_session *s, const char *path)
{
    *p = (meg_picture){0};
    if (!*path) return MEG_OK;
    meg_status status = meg_session_speaks(s) ? meg_writable(s->error, path) : MEG_OK;
    MEG_TRY(s->error, meg_session_agree(s, status));
    *p = (meg_picture){.session = s, .path = path};
    s->ctx->foresees = true;
    return MEG_OK;
}

/* One rank alone has no forecast: its plan is what it is. */
meg_status meg_picture_foresee(meg_session *s)
{
    if (!meg_session_speaks(s) || s->ctx->foresight) return MEG_OK;
    const char *words = meg_plan_words(s->plan, s->arguments->pool);
    return meg_session_said(s, meg_context_foresee(s->graph, s->data, words, s->plan->world.ranks));
}

meg_status meg_picture_listen(meg_picture *p, const meg_listeners *others)
{
    meg_session *s = p->session;
    if (!s) return MEG_OK;
    MEG_TRY(s->error, meg_session_agree(s, meg_picture_foresee(s)));
    return meg_recording_begin(s->trainer, s->error, others, &p->recording);
}

void meg_picture_record(meg_picture *p, int64_t first, int64_t steps)
{
    if (p->recording) meg_recording_span(p->recording, first, steps);
}

void meg_picture_step(meg_picture *p, const meg_progress *progress)
{
    if (p->recording) meg_recording_step(p->recording, progress);
}

/* Of each actor; NULL: there is one. */
static const char *const *stages_of(const meg_session *s)
{
    const meg_foresight *f = s->ctx->foresight;
    if (s->plan->options.stages < 2 || !s->needs) return NULL;
    const char **stage = meg_pool_alloc(s->arguments->pool,
                                        (size_t)f->whole.actors * sizeof *stage);
    for (int i = 0; i < f->whole.actors; i++)
        stage[i] = s->needs[f->whole.actor[i].rank].stages;
    return stage;
}

/* ---- the page ---- */

static void add_fact(meg_page *p, const char *name, const char *value)
{
    if (*value && p->facts < MEG_PAGE_FACTS) p->fact[p->facts++] = (meg_page_fact){name, value};
}

static void add_facts(const meg_session *s, meg_page *page)
{
    meg_pool *pool = s->arguments->pool;
    const meg_foresight *f = s->ctx->foresight;
    const meg_plan *p = s->plan;
    int ranks = p->world.ranks;
    const char *chosen = f->searched ? f->search.list[0].words : "";
    if (f->searched && !*chosen) chosen = "none besides those given";
    add_fact(page, "network",
             meg_pool_text(pool, "%s, %" PRId64 " parameters", s->graph->name,
                           meg_graph_parameters(s->graph)));
    add_fact(page, "step",
             meg_pool_text(pool, "batch %" PRId64 " in %" PRId64 " micro-batch%s, %s",
                           p->options.batch, p->options.micro, p->options.micro == 1 ? "" : "es",
                           p->optimizer->name));
    add_fact(page, "ranks",
             f->whole.actors < ranks
                 ? meg_pool_text(pool, "%d, of %d kinds", ranks, f->whole.actors)
                 : meg_pool_text(pool, "%d", ranks));
    add_fact(page, "words given", s->arguments->text[MEG_TO_PLAN]);
    add_fact(page, "words chosen", chosen);
    add_fact(page, "data", p->data ? p->data : "");
    add_fact(page, "device",
             f->described ? ""
                          : meg_pool_text(pool, "%s, %d thread%s a rank", s->ctx->options.device,
                                          meg_device_threads(s->ctx->device),
                                          meg_device_threads(s->ctx->device) == 1 ? "" : "s"));
}

static meg_status write_page(const meg_picture *p, const meg_recorded *recorded, double seconds)
{
    const meg_session *s = p->session;
    int ranks = s->plan->world.ranks;
    meg_page page = {.graph = s->graph,
                     .foresight = s->ctx->foresight,
                     .stages = stages_of(s),
                     .predicted = s->ctx->foresight->replay.seconds,
                     .measured = seconds,
                     .batch = s->plan->options.batch,
                     .recorded = recorded};
    page.title = meg_pool_text(s->arguments->pool, "%s on %d rank%s", s->graph->name, ranks,
                               ranks == 1 ? "" : "s");
    add_facts(s, &page);
    return meg_page_write(&page, s->error, p->path);
}

meg_status meg_picture_end(meg_picture *p, double seconds)
{
    meg_session *s = p->session;
    meg_recorded recorded = {0};
    meg_status status = MEG_OK;
    if (!s) return MEG_OK;
    if (p->recording) MEG_TRY(s->error, meg_recording_end(p->recording, s->error, &recorded));
    if (meg_session_speaks(s)) status = meg_picture_foresee(s);
    if (status == MEG_OK && meg_session_speaks(s))
        status = write_page(p, p->recording ? &recorded : NULL, seconds);
    if (recorded.text) fclose(recorded.text);
    return meg_session_agree(s, status);
}

void meg_picture_drop(meg_picture *p)
{
    meg_recording_free(p->recording);
    *p = (meg_picture){0};
}

const char *meg_picture_path(const meg_session *s)
{
    const meg_foresight *f = s->ctx->foresight;
    if (!f || f->whole.ranks == 1) return "";
    return meg_path_line(f, s->arguments->pool, stages_of(s));
}
