/* Meetings: messages and sums of a replay that wait until all of their sides are there. */
#ifndef MEG_PLAN_REPLAY_MEETINGS_H
#define MEG_PLAN_REPLAY_MEETINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct meg_side { /* of a message, or a rank of a sum */
    int actor, note;
} meg_side;

typedef enum meg_side_kind {
    MEG_SIDE_SENDS,
    MEG_SIDE_RECEIVES,
    MEG_SIDE_SUMS
} meg_side_kind;

typedef struct
    meg_meeting { /* some sides of which are there; the sender of a message is the first of both */
    uint64_t key;
    meg_side_kind begun; /* what its first side does */
    int sides, wanted;
    meg_side *side;
    size_t room;
    struct meg_meeting *next;
} meg_meeting;

typedef struct meg_meetings meg_meetings;

meg_meetings *meg_meetings_new(void);
void meg_meetings_free(meg_meetings *m);

/* One side more for the first meeting of this key that it is not part of yet, or for a new one, of so many sides. The
 * meeting, if it is complete: it is the caller's then. NULL: it waits. */
meg_meeting *meg_meetings_join(meg_meetings *m, uint64_t key, meg_side s, meg_side_kind kind,
                               int wanted);

/* Of a side that waits for no others. */
meg_meeting *meg_meeting_alone(meg_side s);
void meg_meeting_free(meg_meeting *m);

#endif
