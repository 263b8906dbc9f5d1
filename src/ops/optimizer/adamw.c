/* Adam with decoupled weight decay: weights shrink by lr * weight_decay, whatever their gradient;
 * see adam.h. */
#include "ops/optimizer/adam.h"

static void update(const meg_update *u)
{
    meg_adam_update(u, true);
}

void meg_adamw_f64(const meg_update *u);

#ifdef MEG_F64
void meg_adamw_f64(const meg_update *u)
{
    update(u);
}
#else
static const meg_param params[] = {
    MEG_ADAM_PARAMS("0.01", "weights shrink by lr times this in every step"), {0}};

const meg_optimizer meg_optimizer_adamw = {
    .name = "adamw",
    .doc = "adam with weight decay apart from the gradient",
    .paper = "Loshchilov, Hutter, Decoupled weight decay regularization, ICLR 2019",
    .params = params,
    .settings_bytes = sizeof(meg_adam_settings),
    .lr = 0.001,
    .states = 2,
    .state = {"mean", "square"},
    .relative = true,
    .f32 = update,
    .f64 = meg_adamw_f64,
};
#endif
