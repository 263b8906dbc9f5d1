/* Adam, its weight decay (none by default) added to the gradient: see adam.h. */
#include "ops/optimizer/adam.h"

static void update(const meg_update *u)
{
    meg_adam_update(u, false);
}

void meg_adam_f64(const meg_update *u);

#ifdef MEG_F64
void meg_adam_f64(const meg_update *u)
{
    update(u);
}
#else
static const meg_param params[] = {
    MEG_ADAM_PARAMS("0", "pulls weights towards zero: added to the gradient times the weight"),
    {0}};

const meg_optimizer meg_optimizer_adam = {
    .name = "adam",
    .doc = "adapts the step of every weight to its gradients' mean and square",
    .paper = "Kingma, Ba, Adam: a method for stochastic optimization, ICLR 2015",
    .params = params,
    .settings_bytes = sizeof(meg_adam_settings),
    .lr = 0.001,
    .states = 2,
    .state = {"mean", "square"},
    .relative = true,
    .f32 = update,
    .f64 = meg_adam_f64,
};
#endif
