/* What commands say of all ranks: see ranks.h. Real ranks tell each other what they need; of imaginary
 * ones, one of each class is planned.
 */
#include "cli/ranks.h"

#include "base/clock.h"
#include "machine/memory.h"
#include "plan/proof.h"
#include "train/advice.h"
#include "train/forecast.h"
#include "train/outlook/remedy.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum {
    LINES = 64 /* of the table; with more ranks only those that need most and least */
};

static meg_need *room(const meg_session *s, int ranks)
{
    return meg_pool_alloc(s->arguments->pool, (size_t)ranks * sizeof(meg_need));
}

/* What the other ranks of a class need, its last one needs; but each has its replica. */
static void share_needs(const meg_classes *c, const meg_plan *p, meg_need needs[])
{
    for (int r = 0; r < c->ranks; r++) {
        needs[r] = needs[c->last[c->of[r]]];
        needs[r].replica = r / p->each;
    }
}

/* One rank of each class is planned, from the last rank to the first, which stays. */
static meg_status plan_classes(meg_session *s, const meg_classes *c, meg_proof *proof,
                               meg_need needs[])
{
    static const char clear[] = "\r\033[K";
    meg_status status = MEG_OK;
    bool live = isatty(STDERR_FILENO); /* a line tells how far it is, and goes at the end */
    double drawn = meg_clock();
    int done = 0;
    for (int r = c->ranks - 1; r >= 0 && status == MEG_OK; r--) {
        if (c->last[c->of[r]] != r && r > 0) continue;
        if (r < c->ranks - 1) status = meg_session_plan_turn(s, r);
        if (status == MEG_OK) {
            needs[r] = meg_need_of(s->plan);
            meg_proof_add(proof, s->plan);
        }
        done++;
        if (!live || meg_clock() - drawn < 1) continue;
        fprintf(stderr, "%splanned %d of %d classes of ranks", clear, done, c->count);
        drawn = meg_clock();
    }
    if (live) fputs(clear, stderr);
    return status;
}

meg_status meg_ranks_imagine(meg_session *s, int ranks)
{
    meg_need *needs = room(s, ranks);
    MEG_TRY(s->error, meg_session_plan_for(s, &(meg_world){ranks - 1, ranks}));
    meg_classes *c = meg_classes_new(s->plan);
    meg_proof *proof = meg_proof_new(c);
    meg_status status = plan_classes(s, c, proof, needs);
    if (status == MEG_OK) status = meg_proof_check(proof, s->error, s->plan);
    if (status == MEG_OK) {
        share_needs(c, s->plan, needs);
        s->needs = needs;
        s->classes = c->count;
    }
    meg_proof_free(proof);
    meg_classes_free(c);
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
    if (s->classes)
        fprintf(out, "  proven: all messages match, nobody waits for ever (%d class%s of ranks)\n",
                s->classes, s->classes == 1 ? "" : "es");
}

/* ---- does it fit? ---- */

/* Real ranks are where they are; imaginary ones may be spread over machines like this one. */
static int64_t need_here(const meg_session *s)
{
    const int *node = meg_comm_node(s->ctx->comm);
    bool real = s->plan->world.ranks == meg_ranks(s->ctx);
    int64_t sum = 0, most = 0;
    for (int r = 0; r < s->plan->world.ranks; r++) {
        if (real && node[r] == node[0]) sum += s->needs[r].arena;
        if (s->needs[r].arena > most) most = s->needs[r].arena;
    }
    return real ? sum : most;
}

int meg_ranks_machines(const meg_session *s, int64_t bytes)
{
    int ranks = s->plan->world.ranks;
    int64_t *need = meg_pool_alloc(s->arguments->pool, (size_t)ranks * sizeof *need);
    for (int r = 0; r < ranks; r++)
        need[r] = s->needs[r].arena;
    return meg_machines_for(need, ranks, bytes, NULL);
}

/* --word value, as a command line has it. */
static void print_words(const meg_advice *a, bool imaginary, FILE *out)
{
    char word[MEG_TEXT];
    meg_excerpt value;
    if (a->ranks > 1) fprintf(out, " %s %d", imaginary ? "--ranks" : "-np", a->ranks);
    for (const char *at = a->words; meg_options_next(&at, word, &value) > 0;)
        fprintf(out, " --%s %.*s", word, value.length, value.at);
}

static void print_advice(const meg_session *s, int64_t bytes, bool helped, FILE *out)
{
    char text[32];
    meg_advice list[MEG_ADVICES];
    bool imaginary = !(s->arguments->command->takes & MEG_TAKES_RANKS);
    const char *words = meg_plan_words(s->plan, s->arguments->pool);
    int count = meg_context_ways(s->graph, s->data,
                                 &(meg_too_large){words, s->plan->world.ranks, bytes}, list);
    if (count == 0 && !helped)
        fprintf(out, "  nothing that was tried fits: use a smaller batch, image or network\n");
    for (int i = 0; i < count; i++) {
        const meg_advice *a = &list[i];
        meg_print_bytes(a->bytes, text);
        fputs("  fits:", out);
        print_words(a, imaginary, out);
        fprintf(out, "   %s", text);
        if (a->machines > 1) fprintf(out, " on each of %d such machines", a->machines);
        if (a->norm) fprintf(out, "; batch norm is over %" PRId64 " samples then", a->norm);
        fputc('\n', out);
    }
}

/* What a search found where nothing fits; it begins as the end of a message. Has it found something that would? */
static bool print_nearest(const meg_session *s, FILE *out)
{
    const char *nearest = s->forecast.nearest;
    if (!nearest || !*nearest) return false;
    fprintf(out, "  %s\n", nearest + strspn(nearest, "; "));
    return strstr(nearest, MEG_REMEDY) != NULL;
}

/* Of a machine that was described: what its ranks have, not what there is here. */
static void print_fit_there(const meg_session *s, FILE *out)
{
    meg_machine m;
    meg_error ignored;
    char has[32];
    int ranks = s->plan->world.ranks, worst = -1;
    int64_t most = INT64_MIN;
    if (meg_context_machine(s->ctx, &ignored, ranks, &m) != MEG_OK || m.memory == 0) return;
    for (int r = 0; r < ranks; r++) {
        int64_t missing = s->needs[r].arena - meg_machine_memory(&m, r / m.ranks);
        if (missing > most) most = missing, worst = r;
    }
    meg_print_bytes(meg_machine_memory(&m, worst / m.ranks), has);
    if (most > 0)
        fprintf(out, "  rank %d of the described machine has %s: %" PRId64 " bytes are missing\n",
                worst, has, most);
    else
        fprintf(out,
                "  the described machine holds it: rank %d, which has least to spare, has %s\n",
                worst, has);
    if (most > 0) print_nearest(s, out);
}

/* What is larger than the machine is refused by the trainer, with the same advice. */
static void print_fit(const meg_session *s, FILE *out)
{
    if (*s->ctx->options.machine && !(s->arguments->command->takes & MEG_TAKES_TRAINER)) {
        print_fit_there(s, out);
        return;
    }
    meg_memory m = meg_memory_look("");
    int64_t need = need_here(s);
    bool refused = s->arguments->command->takes & MEG_TAKES_TRAINER && need > m.most;
    int ranks = s->plan->world.ranks;
    int machines = ranks > meg_ranks(s->ctx) ? meg_ranks_machines(s, m.most) : 1;
    char text[2][32];
    meg_print_bytes(m.most, text[0]);
    meg_print_bytes(m.free, text[1]);
    if (machines > 1)
        fprintf(out, "  %d machines like this one (%s) hold these ranks\n", machines, text[0]);
    if (need <= m.free || refused) return;
    if (need > m.most)
        fprintf(out, "  this machine has %s: %" PRId64 " bytes are missing\n", text[0],
                need - m.most);
    else
        fprintf(out, "  this machine has %s, but only %s are free now: others must end first\n",
                text[0], text[1]);
    bool helped = need > m.most && print_nearest(s, out);
    print_advice(s, need > m.most ? m.most : m.free, helped, out);
}

void meg_ranks_summary(const meg_session *s, FILE *out)
{
    if (!meg_session_speaks(s)) return;
    meg_plan_summary(s->plan, out);
    if (s->plan->world.ranks > 1) print_table(s, out);
    print_fit(s, out);
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
