/* What commands say of all ranks: see ranks.h. Real ranks tell each other what they need; imaginary
 * ones are planned one after the other.
 */
#include "cli/ranks.h"

#include "base/clock.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum {
    LINES = 64 /* of the table; with more ranks only those that need most and least */
};

struct meg_need { /* of a rank */
    int replica;
    char stages[16]; /* "0,4" */
    int64_t held, step, frames, arena;
    double seconds;
};

/* Those that the rank has, in whichever direction; of many, as many as there is room for. */
static void list_stages(const meg_plan *p, char *out, size_t size)
{
    const meg_entry *t = &p->entry[MEG_ENTRY_TRAIN];
    size_t used = 0;
    for (int s = 0; s < p->options.stages; s++) {
        bool has = false;
        for (int i = 0; i < t->stations; i++)
            has = has || t->station[i].stage == s;
        if (has && used + sizeof ",255.." > size) {
            snprintf(out + used, size - used, "..");
            return;
        }
        if (has) used += (size_t)snprintf(out + used, size - used, "%s%d", used ? "," : "", s);
    }
}

static meg_need need_of(const meg_plan *p)
{
    meg_need n = {.replica = p->replica,
                  .held = p->bytes[MEG_HELD],
                  .step = p->bytes[MEG_STEP],
                  .frames = p->bytes[MEG_FRAME] + p->bytes[MEG_TEMPORARY],
                  .arena = p->arena,
                  .seconds = p->seconds};
    list_stages(p, n.stages, sizeof n.stages);
    return n;
}

static meg_need *room(const meg_session *s, int ranks)
{
    return meg_pool_alloc(s->arguments->pool, (size_t)ranks * sizeof(meg_need));
}

meg_status meg_ranks_know(meg_session *s)
{
    meg_need mine = need_of(s->plan);
    s->needs = room(s, s->plan->world.ranks);
    return meg_comm_gather(s->ctx->comm, s->error, &mine, sizeof mine, s->needs);
}

int64_t meg_ranks_bytes(const meg_session *s)
{
    int64_t most = meg_plan_bytes(s->plan);
    for (int r = 0; s->needs && r < s->plan->world.ranks; r++)
        if (s->needs[r].arena > most) most = s->needs[r].arena;
    return most;
}

double meg_ranks_seconds(const meg_session *s)
{
    double most = meg_plan_seconds(s->plan);
    for (int r = 0; s->needs && r < s->plan->world.ranks; r++)
        if (s->needs[r].seconds > most) most = s->needs[r].seconds;
    return most;
}

/* Hundreds of ranks take minutes: on a terminal a line tells how far it is, and goes at the end. */
meg_status meg_ranks_imagine(meg_session *s, int ranks)
{
    static const char clear[] = "\r\033[K";
    meg_need *needs = room(s, ranks);
    meg_status status = MEG_OK;
    bool live = isatty(STDERR_FILENO);
    double drawn = meg_clock();
    for (int r = ranks - 1; r >= 0 && status == MEG_OK; r--) {
        status = meg_session_plan_for(s, &(meg_world){r, ranks});
        if (status == MEG_OK) needs[r] = need_of(s->plan);
        if (!live || meg_clock() - drawn < 1) continue;
        fprintf(stderr, "%splanned %d of %d ranks", clear, ranks - r, ranks);
        drawn = meg_clock();
    }
    if (live) fputs(clear, stderr);
    if (status == MEG_OK) s->needs = needs;
    return status;
}

static void print_rank(FILE *out, int rank, const meg_need *n)
{
    char text[32];
    meg_print_bytes(n->arena, text);
    fprintf(out,
            "  %5d  %7d  %7s  %14" PRId64 "  %12" PRId64 "  %14" PRId64 "  %14" PRId64 "  %s\n",
            rank, n->replica, n->stages, n->held, n->step, n->frames, n->arena, text);
}

static void print_table(const meg_session *s, FILE *out)
{
    int ranks = s->plan->world.ranks, most = 0, least = 0;
    fprintf(out, "  %5s  %7s  %7s  %14s  %12s  %14s  %14s\n", "rank", "replica", "stage",
            "weights etc.", "labels etc.", "activations", "arena (bytes)");
    for (int r = 0; r < ranks; r++) {
        if (s->needs[r].arena > s->needs[most].arena) most = r;
        if (s->needs[r].arena < s->needs[least].arena) least = r;
        if (ranks <= LINES) print_rank(out, r, &s->needs[r]);
    }
    if (ranks > LINES) {
        print_rank(out, most, &s->needs[most]);
        if (least != most) print_rank(out, least, &s->needs[least]);
    }
    if (s->needs[most].arena == s->needs[least].arena) fprintf(out, "  all ranks need the same\n");
    else fprintf(out, "  rank %d needs most, rank %d least\n", most, least);
}

void meg_ranks_summary(const meg_session *s, FILE *out)
{
    if (!meg_session_speaks(s)) return;
    meg_plan_summary(s->plan, out);
    if (s->plan->world.ranks > 1) print_table(s, out);
    fflush(out);
}

meg_status meg_ranks_mean(meg_session *s, double *value)
{
    int ranks = meg_ranks(s->ctx);
    double *all = meg_pool_alloc(s->arguments->pool, (size_t)ranks * sizeof *all), sum = 0;
    MEG_TRY(s->error, meg_comm_gather(s->ctx->comm, s->error, value, sizeof *value, all));
    for (int r = 0; r < ranks; r++)
        sum += all[r];
    *value = sum / ranks;
    return MEG_OK;
}
