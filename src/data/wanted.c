/* What is wanted of a data set for a network: see data.h. */
#include "data/data.h"

#include <inttypes.h>

int64_t meg_wanted_numbers(const meg_wanted *w)
{
    return meg_box_size(&w->box);
}

/* An id that the network has no row for would only show as a loss that is no number, and a class that it
 * does not know not at all. */
meg_status meg_wanted_check(const meg_dataset *d, meg_error *e, const meg_wanted *w, int64_t sample,
                            const void *data)
{
    const int32_t *whole = data;
    const float *floats = data;
    int64_t count = w->below > 0 ? meg_wanted_numbers(w) : 0;
    for (int64_t i = 0; i < count; i++) {
        double number = w->dtype == MEG_I32 ? (double)whole[i] : (double)floats[i];
        if (number < (double)w->below || (w->ignore >= 0 && number == (double)w->ignore)) continue;
        if (w->label)
            return meg_fail(
                e, MEG_EDATA,
                "%s: sample %" PRId64 " has the label %.0f in '%s', but the network "
                "knows the classes 0..%" PRId64
                ": mend it, or use a network for more classes (below 0: does not count)",
                d->source, sample, number, w->name, w->below - 1);
        return meg_fail(e, MEG_EDATA,
                        "%s: sample %" PRId64
                        " has the token %.0f, but the network knows 0..%" PRId64
                        ": mend the sample, or use a network for more tokens",
                        d->source, sample, number, w->below - 1);
    }
    return MEG_OK;
}

meg_status meg_wanted_read(const meg_dataset *d, meg_error *e, const meg_wanted *w, int64_t sample,
                           void *out)
{
    meg_ask ask = {w->field, sample, w->dtype, w->all, w->box};
    MEG_TRY(e, meg_dataset_read(d, e, &ask, out));
    return meg_wanted_check(d, e, w, sample, out);
}
