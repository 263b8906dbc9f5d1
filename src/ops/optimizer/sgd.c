/* Stochastic gradient descent, as PyTorch has it (dampening 0):
 *
 *     g = gradient + weight_decay w
 *     m = momentum m + g              a buffer of zeros makes m = g in the first step
 *     w = w - lr (nesterov ? g + momentum m : m)
 *
 * Without momentum there is no buffer. Settings are rounded to `real` once; the loops are plain
 * enough for the compiler's vectors.
 */
#include "ops/common/real.h"
#include "ops/optimizer/optimizer.h"

typedef struct sgd_settings {
    double momentum, weight_decay;
    bool nesterov;
} sgd_settings;

typedef struct sgd_rates {
    real lr, scale, decay, momentum;
} sgd_rates;

static sgd_rates rates_of(const meg_update *u)
{
    const sgd_settings *s = u->settings;
    return (sgd_rates){(real)u->scalars->lr, (real)u->scalars->scale,
                       (real)(u->decay ? s->weight_decay : 0), (real)s->momentum};
}

static void plain(real *restrict w, const real *restrict gradient, int64_t count, sgd_rates r)
{
    for (int64_t i = 0; i < count; i++)
        w[i] -= r.lr * (r.scale * gradient[i] + r.decay * w[i]);
}

static void heavy(real *restrict w, real *restrict m, const real *restrict gradient, int64_t count,
                  sgd_rates r)
{
    for (int64_t i = 0; i < count; i++) {
        m[i] = r.momentum * m[i] + (r.scale * gradient[i] + r.decay * w[i]);
        w[i] -= r.lr * m[i];
    }
}

static void nesterov(real *restrict w, real *restrict m, const real *restrict gradient,
                     int64_t count, sgd_rates r)
{
    for (int64_t i = 0; i < count; i++) {
        real g = r.scale * gradient[i] + r.decay * w[i];
        m[i] = r.momentum * m[i] + g;
        w[i] -= r.lr * (g + r.momentum * m[i]);
    }
}

static void update(const meg_update *u)
{
    const sgd_settings *s = u->settings;
    sgd_rates r = rates_of(u);
    if (u->scalars->skip != 0) return;
    if (s->momentum == 0) plain(u->weight, u->gradient, u->count, r);
    else if (s->nesterov) nesterov(u->weight, u->state[0], u->gradient, u->count, r);
    else heavy(u->weight, u->state[0], u->gradient, u->count, r);
}

void meg_sgd_f64(const meg_update *u);

#ifdef MEG_F64
void meg_sgd_f64(const meg_update *u)
{
    update(u);
}
#else
static int used(const void *settings)
{
    return ((const sgd_settings *)settings)->momentum != 0;
}

static const meg_param params[] = {
    {"momentum", MEG_PARAM_REAL, offsetof(sgd_settings, momentum), "0",
     "share of the last update that is kept", NULL, 0, 1},
    {"weight_decay", MEG_PARAM_REAL, offsetof(sgd_settings, weight_decay), "0",
     "pulls weights towards zero: added to the gradient times the weight", NULL, 0, 1e6},
    {"nesterov", MEG_PARAM_BOOL, offsetof(sgd_settings, nesterov), "0",
     "looks ahead along the momentum", NULL, 0, 0},
    {0}};

static bool has_momentum(const void *settings)
{
    return used(settings);
}

static const meg_rule rules[] = {
    {"nesterov", "no", has_momentum, MEG_REFUSES,
     "has no effect without momentum: give momentum=0.9 or so, or leave it out"},
    {0}};

const meg_optimizer meg_optimizer_sgd = {
    .name = "sgd",
    .doc = "stochastic gradient descent, with momentum and weight decay",
    .paper = "Sutskever, Martens, Dahl, Hinton, On the importance of initialization and momentum "
             "in deep learning, ICML 2013",
    .params = params,
    .rules = rules,
    .settings_bytes = sizeof(sgd_settings),
    .lr = 0.1,
    .states = 1,
    .state = {"momentum"},
    .used = used,
    .f32 = update,
    .f64 = meg_sgd_f64,
};
#endif
