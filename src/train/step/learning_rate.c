/* Learning-rate schedules.
 *
 *     constant  ------------      step  ----          cosine  --.
 *                                           ----                 `-.
 *                                               ----                `--   (Loshchilov, Hutter:
 *     warm-up   .-'                                                 SGDR, ICLR 2017)
 */
#include "train/step/learning_rate.h"

#include <math.h>

static double constant(const meg_lr_schedule *s, double epoch)
{
    (void)s, (void)epoch;
    return 1;
}

static double step(const meg_lr_schedule *s, double epoch)
{
    return pow(s->drop, floor(epoch / s->drop_every + 1e-9));
}

static double cosine(const meg_lr_schedule *s, double epoch)
{
    double span = s->epochs - s->warmup, t = span > 0 ? (epoch - s->warmup) / span : 1;
    return 0.5 * (1 + cos(acos(-1) * (t < 0 ? 0 : t > 1 ? 1 : t)));
}

double meg_lr_rate(const meg_lr_schedule *s, double epoch, double each)
{
    static double (*const shape[])(const meg_lr_schedule *, double) = {constant, step, cosine};
    if (epoch + 1e-9 < s->warmup) return s->lr * fmin(1, (epoch + each) / s->warmup);
    return s->lr * shape[s->kind](s, epoch);
}
