/* Meetings: see meetings.h. */
#include "plan/replay/meetings.h"
#include "base/pool.h"

#include <stdlib.h>

enum {
    BUCKETS = 1 << 12
};

struct meg_meetings {
    meg_meeting *bucket[BUCKETS];
};

meg_meetings *meg_meetings_new(void)
{
    meg_meetings *m = calloc(1, sizeof *m);
    if (!m) abort();
    return m;
}

void meg_meeting_free(meg_meeting *m)
{
    free(m->side);
    free(m);
}

void meg_meetings_free(meg_meetings *m)
{
    for (int i = 0; i < BUCKETS; i++)
        while (m->bucket[i]) {
            meg_meeting *first = m->bucket[i];
            m->bucket[i] = first->next;
            meg_meeting_free(first);
        }
    free(m);
}

static meg_meeting *meeting_new(uint64_t key, meg_side_kind kind, int wanted)
{
    meg_meeting *m = calloc(1, sizeof *m);
    if (!m) abort();
    m->key = key;
    m->begun = kind;
    m->wanted = wanted;
    return m;
}

/* A message has one side of each kind, a sum one of each actor. */
static bool has(const meg_meeting *m, meg_side s, meg_side_kind kind)
{
    if (kind != MEG_SIDE_SUMS) return m->begun == kind;
    for (int i = 0; i < m->sides; i++)
        if (m->side[i].actor == s.actor) return true;
    return false;
}

static void add(meg_meeting *m, meg_side s, meg_side_kind kind)
{
    m->side = meg_grow(m->side, &m->room, (size_t)m->sides + 1, sizeof *m->side);
    m->side[m->sides++] = s;
    if (kind != MEG_SIDE_SENDS || m->sides == 1) return;
    m->side[m->sides - 1] = m->side[0];
    m->side[0] = s;
}

meg_meeting *meg_meetings_join(meg_meetings *t, uint64_t key, meg_side s, meg_side_kind kind,
                               int wanted)
{
    meg_meeting **at = &t->bucket[key % BUCKETS];
    while (*at && ((*at)->key != key || has(*at, s, kind)))
        at = &(*at)->next;
    if (!*at) *at = meeting_new(key, kind, wanted);
    meg_meeting *m = *at;
    add(m, s, kind);
    if (m->sides < m->wanted) return NULL;
    *at = m->next;
    return m;
}

meg_meeting *meg_meeting_alone(meg_side s)
{
    meg_meeting *m = meeting_new(0, MEG_SIDE_RECEIVES, 1);
    add(m, s, MEG_SIDE_RECEIVES);
    return m;
}
