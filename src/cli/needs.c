/* What each rank of a plan needs: see needs.h. */
#include "cli/needs.h"

/* Those that the rank has, in whichever direction; of many, as many as there is room for. */
static void list_stages(const meg_plan *p, char *out, size_t size)
{
    const meg_entry *t = &p->entry[MEG_ENTRY_TRAIN];
    size_t used = 0;
    for (int s = 0; s < p->options.stages; s++) {
        bool has = false;
        for (int i = 0; i < t->stations; i++)
            has = has || t->station[i].stage == s;
        if (has && used + sizeof ",255.." > size) {
            snprintf(out + used, size - used, "..");
            return;
        }
        if (has) used += (size_t)snprintf(out + used, size - used, "%s%d", used ? "," : "", s);
    }
}

meg_need meg_need_of(const meg_plan *p)
{
    meg_need n = {.replica = p->replica,
                  .held = p->bytes[MEG_HELD],
                  .step = p->bytes[MEG_STEP],
                  .frames = p->bytes[MEG_FRAME] + p->bytes[MEG_TEMPORARY],
                  .arena = p->arena,
                  .seconds = p->seconds};
    list_stages(p, n.stages, sizeof n.stages);
    return n;
}

int64_t meg_needs_bytes(const meg_plan *p, const meg_need needs[])
{
    int64_t most = p->arena;
    for (int r = 0; needs && r < p->world.ranks; r++)
        if (needs[r].arena > most) most = needs[r].arena;
    return most;
}

double meg_needs_seconds(const meg_plan *p, const meg_need needs[])
{
    double most = p->seconds;
    for (int r = 0; needs && r < p->world.ranks; r++)
        if (needs[r].seconds > most) most = needs[r].seconds;
    return most;
}
