/* RMSprop, as PyTorch has it (not centred), or with epsilon under the root, as Keras has it:
 *
 *     g = gradient + weight_decay w
 *     v = rho v + (1 - rho) g^2               state 0
 *     s = g / (sqrt(v) + epsilon)             inside: g / sqrt(v + epsilon)
 *     w = w - lr s                            without momentum, else
 *     m = momentum m + s, w = w - lr m        state 1
 */
#include "ops/common/real.h"
#include "ops/optimizer/optimizer.h"

#include <tgmath.h> /* sqrt of `real` */

typedef struct rmsprop_settings {
    double rho, epsilon, momentum, weight_decay;
    bool inside;
} rmsprop_settings;

typedef struct rmsprop_rates {
    real lr, scale, decay, rho, fresh; /* fresh: 1 - rho */
    real under, behind;                /* epsilon: one of both is 0 */
    real momentum;
} rmsprop_rates;

static rmsprop_rates rates_of(const meg_update *u)
{
    const rmsprop_settings *s = u->settings;
    return (rmsprop_rates){.lr = (real)u->scalars->lr,
                           .scale = (real)u->scalars->scale,
                           .decay = (real)(u->decay ? s->weight_decay : 0),
                           .rho = (real)s->rho,
                           .fresh = (real)(1 - s->rho),
                           .under = (real)(s->inside ? s->epsilon : 0),
                           .behind = (real)(s->inside ? 0 : s->epsilon),
                           .momentum = (real)s->momentum};
}

static void plain(real *restrict w, const meg_update *u, rmsprop_rates r)
{
    real *restrict v = u->state[0];
    const real *restrict gradient = u->gradient;
    for (int64_t i = 0; i < u->count; i++) {
        real g = r.scale * gradient[i] + r.decay * w[i];
        v[i] = r.rho * v[i] + r.fresh * g * g;
        w[i] -= r.lr * g / (sqrt(v[i] + r.under) + r.behind);
    }
}

static void heavy(real *restrict w, const meg_update *u, rmsprop_rates r)
{
    real *restrict v = u->state[0], *restrict m = u->state[1];
    const real *restrict gradient = u->gradient;
    for (int64_t i = 0; i < u->count; i++) {
        real g = r.scale * gradient[i] + r.decay * w[i];
        v[i] = r.rho * v[i] + r.fresh * g * g;
        m[i] = r.momentum * m[i] + g / (sqrt(v[i] + r.under) + r.behind);
        w[i] -= r.lr * m[i];
    }
}

static void update(const meg_update *u)
{
    const rmsprop_settings *s = u->settings;
    if (u->scalars->skip != 0) return;
    (s->momentum == 0 ? plain : heavy)(u->weight, u, rates_of(u));
}

void meg_rmsprop_f64(const meg_update *u);

#ifdef MEG_F64
void meg_rmsprop_f64(const meg_update *u)
{
    update(u);
}
#else
static int used(const void *settings)
{
    return 1 + (((const rmsprop_settings *)settings)->momentum != 0);
}

#define AT(field) offsetof(rmsprop_settings, field)

static const meg_param params[] = {
    {"rho", MEG_PARAM_REAL, AT(rho), "0.99", "keeps this share of the mean squared gradient", NULL,
     0, 0.999999999},
    {"epsilon", MEG_PARAM_REAL, AT(epsilon), "1e-8", "added to the root of the mean square", NULL,
     1e-30, 1},
    {"inside", MEG_PARAM_BOOL, AT(inside), "0", "epsilon is added under the root, as Keras does",
     NULL, 0, 0},
    {"momentum", MEG_PARAM_REAL, AT(momentum), "0", "share of the last update that is kept", NULL,
     0, 1},
    {"weight_decay", MEG_PARAM_REAL, AT(weight_decay), "0",
     "pulls weights towards zero: added to the gradient times the weight", NULL, 0, 1e6},
    {0}};

const meg_optimizer meg_optimizer_rmsprop = {
    .name = "rmsprop",
    .doc = "divides the gradient of every weight by the root of its mean square",
    .paper = "Tieleman, Hinton, Lecture 6.5: rmsprop, Coursera, Neural networks for machine "
             "learning, 2012",
    .params = params,
    .settings_bytes = sizeof(rmsprop_settings),
    .lr = 0.001,
    .states = 2,
    .state = {"square", "momentum"},
    .used = used,
    .relative = true,
    .f32 = update,
    .f64 = meg_rmsprop_f64,
};
#endif
