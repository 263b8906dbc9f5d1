/* Weights to and from safetensors files, in global coordinates and plain format: parameters and
 * running statistics under the names that PyTorch gives them. And to ONNX files, with the network.
 */
#include "import/onnx.h"
#include "import/safetensors.h"
#include "train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- saving ---- */

typedef struct saving { /* tensors leave the engine one by one, in pieces */
    meg_trainer *trainer;
    const meg_saved *list;
    int *value;         /* (list): of the engine's graph */
    meg_role role;      /* of parameters */
    meg_saved_put *put; /* of the tensor at hand */
    void *to;
    const char *name;
    meg_status status;
} saving;

static bool all_finite(const void *data, int64_t count, int64_t element)
{
    double sum = 0; /* stays finite unless an element is not */
    for (int64_t i = 0; i < count; i++)
        sum += 0 * (element == 8 ? ((const double *)data)[i] : (double)((const float *)data)[i]);
    return isfinite(sum);
}

/* A last step may have spoilt weights without a loss to show it: such are not saved. */
static void take(void *context, const meg_box *box, void *data)
{
    saving *s = context;
    int64_t count = meg_box_size(box), element = meg_dtype_bytes(meg_engine_real(s->trainer->engine));
    if (s->status != MEG_OK) return;
    if (all_finite(data, count, element)) s->status = s->put(s->to, data, count * element);
    else
        s->status = meg_fail(&s->trainer->ctx->error, MEG_ENAN,
                             "%s is not finite: nothing is saved", s->name);
}

static bool saved_kind(const meg_value *v)
{
    return v->kind == MEG_PARAMETER || v->kind == MEG_STATE;
}

static meg_role role_of(const saving *s, const meg_value *v)
{
    return v->kind == MEG_PARAMETER ? s->role : MEG_ROLE_VALUE;
}

static meg_status get_tensor(void *context, const meg_saved *t, meg_saved_put *put, void *to)
{
    saving *s = context;
    int id = s->value[t - s->list];
    const meg_value *v = &meg_engine_graph(s->trainer->engine)->value[id];
    s->put = put;
    s->to = to;
    s->name = t->name;
    s->status = MEG_OK;
    meg_engine_get(s->trainer->engine, id, role_of(s, v), 0, take, s);
    return s->status;
}

static bool held(const saving *s, const meg_value *v)
{
    const meg_plan *p = meg_engine_plan(s->trainer->engine);
    for (int i = 0; i < p->held_slots; i++)
        if (p->held[i].value == v->id && p->held[i].role == role_of(s, v)) return true;
    return false;
}

static meg_status save(meg_trainer *t, const char *path, meg_role parameters, int64_t shard)
{
    const meg_graph *g = meg_engine_graph(t->engine);
    meg_pool *pool = meg_pool_new();
    meg_saved *list = meg_pool_alloc(pool, (size_t)g->values * sizeof *list);
    saving s = {.trainer = t, .list = list, .role = parameters};
    s.value = meg_pool_alloc(pool, (size_t)g->values * sizeof *s.value);
    int count = 0;
    for (int i = 0; i < g->values; i++) {
        const meg_value *v = &g->value[i];
        if (!saved_kind(v) || !held(&s, v)) continue;
        list[count] = (meg_saved){
            .name = v->name, .dtype = meg_engine_real(t->engine), .rank = v->rank};
        memcpy(list[count].dims, v->dims, sizeof v->dims);
        s.value[count++] = i;
    }
    char step[32];
    snprintf(step, sizeof step, "%" PRId64, t->step);
    meg_saved_note notes[] = {{"megalith.model", g->name}, {"megalith.step", step}};
    meg_saved_file file = {count, 2, list, notes};
    meg_status status = meg_safetensors_stream(&t->ctx->error, path, &file,
                                               &(meg_saved_source){get_tensor, &s}, shard);
    meg_pool_free(pool);
    return status;
}

meg_status meg_trainer_save(meg_trainer *t, const char *path)
{
    return save(t, path, MEG_ROLE_VALUE, t->options.shard);
}

meg_status meg_trainer_save_gradients(meg_trainer *t, const char *path)
{
    MEG_CHECK(&t->ctx->error, t->plan->options.keep_grads || t->plan->options.micro > 1, MEG_EARG,
              "gradients are only there after a step of a plan with keep_grads=1");
    return save(t, path, MEG_ROLE_GRADIENT, 0);
}

/* ---- loading ---- */

typedef struct source {
    const meg_value *value;
    const char *from;
    meg_dtype dtype, real;
} source;

static void give(void *context, const meg_box *box, void *data)
{
    const source *s = context;
    int64_t first = meg_box_at(&s->value->shape, box->lo), count = meg_box_size(box);
    const char *from = s->from + first * meg_dtype_bytes(s->dtype);
    for (int64_t i = 0; i < count; i++) {
        float f = 0;
        double d = 0; /* the file may not be aligned */
        if (s->dtype == MEG_F64) memcpy(&d, from + 8 * i, 8), f = (float)d;
        else memcpy(&f, from + 4 * i, 4), d = (double)f;
        if (s->real == MEG_F64) ((double *)data)[i] = d;
        else ((float *)data)[i] = f;
    }
}

static meg_status check(meg_trainer *t, const meg_safetensors *f, const meg_value *v,
                        const char *path, meg_saved *out)
{
    meg_error *e = &t->ctx->error;
    int at = meg_safetensors_find(f, v->name);
    MEG_CHECK(e, at >= 0, MEG_EDATA, "%s: there is no %s, which %s needs", path, v->name,
              t->plan->source->name);
    MEG_TRY(e, meg_safetensors_at(f, e, at, out));
    bool same = out->rank == v->rank && (out->dtype == MEG_F32 || out->dtype == MEG_F64);
    for (int i = 0; same && i < v->rank; i++)
        same = out->dims[i] == v->dims[i];
    MEG_CHECK(e, same, MEG_EDATA, "%s: %s has another shape or type than %s needs", path, v->name,
              t->plan->source->name);
    return MEG_OK;
}

/* Checks all before it changes any. */
static meg_status load(meg_trainer *t, const meg_safetensors *f, const char *path)
{
    const meg_graph *g = meg_engine_graph(t->engine);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < g->values; i++) {
            const meg_value *v = &g->value[i];
            meg_saved saved;
            if (!saved_kind(v)) continue;
            MEG_TRY(&t->ctx->error, check(t, f, v, path, &saved));
            source s = {v, saved.data, saved.dtype, meg_engine_real(t->engine)};
            if (pass == 1) meg_engine_put(t->engine, i, MEG_ROLE_VALUE, 0, give, &s);
        }
    return MEG_OK;
}

meg_status meg_trainer_load(meg_trainer *t, const char *path)
{
    meg_safetensors *f = NULL;
    MEG_TRY(&t->ctx->error, meg_safetensors_open(&t->ctx->error, path, &f));
    meg_status status = load(t, f, path);
    meg_safetensors_close(f);
    return status;
}

/* ---- exporting ---- */

typedef struct export
{
    meg_trainer *trainer;
    meg_status (*put)(void *to, const float *piece, int64_t count);
    void *to;
    meg_status status;
}
export;

static void pass_on(void *context, const meg_box *box, void *data)
{
    enum {
        RUN = 4096
    };
    export *x = context;
    int64_t count = meg_box_size(box);
    bool wide = meg_engine_real(x->trainer->engine) == MEG_F64;
    if (!wide && x->status == MEG_OK) x->status = x->put(x->to, data, count);
    for (int64_t i = 0; wide && i < count && x->status == MEG_OK; i += RUN) {
        float run[RUN];
        int64_t length = count - i < RUN ? count - i : RUN;
        for (int64_t k = 0; k < length; k++)
            run[k] = (float)((double *)data)[i + k];
        x->status = x->put(x->to, run, length);
    }
}

/* The plan's graph is the user's, the engine's a rewritten one: they share the names. */
static bool get_numbers(void *context, const meg_value *v,
                        meg_status (*put)(void *to, const float *piece, int64_t count), void *to)
{
    export x = {context, put, to, MEG_OK};
    int id = meg_graph_find_value(meg_engine_graph(x.trainer->engine), v->name);
    return id >= 0 && meg_engine_get(x.trainer->engine, id, MEG_ROLE_VALUE, 0, pass_on, &x);
}

meg_status meg_trainer_export(meg_trainer *t, const char *path)
{
    meg_onnx_source weights = {get_numbers, t};
    return meg_onnx_save(&t->ctx->error, path, t->plan->source, &weights, 0);
}
