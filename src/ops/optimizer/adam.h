/* Adam's arithmetic, as PyTorch has it, for adam and adamw, which differ in the weight decay alone:
 *
 *     g = gradient [+ weight_decay w]       adam:  decay is part of the gradient
 *     w = [(1 - lr weight_decay)] w         adamw: decay is apart from it (decoupled)
 *     m = beta1 m + (1 - beta1) g           state 0
 *     v = beta2 v + (1 - beta2) g^2         state 1
 *     w = w - lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
 *
 * With epsilon_hat (the shorter form in the paper's section 2, and Keras'), epsilon is added before the
 * mean square is corrected: (sqrt(v) + epsilon) / sqrt(1 - beta2^t).
 *
 * What depends on the step alone is computed once, in double, and rounded to `real`.
 */
#ifndef MEG_OPS_OPTIMIZER_ADAM_H
#define MEG_OPS_OPTIMIZER_ADAM_H

#include "ops/common/real.h"
#include "ops/optimizer/optimizer.h"

#include <tgmath.h> /* sqrt of `real` */

typedef struct meg_adam_settings {
    double beta1, beta2, epsilon, weight_decay;
    bool epsilon_hat;
} meg_adam_settings;

typedef struct meg_adam_rates {
    real scale, couple, shrink; /* gradient = scale * gradient + couple * w; w = shrink * w */
    real new1, beta2, new2;     /* new1: 1 - beta1 */
    real step, root, epsilon;   /* lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
} meg_adam_rates;

static inline meg_adam_rates meg_adam_rates_of(const meg_update *u, bool decoupled)
{
    const meg_adam_settings *s = u->settings;
    const meg_scalars *now = u->scalars;
    double decay = u->decay ? s->weight_decay : 0;
    double root = 1 / sqrt(1 - pow(s->beta2, now->step));
    return (meg_adam_rates){
        .scale = (real)now->scale,
        .couple = (real)(decoupled ? 0 : decay),
        .shrink = (real)(decoupled ? 1 - now->lr * decay : 1),
        .new1 = (real)(1 - s->beta1),
        .beta2 = (real)s->beta2,
        .new2 = (real)(1 - s->beta2),
        .step = (real)(now->lr / (1 - pow(s->beta1, now->step))),
        .root = (real)root,
        .epsilon = (real)(s->epsilon * (s->epsilon_hat ? root : 1)),
    };
}

/* The library is compiled without math errno: so the square root is one vector instruction. */
static inline void meg_adam_loop(real *restrict w, const meg_update *u, meg_adam_rates r)
{
    real *restrict m = u->state[0], *restrict v = u->state[1];
    const real *restrict gradient = u->gradient;
    for (int64_t i = 0; i < u->count; i++) {
        real g = r.scale * gradient[i] + r.couple * w[i];
        m[i] += r.new1 * (g - m[i]);
        v[i] = r.beta2 * v[i] + r.new2 * g * g;
        w[i] = r.shrink * w[i] - r.step * m[i] / (sqrt(v[i]) * r.root + r.epsilon);
    }
}

static inline void meg_adam_update(const meg_update *u, bool decoupled)
{
    if (u->scalars->skip == 0) meg_adam_loop(u->weight, u, meg_adam_rates_of(u, decoupled));
}

#define MEG_ADAM_PARAM(member, initial, doc, lo, hi)                                               \
    {                                                                                              \
#member, MEG_PARAM_REAL, offsetof(meg_adam_settings, member), initial, doc, NULL, lo, hi   \
    }

/* Neither divides by zero: 1 - beta^t and, where all gradients were 0, epsilon stay positive. */
#define MEG_ADAM_PARAMS(decay, decay_doc)                                                          \
    MEG_ADAM_PARAM(beta1, "0.9", "keeps this share of the mean gradient", 0, 0.999999999),         \
        MEG_ADAM_PARAM(beta2, "0.999", "keeps this share of the mean squared gradient", 0,         \
                       0.999999999),                                                               \
        MEG_ADAM_PARAM(epsilon, "1e-8", "added to the root of the mean square", 1e-30, 1),         \
        MEG_ADAM_PARAM(weight_decay, decay, decay_doc, 0, 1e6),                                    \
    {                                                                                              \
        "epsilon_hat", MEG_PARAM_BOOL, offsetof(meg_adam_settings, epsilon_hat), "0",              \
            "epsilon is added before the mean square is corrected, as Keras does", NULL, 0, 0      \
    }

#endif
