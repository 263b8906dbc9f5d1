/* Advice: see advice.h. */
#include "plan/advice.h"

#include <inttypes.h>
#include <string.h>

enum {
    RANKS_MOST = 32, /* of a plan that is advised */
    TRIES = 27,      /* plans that are tried */
    PARTS = 128,     /* ranks of all of them: seconds */
    MICROS = 16,
    DOUBLINGS = 2 /* numbers of ranks, each twice the one before, for one kind of advice */
};

typedef struct search {
    const meg_advice_ask *ask;
    meg_plan_options options; /* of the plan that does not fit */
    bool normalises;
    meg_pool *pool;
    int64_t need, limit; /* bytes of a rank: as planned, and at most */
    int tries, parts, kind;
    const meg_box *sample; /* of the network's input */
} search;

/* ---- trying a plan ---- */

/* The words of the plan with others in their place. */
static const char *join(const search *x, const char *words)
{
    char word[MEG_TEXT];
    meg_excerpt value;
    char *base = meg_pool_text(x->pool, "%s", x->ask->options ? x->ask->options : "");
    for (const char *at = words; meg_options_next(&at, word, &value) > 0;)
        meg_options_drop(base, word);
    return meg_pool_text(x->pool, "%s %s", base, words);
}

/* What a rank would need; 0: there is no such plan. */
static int64_t need_of(search *x, const char *options, int rank, int ranks)
{
    const meg_advice_ask *q = x->ask;
    meg_plan *p = NULL;
    meg_error e = {0};
    meg_world world = {rank, ranks};
    x->parts++;
    meg_plan_make_for(q->graph, &e, q->profile, &world, options, q->samples, &p);
    int64_t bytes = p ? p->arena : 0;
    meg_plan_destroy(p);
    return bytes;
}

int meg_machines_for(const int64_t need[], int ranks, int64_t bytes, int64_t *most)
{
    for (int machines = 1; machines <= ranks; machines++) {
        int each = ranks / machines;
        int64_t fullest = 0;
        for (int m = 0; m < machines && ranks % machines == 0; m++) {
            int64_t sum = 0;
            for (int r = m * each; r < (m + 1) * each; r++)
                sum += need[r];
            if (sum > fullest) fullest = sum;
        }
        if (ranks % machines || fullest > bytes) continue;
        if (most) *most = fullest;
        return machines;
    }
    return 0;
}

/* Every rank is planned: stages and parts of an image differ. The first that does not fit ends it. */
static bool fits(search *x, const char *words, int ranks, meg_advice *out)
{
    const meg_advice_ask *q = x->ask;
    int64_t need[RANKS_MOST], most = 0;
    if (ranks > RANKS_MOST || x->tries >= TRIES) return false;
    x->tries++;
    const char *options = join(x, words);
    for (int r = 0; r < ranks; r++) {
        if (x->parts >= PARTS || (q->enough && q->enough(q->context, x->kind))) return false;
        need[r] = need_of(x, options, r, ranks);
        if (need[r] == 0 || need[r] > x->limit) return false;
        if (need[r] > most) most = need[r];
    }
    *out = (meg_advice){.ranks = ranks, .bytes = most};
    snprintf(out->words, sizeof out->words, "%s", words);
    if (q->machine) out->machines = meg_machines_for(need, ranks, x->limit, &out->bytes);
    return true;
}

/* ---- kinds of advice ---- */

typedef bool kind_fn(search *x, meg_advice *out);

/* Does a plan with so many micro-batches keep its normalisation groups whole? */
static bool divides(const search *x, int64_t micro)
{
    const meg_plan_options *o = &x->options;
    int64_t each = o->batch / micro;
    bool whole = !x->normalises || (o->norm ? each % o->norm == 0 : each > 1);
    return o->batch % micro == 0 && whole;
}

/* The words of so many micro-batches: batch norm must be told its groups. */
static int64_t micro_words(const search *x, int64_t micro, char *out, size_t size)
{
    int64_t norm = x->normalises && !x->options.norm ? x->options.batch / micro : 0;
    size_t used = (size_t)snprintf(out, size, "micro=%" PRId64, micro);
    if (norm) snprintf(out + used, size - used, " norm=%" PRId64, norm);
    return norm;
}

/* Twice as many, or the next that divides, and so on. */
static int list_micros(const search *x, int64_t out[MICROS])
{
    const meg_plan_options *o = &x->options;
    int count = 0;
    for (int64_t m = 2 * o->micro; m <= o->batch && count < MICROS; m++) {
        if (!divides(x, m)) continue;
        out[count++] = m;
        m = 2 * m - 1;
    }
    return count;
}

/* On the machines that there are. */
static bool fits_micro(search *x, int64_t micro, meg_advice *out)
{
    char words[MEG_TEXT];
    meg_advice found;
    int64_t norm = micro_words(x, micro, words, sizeof words);
    if (!fits(x, words, x->ask->ranks, &found)) return false;
    if (found.machines > 1 && found.machines > x->ask->machines) return false;
    *out = found;
    out->norm = norm;
    return true;
}

/* The fewest that fit. The most come first: where they do not fit, none does. */
static bool more_micro(search *x, meg_advice *out)
{
    int64_t micro[MICROS];
    int low = 0, high = list_micros(x, micro) - 1;
    if (high < 0 || !fits_micro(x, micro[high], out)) return false;
    while (low < high) {
        int middle = (low + high) / 2;
        if (fits_micro(x, micro[middle], out)) high = middle;
        else low = middle + 1;
    }
    return true;
}

/* On one machine, or as many as there are: blocks that are run again. */
static bool run_again(search *x, meg_advice *out)
{
    meg_advice found;
    if (x->options.recompute == MEG_RECOMPUTE_BLOCKS) return false;
    if (!fits(x, "recompute=segments", x->ask->ranks, &found)) return false;
    if (found.machines > 1 && found.machines > x->ask->machines) return false;
    *out = found;
    return true;
}

static bool more_machines(search *x, meg_advice *out)
{
    return x->ask->machine && x->ask->ranks > 1 && fits(x, "", x->ask->ranks, out);
}

/* The fewest ranks, of 2, 4, 8, .., whose memory together is not too small. */
static int first_ranks(const search *x)
{
    int ranks = 2;
    while (ranks < x->ask->ranks ||
           (ranks < RANKS_MOST && (double)x->limit * ranks < (double)x->need * x->ask->ranks))
        ranks *= 2;
    return ranks;
}

/* With so many ranks, as they are and with cut weights. */
static bool with_zero(search *x, const char *words, int ranks, meg_advice *out)
{
    char more[MEG_TEXT];
    bool same = ranks == x->ask->ranks && !*words; /* that is what does not fit */
    if (!same && fits(x, words, ranks, out)) return true;
    if (x->options.zero == MEG_ZERO_ALL) return false;
    snprintf(more, sizeof more, "%s%szero=3", words, *words ? " " : "");
    return fits(x, more, ranks, out);
}

static bool more_ranks(search *x, meg_advice *out)
{
    int ranks = first_ranks(x);
    for (int i = 0; i < DOUBLINGS; i++, ranks *= 2)
        if (ranks <= x->options.batch / x->options.micro && with_zero(x, "", ranks, out))
            return true;
    return false;
}

/* Without normalisation over the batch, micro-batches keep all stages at work. Blocks that are too
 * large are cut between their layers. */
static bool more_stages(search *x, meg_advice *out)
{
    static const char *const level[] = {"", " level=layer"};
    const meg_plan_options *o = &x->options;
    char words[MEG_TEXT], micro[32] = "";
    int ranks = first_ranks(x);
    for (int i = 0; i < 2 * DOUBLINGS; i++, ranks *= i % 2 ? 1 : 2) {
        bool more = o->micro < ranks && divides(x, ranks) && (!x->normalises || o->norm);
        if (more) snprintf(micro, sizeof micro, " micro=%d", ranks);
        snprintf(words, sizeof words, "stages=%d balance=memory%s%s", ranks, level[i % 2],
                 more ? micro : "");
        if (ranks > o->stages && fits(x, words, ranks, out)) return true;
    }
    return false;
}

/* The longest axis of pixels in two, again and again: "h4w2". False: there are none. */
static bool mesh_words(const search *x, int ranks, char *out, size_t size)
{
    static const char letter[MEG_AXES] = {'n', 'c', 'd', 'h', 'w'};
    int64_t parts[MEG_AXES] = {1, 1, 1, 1, 1};
    for (int left = ranks; left > 1; left /= 2) {
        int best = -1;
        double longest = 1;
        for (int a = MEG_D; a < MEG_AXES; a++) {
            double length = (double)x->sample->hi[a] / (double)parts[a];
            if (length > longest) best = a, longest = length;
        }
        if (best < 0) return false;
        parts[best] *= 2;
    }
    snprintf(out, size, "mesh=");
    for (int a = MEG_D; a < MEG_AXES; a++)
        if (parts[a] > 1)
            snprintf(out + strlen(out), size - strlen(out), "%c%" PRId64, letter[a], parts[a]);
    return true;
}

/* Where single layers are too large, their channels are cut. */
static bool finer_mesh(search *x, meg_advice *out)
{
    char words[MEG_TEXT];
    int first = first_ranks(x);
    for (int i = 0, ranks = first; i < DOUBLINGS; i++, ranks *= 2)
        if (mesh_words(x, ranks, words, sizeof words) && with_zero(x, words, ranks, out))
            return true;
    for (int i = 0, ranks = first; i < DOUBLINGS; i++, ranks *= 2) {
        snprintf(words, sizeof words, "mesh=c%d", ranks);
        if (fits(x, words, ranks, out)) return true;
    }
    return false;
}

static kind_fn *const KINDS[MEG_ADVICES] = {more_micro, run_again,   more_machines,
                                            more_ranks, more_stages, finer_mesh};

/* ---- asking ---- */

/* The plan that does not fit: its options, and what its first and last ranks need. */
static bool look(search *x)
{
    const meg_advice_ask *q = x->ask;
    const meg_graph *g = q->graph;
    const char *options = join(x, "budget=0");
    for (int i = 0; i < 2; i++) {
        meg_plan *p = NULL;
        meg_error e = {0};
        meg_world world = {i ? q->ranks - 1 : 0, q->ranks};
        meg_plan_make_for(g, &e, q->profile, &world, options, q->samples, &p);
        if (!p) return false;
        if (p->arena > x->need) x->need = p->arena;
        x->options = p->options;
        x->options.assign = x->options.mesh = ""; /* they are the plan's */
        meg_plan_destroy(p);
    }
    for (int i = 0; i < g->values && !x->sample; i++)
        if (g->value[i].kind == MEG_INPUT) x->sample = &g->value[i].shape;
    x->normalises = meg_graph_normalises(g);
    return x->sample != NULL;
}

static int64_t budget_of(const meg_advice_ask *q)
{
    meg_given p;
    meg_error e;
    int64_t bytes = 0;
    if (q->options && meg_given_find(q->options, "budget", &p) && p.value.length < MEG_TEXT) {
        char value[MEG_TEXT];
        snprintf(value, sizeof value, "%.*s", p.value.length, p.value.at ? p.value.at : "");
        meg_parse_bytes(&e, "budget", value, &bytes);
    }
    return bytes;
}

int meg_advise(const meg_advice_ask *ask, meg_advice out[MEG_ADVICES])
{
    search x = {.ask = ask, .limit = ask->machine ? ask->machine : budget_of(ask)};
    int count = 0;
    if (x.limit <= 0) return 0;
    x.pool = meg_pool_new();
    bool known = look(&x);
    for (x.kind = 0; known && x.kind < MEG_ADVICES; x.kind++)
        if (KINDS[x.kind](&x, &out[count])) count++;
    meg_pool_free(x.pool);
    return count;
}

/* ---- as text ---- */

static size_t write_one(const meg_advice *a, char *out, size_t size)
{
    char bytes[32], place[96] = "", norm[64] = "";
    meg_print_bytes(a->bytes, bytes);
    if (a->machines > 1)
        snprintf(place, sizeof place, " on %d ranks on %d such machines", a->ranks, a->machines);
    else if (a->ranks > 1) snprintf(place, sizeof place, " on %d ranks", a->ranks);
    if (a->norm)
        snprintf(norm, sizeof norm, "; batch norm is over %" PRId64 " samples then", a->norm);
    /* Of a budget the bytes are a rank's, else a machine's, on which all of its ranks are. */
    const char *whose = a->machines == 1 && a->ranks > 1 ? " in all" : a->ranks > 1 ? " each" : "";
    int used = snprintf(out, size, "%s%s (%s%s%s)", *a->words ? a->words : "the same words", place,
                        bytes, whose, norm);
    return (size_t)used < size ? (size_t)used : size - 1;
}

void meg_advice_text(const meg_advice list[], int count, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size,
                                   count ? "; what fits: "
                                         : "; nothing that was tried "
                                           "fits: use a smaller batch, "
                                           "image or network");
    for (int i = 0; i < count && used + 3 < size; i++) {
        if (i) used += (size_t)snprintf(out + used, size - used, ", or ");
        used += write_one(&list[i], out + used, size - used);
    }
}
