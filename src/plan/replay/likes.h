/* Traffic between actors that stand for many ranks. The peers of equal ranks need not be equal: in a row of eight
 * ranks that exchange halos, some of the six in the middle have an end beside them. So there is no message from
 * one actor to another that both have in their lists, but there are *like* notes: those of one kind and tag. A side
 * may begin when the actors that stand for its peers have posted like notes: of a message, one of the other side in the same
 * step; of a sum, as many as itself. An actor that has none at all is not waited for.
 */
#ifndef MEG_PLAN_REPLAY_LIKES_H
#define MEG_PLAN_REPLAY_LIKES_H

#include "plan/replay/actor.h"

typedef struct meg_like_side {
    int actor, note;
    int need; /* what its peers must have come to */
} meg_like_side;

typedef struct meg_likes meg_likes;

meg_likes *meg_likes_new(int actors, const meg_actor *actor);
void meg_likes_free(meg_likes *l);

/* A note is there, in a step of its actor. */
meg_like_side meg_likes_post(meg_likes *l, int actor, int note, int step);

/* Is the peer there, too? If not, the side waits for it, and for no other. */
bool meg_likes_meet(meg_likes *l, meg_like_side s, int peer);

/* Of those that wait for what was posted last, one that need not any longer; false: none is left. */
bool meg_likes_next(meg_likes *l, meg_like_side *out);

#endif
