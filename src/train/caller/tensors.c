/* What a trainer holds, by name: weights, running statistics, gradients, states of the optimizer, to and
 * from the caller's memory. They lie in formats of the device, in parts, on ranks that the plan chose;
 * here they are whole, row-major, in the shapes that files have. Rank 0 collects and hands out
 * (checkpoint/collect.h); what it has read goes on to the others that want it.
 */
#include "base/random.h"
#include "train/caller/caller.h"
#include "train/checkpoint/weights.h"

#include <stdlib.h>
#include <string.h>

/* ---- what there is ---- */

typedef struct sort { /* of tensors, as the public interface names them */
    const char *name;
    int collect;
    bool kind[MEG_MADE]; /* of values that it has */
    const char *fixed;   /* why nothing can be set; NULL: it can */
} sort;

static const sort SORTS[] = {
    {"value",
     MEG_COLLECT_VALUES,
     {[MEG_PARAMETER] = true, [MEG_STATE] = true, [MEG_FIXED] = true},
     NULL},
    {"weight", MEG_COLLECT_VALUES, {[MEG_PARAMETER] = true}, NULL},
    {"statistic", MEG_COLLECT_VALUES, {[MEG_STATE] = true}, NULL},
    {"fixed", MEG_COLLECT_VALUES, {[MEG_FIXED] = true}, NULL},
    {"gradient",
     MEG_COLLECT_GRADIENTS,
     {[MEG_PARAMETER] = true},
     "a step makes gradients anew: set \"weight\" instead"},
    {"state", MEG_COLLECT_OPTIMIZER, {[MEG_PARAMETER] = true}, NULL},
};

static const sort *find_sort(const char *what)
{
    for (size_t i = 0; i < sizeof SORTS / sizeof *SORTS; i++)
        if (strcmp(SORTS[i].name, what) == 0) return &SORTS[i];
    return NULL;
}

/* Constants of a network's code are no weights, as in files. */
static bool belongs(const sort *s, const meg_value *v)
{
    return v->kind < MEG_MADE && s->kind[v->kind] && !v->unsaved;
}

/* How many tensors of the sort a value has. */
static int each_has(const meg_trainer *t, const sort *s)
{
    const meg_plan *p = t->plan;
    bool gradients = p->options.keep_grads || p->options.micro > 1;
    if (s->collect == MEG_COLLECT_OPTIMIZER) return meg_optimizer_states(p->optimizer, p->settings);
    return s->collect == MEG_COLLECT_GRADIENTS ? gradients : 1;
}

int meg_tensors(const meg_trainer *t, const char *what)
{
    const sort *s = find_sort(what);
    const meg_graph *g = meg_engine_graph(t->engine);
    int count = 0;
    for (int i = 0; s && i < g->values; i++)
        if (belongs(s, &g->value[i])) count += each_has(t, s);
    return count;
}

static void describe(const meg_trainer *t, const meg_value *v, const char *name, meg_tensor *out)
{
    *out = (meg_tensor){.name = name, .dtype = meg_engine_real(t->engine), .rank = v->rank};
    for (int i = 0; i < v->rank; i++)
        out->shape[i] = v->dims[i];
}

/* Of an optimizer with several states, those of a weight stand side by side. */
bool meg_tensor_at(const meg_trainer *t, const char *what, int i, meg_tensor *out)
{
    const sort *s = find_sort(what);
    const meg_graph *g = meg_engine_graph(t->engine);
    int each = s ? each_has(t, s) : 0;
    for (int k = 0; each > 0 && k < g->values; k++) {
        const meg_value *v = &g->value[k];
        if (!belongs(s, v)) continue;
        if (i >= each) {
            i -= each;
            continue;
        }
        const char *name = v->name;
        if (i < 0) return false;
        if (s->collect == MEG_COLLECT_OPTIMIZER)
            name = meg_pool_text(t->pool, "%s#%s", v->name, t->plan->optimizer->state[i]);
        describe(t, v, name, out);
        return true;
    }
    return false;
}

/* ---- numbers ---- */

typedef struct copy { /* of one tensor, while rank 0 gets or puts it */
    const meg_value *value;
    meg_tensor *tensor;
    meg_dtype real;
    int64_t done;
} copy;

static meg_status take(void *context, const void *piece, int64_t count)
{
    copy *c = context;
    for (int64_t i = 0; i < count; i++)
        meg_number_set(c->tensor->data, c->tensor->dtype, meg_weights_place(c->value, c->done + i),
                       meg_number_at(piece, c->real, i));
    c->done += count;
    return MEG_OK;
}

static void give(void *context, int64_t first, int64_t count, void *piece)
{
    const copy *c = context;
    for (int64_t i = 0; i < count; i++)
        meg_number_set(piece, c->real, i,
                       meg_number_at(c->tensor->data, c->tensor->dtype,
                                     meg_weights_place(c->value, first + i)));
}

/* ---- one call ---- */

typedef struct call {
    meg_trainer *trainer;
    const sort *sort;
    meg_tensor *tensor; /* (count) */
    int count;
    bool set;
} call;

static const meg_value *value_of(const call *c, const char *name)
{
    const meg_graph *g = meg_engine_graph(c->trainer->engine);
    char plain[512];
    const char *mark = c->sort->collect == MEG_COLLECT_OPTIMIZER ? strrchr(name, '#') : NULL;
    snprintf(plain, sizeof plain, "%.*s", mark ? (int)(mark - name) : (int)strlen(name), name);
    int at = meg_graph_find_value(g, plain);
    return at >= 0 && belongs(c->sort, &g->value[at]) ? &g->value[at] : NULL;
}

static meg_status check_tensor(const call *c, const meg_tensor *t)
{
    meg_error *e = &c->trainer->ctx->error;
    MEG_CHECK(e, t->name, MEG_EARG, "a tensor has no name: meg_tensor_at tells those of \"%s\"",
              c->sort->name);
    const meg_value *v = value_of(c, t->name);
    MEG_CHECK(e, v, MEG_EARG, "%s has no %s '%s': meg_tensor_at tells those that there are",
              c->trainer->plan->source->name, c->sort->name, t->name);
    if (!t->data && meg_rank(c->trainer->ctx) > 0) return MEG_OK;
    MEG_CHECK(e, t->data, MEG_EARG, "%s: rank 0 has no memory for its numbers", t->name);
    meg_tensor like;
    describe(c->trainer, v, t->name, &like);
    return meg_caller_check(e, t, &like, c->trainer->plan->source->name);
}

/* What a rank can do wrong on its own. */
static meg_status check(const call *c, const char *what)
{
    meg_error *e = &c->trainer->ctx->error;
    MEG_CHECK(e, c->sort, MEG_EARG,
              "there are no tensors \"%s\": use value, weight, statistic, fixed, gradient or state",
              what);
    MEG_CHECK(e, !c->set || !c->sort->fixed, MEG_EARG, "%s", c->sort->fixed);
    MEG_CHECK(e, each_has(c->trainer, c->sort) > 0 || c->sort->collect != MEG_COLLECT_GRADIENTS,
              MEG_EARG, "gradients are only there after a step of a plan with keep_grads=1");
    for (int i = 0; i < c->count; i++)
        MEG_TRY(e, check_tensor(c, &c->tensor[i]));
    return MEG_OK;
}

static meg_status work(void *context, meg_collection *c, meg_error *e)
{
    const call *k = context;
    for (int i = 0; i < k->count; i++) {
        meg_tensor *t = &k->tensor[i];
        int item = meg_collection_find(c, t->name);
        MEG_CHECK(e, item >= 0, MEG_EARG, "no rank has %s '%s'", k->sort->name, t->name);
        copy one = {.value = meg_collection_item(c, item)->value,
                    .tensor = t,
                    .real = meg_collection_real(c)};
        if (k->set) MEG_TRY(e, meg_collection_put(c, e, item, give, &one));
        else MEG_TRY(e, meg_collection_get(c, e, item, take, &one));
    }
    return MEG_OK;
}

static int64_t bytes_of(const call *c, int i)
{
    return meg_box_size(&value_of(c, c->tensor[i].name)->shape) *
           meg_dtype_bytes(c->tensor[i].dtype);
}

static uint64_t hash_of(const call *c, const char *what)
{
    uint64_t hash = meg_hash(what);
    for (int i = 0; i < c->count; i++) {
        hash = meg_hash_word(hash, meg_hash(c->tensor[i].name ? c->tensor[i].name : ""));
        hash = meg_hash_word(hash, (uint64_t)c->tensor[i].dtype);
    }
    return hash;
}

static meg_status run(call *c, const char *what)
{
    meg_context *ctx = c->trainer->ctx;
    meg_token same = {"other tensors to get or set", hash_of(c, what)};
    c->sort = find_sort(what);
    MEG_TRY(&ctx->error, meg_context_same(ctx, &same, 1));
    MEG_TRY(&ctx->error, meg_context_agree(ctx, check(c, what)));
    MEG_TRY(&ctx->error,
            meg_collect(c->trainer->engine, ctx->comm, &ctx->error, c->sort->collect, work, c));
    for (int i = 0; i < c->count && !c->set; i++)
        MEG_TRY(&ctx->error, meg_caller_share(ctx, c->tensor[i].data, bytes_of(c, i)));
    return MEG_OK;
}

meg_status meg_trainer_get_many(meg_trainer *t, const char *what, int count, meg_tensor tensor[])
{
    return run(&(call){.trainer = t, .tensor = tensor, .count = count}, what);
}

meg_status meg_trainer_set_many(meg_trainer *t, const char *what, int count,
                                const meg_tensor tensor[])
{
    meg_tensor *list = malloc(((size_t)count + 1) * sizeof *list);
    if (!list) return meg_fail(&t->ctx->error, MEG_ENOMEM, "no memory to set %d tensors", count);
    memcpy(list, tensor, (size_t)count * sizeof *list);
    meg_status status = run(&(call){.trainer = t, .tensor = list, .count = count, .set = true},
                            what);
    free(list);
    return status;
}

meg_status meg_trainer_get(meg_trainer *t, const char *what, const char *name, meg_tensor *tensor)
{
    meg_tensor named = *tensor;
    named.name = name;
    return meg_trainer_get_many(t, what, 1, &named);
}

meg_status meg_trainer_set(meg_trainer *t, const char *what, const char *name,
                           const meg_tensor *tensor)
{
    meg_tensor named = *tensor;
    named.name = name;
    return meg_trainer_set_many(t, what, 1, &named);
}
