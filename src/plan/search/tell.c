/* What a search found, for people: the choice and its reasons in a few lines, or every alternative. */
#include "plan/search/search.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    KINDS = 8 /* 1: has stages, 2: cuts pixels, 4: cuts channels */
};

int meg_search_kind(const char *words)
{
    char *mesh = strstr(words, "mesh=");
    int kind = strstr(words, "stages=") ? 1 : 0;
    if (!mesh) return kind;
    size_t length = strcspn(mesh + 5, " ");
    for (size_t i = 0; i < length; i++)
        kind |= mesh[5 + i] == 'c' ? 4 : strchr("dhwx", mesh[5 + i]) ? 2 : 0;
    return kind;
}

static const char *name_of(const meg_candidate *c)
{
    return *c->words ? c->words : "(replicas alone: no more words)";
}

/* What the goal is about: the less, the better. */
static double cost_of(const meg_search *s, const meg_candidate *c)
{
    return s->goal == MEG_GOAL_MEMORY ? (double)c->bytes : c->seconds;
}

/* Even shares of one rank's kernels are no proof: smaller kernels may be the quicker ones. */
static void print_best(const meg_search *s, const meg_candidate *c, FILE *out)
{
    double gap = 100 * (c->seconds / s->bound - 1);
    if (s->goal == MEG_GOAL_MEMORY) fputs("least memory of what was replayed (within 3 %)", out);
    else if (gap < 0.5) fprintf(out, "at best about %.4f s: that is reached", s->bound);
    else fprintf(out, "at best about %.4f s: within %.0f %%", s->bound, gap);
}

/* By how much it is worse than the best, or why it is not chosen though it is better. */
static void print_worse(const meg_search *s, const meg_candidate *c, FILE *out)
{
    const meg_candidate *best = &s->list[0];
    bool memory = s->goal == MEG_GOAL_MEMORY;
    double times = cost_of(s, c) / cost_of(s, best);
    int words = c->count - best->count;
    if (times < 1)
        fprintf(out, "%.1f %% %s, but %d word%s more", 100 * (1 - times),
                memory ? "less memory" : "quicker", words, words == 1 ? "" : "s");
    else if (memory) fprintf(out, "%.0f %% more memory", 100 * (times - 1));
    else
        fprintf(out, "%.0f %% slower: kernels %.4f, messages %.4f, waits %.4f", 100 * (times - 1),
                c->times.compute, c->times.exposed, c->times.bubble);
}

void meg_search_reason(const meg_search *s, const meg_candidate *c, const meg_search_ask *ask,
                       FILE *out)
{
    char bytes[32];
    switch (c->verdict) {
    case MEG_BEST:
        print_best(s, c, out);
        break;
    case MEG_SLOWER:
        print_worse(s, c, out);
        break;
    case MEG_BEYOND:
        fprintf(out, "not replayed: at best about %.4f s", c->bound);
        break;
    case MEG_TOO_LARGE:
        meg_print_bytes(c->missing, bytes);
        if (*c->why) fprintf(out, "does not fit: about %s are missing", bytes);
        else fprintf(out, "does not fit: %s (%" PRId64 " bytes) are missing", bytes, c->missing);
        if (ask->limit && !*c->why) fprintf(out, " to rank %d", c->tightest);
        break;
    case MEG_ILLEGAL:
        fprintf(out, "impossible: %s", c->why);
        break;
    case MEG_UNSEEN:
        fputs("not replayed, the work for a search was done", out);
        if (s->goal != MEG_GOAL_MEMORY) fprintf(out, ": at best about %.4f s", c->bound);
        break;
    }
}

static void print_one(const meg_search *s, const meg_candidate *c, const meg_search_ask *ask,
                      const char *what, FILE *out)
{
    char seconds[32] = "-", bytes[32] = "-";
    if (c->seconds > 0) snprintf(seconds, sizeof seconds, "%.4f s", c->seconds);
    if (c->bytes > 0) meg_print_bytes(c->bytes, bytes);
    fprintf(out, "  %-8s %-44s %12s %11s  ", what, name_of(c), seconds, bytes);
    meg_search_reason(s, c, ask, out);
    fputc('\n', out);
}

static void print_head(const meg_search *s, const meg_search_ask *ask, FILE *out)
{
    char memory[32] = "any", least[40] = "";
    if (ask->memory) meg_print_bytes(ask->memory, memory);
    int64_t smallest = meg_search_limit(ask);
    if (smallest < ask->memory) {
        meg_print_bytes(smallest, least);
        if (strcmp(least, memory) == 0) *least = '\0';
        else strcat(least, " to ");
    }
    fprintf(out, "auto: %d plan%s for %d rank%s with %s%s of memory each, %d of them replayed\n",
            s->count, s->count == 1 ? "" : "s", ask->ranks, ask->ranks == 1 ? "" : "s", least,
            memory, s->looked);
}

/* What is not for the search to choose. */
static void print_others(const meg_search *s, const meg_search_ask *ask, FILE *out)
{
    for (int i = 0; i < s->count; i++)
        if (s->list[i].verdict == MEG_ILLEGAL && strstr(s->list[i].why, "would give"))
            print_one(s, &s->list[i], ask, "", out);
    if (s->fits && s->fewer)
        fprintf(out, "  %d rank%s would take %.4f s a step, which is %s\n", s->fewer,
                s->fewer == 1 ? "" : "s", s->fewer_seconds,
                ask->goal == MEG_GOAL_COST ? "cheaper"
                                           : "quicker: all are used, since they were asked for");
}

void meg_search_tell(const meg_search *s, const meg_search_ask *ask, FILE *out)
{
    bool told[KINDS] = {false};
    print_head(s, ask, out);
    for (int i = 0; i < s->count; i++) {
        const meg_candidate *c = &s->list[i];
        int kind = meg_search_kind(c->words);
        bool better = i == 1 && c->verdict == MEG_SLOWER && cost_of(s, c) < cost_of(s, s->list);
        if (c->verdict == MEG_ILLEGAL || (told[kind] && !better)) continue;
        told[kind] = true;
        print_one(s, c, ask, i == 0 ? (s->fits ? "chosen" : "nearest") : "", out);
    }
    print_others(s, ask, out);
}

void meg_search_table(const meg_search *s, const meg_search_ask *ask, FILE *out)
{
    static const char *const word[] = {"chosen", "slower", "bound", "large", "illegal", "unseen"};
    print_head(s, ask, out);
    for (int i = 0; i < s->count; i++)
        print_one(s, &s->list[i], ask, word[s->list[i].verdict], out);
}
