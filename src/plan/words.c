/* The words of a plan: their table, and how a text of them, and of the optimizer's, is read. */
#include "base/nearest.h"
#include "base/registry.h"
#include "plan/plan.h"

#include <inttypes.h>
#include <string.h>

#define AT(field) offsetof(meg_plan_options, field)

const meg_param meg_plan_params[] = {
    {"batch", MEG_PARAM_INT, AT(batch), "32", "samples per step", NULL, 1, 1 << 30},
    {"micro", MEG_PARAM_INT, AT(micro), "1", "micro-batches per step; must divide the batch", NULL,
     1, 1 << 20},
    {"norm", MEG_PARAM_INT, AT(norm), "0", "samples per normalisation group (0: the whole batch)",
     NULL, 0, 1 << 30},
    {"budget", MEG_PARAM_BYTES, AT(budget), "0", "memory of the arena, e.g. 4GiB (0: no limit)",
     NULL, 0, 0},
    {"replicas", MEG_PARAM_INT, AT(replicas), "0",
     "copies of the network that share the batch (0: as many as there are ranks for)", NULL, 0,
     1 << 20},
    {"stages", MEG_PARAM_INT, AT(stages), "1", "parts of the network, one behind the other", NULL,
     1, MEG_STAGES},
    {"chunks", MEG_PARAM_INT, AT(chunks), "1", "stages of a rank (schedule=interleaved)", NULL, 1,
     MEG_STAGES},
    {"schedule", MEG_PARAM_TEXT, AT(schedule), "auto",
     "order of the stages' work: `megalith list schedules`", NULL, 0, 0},
    {"replications", MEG_PARAM_INT, AT(replications), "0",
     "schedule=master: groups of micro-batches (0: one each)", NULL, 0, 1 << 20},
    {"level", MEG_PARAM_CHOICE, AT(level), "block", "what stages are made of", "layer|block|module",
     0, 0},
    {"balance", MEG_PARAM_CHOICE, AT(balance), "compute", "what stages have alike",
     "compute|memory", 0, 0},
    {"assign", MEG_PARAM_STRING, AT(assign), "",
     "the first layer, block or module of each further stage: layer2,layer3", NULL, 0, 0},
    {"mesh", MEG_PARAM_STRING, AT(mesh), "1",
     "ranks that share each layer: 2x2 (h x w), c2, n2h2, h3:1; of each stage: 2x2,1,1; another "
     "from a "
     "group on: 2x2/fc:n4",
     NULL, 0, 0},
    {"channels", MEG_PARAM_CHOICE, AT(channels), "auto",
     "what a mesh with c cuts: filters, or sums over input channels", "auto|filter|channel", 0, 0},
    {"wide", MEG_PARAM_INT, AT(wide), "1",
     "layers whose halos of pixels come in one exchange; a rank makes those in between itself",
     NULL, 1, 64},
    {"zero", MEG_PARAM_CHOICE, AT(zero), "0",
     "what each of the ranks that share a weight holds a part of: 1: optimizer states; 3: weights "
     "and gradients, too (as 1 where several stages or segments share a weight, or a schedule has "
     "two "
     "directions)",
     "0|1|3", 0, 0},
    {"allreduce", MEG_PARAM_TEXT, AT(allreduce), "ring",
     "how gradients are summed over ranks: `megalith list allreduce`", NULL, 0, 0},
    {"bucket", MEG_PARAM_BYTES, AT(bucket), "16MiB",
     "gradients that are summed at once; weights that are fetched ahead (zero=3)", NULL, 0, 0},
    {"recompute", MEG_PARAM_CHOICE, AT(recompute), "auto",
     "in backward: what is cheap is made again; nothing is; whole blocks are run again, as many as "
     "budget= asks for, without one for the least memory",
     "auto|none|segments", 0, 0},
    {"feed", MEG_PARAM_CHOICE, AT(feed), "each",
     "who reads data: each rank what it needs; or the first rank of stage 0, for its replica (in "
     "each "
     "direction of the schedule), from which the others get it by messages",
     "each|reader", 0, 0},
    {"keep_grads", MEG_PARAM_BOOL, AT(keep_grads), "no", "keep gradients after the step", NULL, 0,
     0},
    {"input_grads", MEG_PARAM_BOOL, AT(input_grads), "no",
     "keep gradients by the inputs after the step: for what comes before the network", NULL, 0, 0},
    {"predict", MEG_PARAM_BOOL, AT(predict), "no", "evaluation keeps outputs: for predictions",
     NULL, 0, 0},
    {"goal", MEG_PARAM_CHOICE, AT(goal), "time",
     "what words that are not given are chosen for: the quickest step, the least memory, ranks x "
     "seconds; given: nothing is chosen",
     "time|memory|cost|given", 0, 0},
    {"phases", MEG_PARAM_BOOL, AT(phases), "no", "reducing operators as several kernels", NULL, 0,
     0},
    {"optimizer", MEG_PARAM_TEXT, AT(optimizer), "sgd",
     "sgd, adam, adamw or rmsprop, and their own words", NULL, 0, 0},
    {NULL, 0, 0, NULL, NULL, NULL, 0, 0}};

/* ---- options ---- */

static bool knows(const meg_param *table, const char *word, size_t length)
{
    for (; table->name; table++)
        if (strlen(table->name) == length && strncmp(table->name, word, length) == 0) return true;
    return false;
}

/* Of word=value; a value in quotes may hold blanks. */
static size_t pair_length(const char *text)
{
    size_t word = strcspn(text, "= \t\r\n"), length = strcspn(text, " \t\r\n");
    char quote = text[word] == '=' ? text[word + 1] : '\0';
    if (quote != '"' && quote != '\'') return length;
    const char *close = strchr(text + word + 2, quote);
    return close ? (size_t)(close - text) + 1 : strlen(text);
}

/* Words of the plan, or (`rest`) all others, which are the optimizer's. */
static char *pick(meg_pool *pool, const char *text, bool rest)
{
    char *out = meg_pool_alloc(pool, 2 * strlen(text) + 2),
         *to = out; /* a blank behind each pair */
    while (*text) {
        text += strspn(text, " \t\r\n");
        size_t length = pair_length(text);
        if (knows(meg_plan_params, text, strcspn(text, "= \t\r\n")) != rest) {
            memcpy(to, text, length);
            to[length] = ' ';
            to += length + 1;
        }
        text += length;
    }
    *to = '\0';
    return out;
}

static MEG_REGISTRY_NAME(optimizer_name, meg_optimizer_at)

    /* A word that this optimizer has not may be one of another. */
    static meg_status check_whose(const meg_plan *p, meg_error *e, const char *text)
{
    char word[MEG_TEXT];
    meg_excerpt value;
    while (meg_options_next(&text, word, &value) > 0)
        for (int i = 0; meg_optimizer_at(i); i++) {
            const meg_optimizer *o = meg_optimizer_at(i);
            if (meg_param_find(p->optimizer->params, word)) break;
            MEG_CHECK(
                e, !meg_param_find(o->params, word), MEG_EARG,
                "%s=%.*s is a word of optimizer=%s, but the optimizer is %s: use optimizer=%s, "
                "or leave %s out",
                word, value.length, value.at, o->name, p->optimizer->name, o->name, word);
        }
    return MEG_OK;
}

meg_status meg_plan_options_read(meg_pool *pool, meg_error *e, const char *text,
                                 meg_plan_options *out)
{
    const meg_form form = {meg_plan_params, "plan", pool};
    return meg_options_fill(e, &form, pick(pool, text ? text : "", false), out);
}

meg_status meg_plan_parse(meg_plan *p, meg_error *e, const char *text)
{
    if (!text) text = "";
    const char *rest = pick(p->pool, text, true);
    MEG_TRY(e, meg_plan_options_read(p->pool, e, text, &p->options));
    p->words = meg_pool_text(p->pool, "%s", text);
    p->chosen_for = MEG_GOAL_GIVEN;
    p->optimizer = meg_optimizer_find(p->options.optimizer);
    if (!p->optimizer)
        return meg_unknown(e, "unknown optimizer", p->options.optimizer, optimizer_name);
    p->settings = meg_pool_alloc(p->pool, p->optimizer->settings_bytes);
    char what[300];
    MEG_TRY(e, check_whose(p, e, rest));
    snprintf(what, sizeof what, "plan with optimizer %s", p->optimizer->name);
    return meg_options_parse(e, p->optimizer->params, what, rest, p->settings);
}
