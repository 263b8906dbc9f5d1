/* Counting waits: see waits.h. */
#include "exec/probe/waits.h"
#include "plan/replay/actor.h"

#include <math.h>

typedef struct counting {
    meg_actor actor;
    const meg_machine *machine;
    meg_transits known;
} counting;

/* Of a message that comes, or of a sum; what was sent is not waited for. */
static double seconds_of(counting *c, int note)
{
    const meg_traffic_note *n = &c->actor.events.note[note];
    meg_transit t = {0};
    if (n->code == MEG_RECV) t = meg_transit_message(c->machine, n->peer, c->actor.rank, n->bytes);
    if (n->code == MEG_REDUCE) t = meg_actor_sum(&c->actor, note, c->machine, &c->known);
    return t.latency + t.seconds;
}

meg_waits meg_waits_of(const meg_plan *p, int entry, const meg_machine *m)
{
    counting c = {.machine = m};
    meg_actor_make(p, entry, &c.actor);
    const meg_events *v = &c.actor.events;
    meg_waits out = {.notes = v->notes};
    double longest = 0;
    for (int i = 0; i < v->steps; i++) {
        if (v->step[i] < 0) longest = fmax(longest, seconds_of(&c, -1 - v->step[i]));
        if (v->before[i + 1] <= 0 || longest <= 0) continue;
        out.waits++;
        out.seconds += longest;
        longest = 0;
    }
    meg_transits_free(&c.known);
    meg_actor_clear(&c.actor);
    return out;
}
