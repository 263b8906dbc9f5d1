/* Like notes: see likes.h. Every (actor, code, tag) has a number, found by hashing. */
#include "plan/replay/likes.h"
#include "base/random.h"

#include <stdlib.h>

typedef struct waiter {
    meg_like_side side;
    int next; /* -1: none */
} waiter;

typedef struct like { /* notes of one actor, code and tag */
    uint64_t key;     /* 0: free */
    int posted;       /* messages: the last step in which one was, + 1; sums: how many were */
    int first;        /* of those that wait for one; -1: none */
} like;

struct meg_likes {
    const meg_actor *actor;
    size_t mask;
    like *at;
    waiter *wait;
    int waits, spare; /* spare: the first that is free again; -1: none */
    size_t room;
    like *fresh; /* posted last */
};

static void *zeroed(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (!memory) abort();
    return memory;
}

static uint64_t key_of(int actor, int code, int tag)
{
    uint64_t h = meg_hash_word(meg_hash("like"), (uint64_t)actor);
    h = meg_hash_word(meg_hash_word(h, (uint64_t)code), (uint64_t)tag);
    return h ? h : 1;
}

/* Where it is, or would be. */
static like *find(const meg_likes *l, uint64_t key)
{
    size_t i = key & l->mask;
    while (l->at[i].key && l->at[i].key != key)
        i = (i + 1) & l->mask;
    return &l->at[i];
}

meg_likes *meg_likes_new(int actors, const meg_actor *actor)
{
    meg_likes *l = zeroed(1, sizeof *l);
    size_t notes = 1, room = 16;
    for (int i = 0; i < actors; i++)
        notes += (size_t)actor[i].events.notes;
    while (room < 2 * notes)
        room *= 2;
    *l = (meg_likes){.actor = actor, .mask = room - 1, .spare = -1};
    l->at = zeroed(room, sizeof *l->at);
    for (int i = 0; i < actors; i++)
        for (int k = 0; k < actor[i].events.notes; k++) {
            const meg_traffic_note *n = &actor[i].events.note[k];
            uint64_t key = key_of(i, n->code, n->tag);
            like *at = find(l, key);
            *at = (like){.key = key, .first = -1};
        }
    return l;
}

void meg_likes_free(meg_likes *l)
{
    if (!l) return;
    free(l->at);
    free(l->wait);
    free(l);
}

static void add_waiter(meg_likes *l, like *at, meg_like_side s)
{
    int i = l->spare;
    if (i >= 0) l->spare = l->wait[i].next;
    else {
        l->wait = meg_grow(l->wait, &l->room, (size_t)l->waits + 1, sizeof *l->wait);
        i = l->waits++;
    }
    l->wait[i] = (waiter){s, at->first};
    at->first = i;
}

meg_like_side meg_likes_post(meg_likes *l, int actor, int note, int step)
{
    const meg_traffic_note *n = &l->actor[actor].events.note[note];
    like *mine = find(l, key_of(actor, n->code, n->tag));
    if (n->code == MEG_REDUCE) mine->posted++;
    else mine->posted = step + 1;
    l->fresh = mine;
    return (meg_like_side){actor, note, mine->posted};
}

bool meg_likes_meet(meg_likes *l, meg_like_side s, int peer)
{
    const meg_traffic_note *n = &l->actor[s.actor].events.note[s.note];
    int other = n->code == MEG_SEND ? MEG_RECV : n->code == MEG_RECV ? MEG_SEND : MEG_REDUCE;
    like *theirs = find(l, key_of(peer, other, n->tag));
    if (!theirs->key || theirs->posted >= s.need) return true;
    add_waiter(l, theirs, s);
    return false;
}

bool meg_likes_next(meg_likes *l, meg_like_side *out)
{
    for (int *at = &l->fresh->first; *at >= 0; at = &l->wait[*at].next) {
        int i = *at;
        if (l->wait[i].side.need > l->fresh->posted) continue;
        *out = l->wait[i].side;
        *at = l->wait[i].next;
        l->wait[i].next = l->spare;
        l->spare = i;
        return true;
    }
    return false;
}
