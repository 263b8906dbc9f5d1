/* What parameters and states start with: see start.h. */
#include "exec/start.h"

#include "base/random.h"

enum {
    RUN = 1024
}; /* normals drawn at a time */

static void draw_normals(const meg_value *v, meg_stream s, int64_t first, int64_t count,
                         double *out)
{
    for (int64_t i = 0; i < count; i += RUN) {
        float run[RUN];
        int64_t length = count - i < RUN ? count - i : RUN;
        meg_random_normals(s, (uint64_t)(first + i), length, run);
        for (int64_t k = 0; k < length; k++)
            out[i + k] = (double)(float)(v->bound * (double)run[k]);
    }
}

void meg_start_read(const meg_value *v, uint64_t seed, int64_t first, int64_t count, double *out)
{
    meg_stream s = {seed, 0, meg_hash(v->name)};
    if (v->stored.data) {
        meg_stored_read(&v->stored, first, count, out);
        return;
    }
    if (v->start == MEG_NORMAL) {
        draw_normals(v, s, first, count, out);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        double u = v->start == MEG_ONES ? 1 : v->start == MEG_CONSTANT ? v->bound : 0;
        if (v->start == MEG_UNIFORM)
            u = v->bound * (2 * meg_random_uniform(s, (uint64_t)(first + i)) - 1);
        out[i] = (double)(float)u;
    }
}
