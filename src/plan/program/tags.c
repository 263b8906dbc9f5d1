/* Numbers of messages: see tags.h. */
#include "plan/program/tags.h"

#include <assert.h>

int meg_tag_of_value(const meg_entry *e, int value, int use)
{
    assert(e->tag_number[value] >= 0);
    return MEG_TAG_OUTCOME + 1 + MEG_TAG_USES * e->tag_number[value] + use;
}

int meg_tag_of_states(const meg_entry *e, int segment)
{
    return MEG_TAG_OUTCOME + 1 + MEG_TAG_USES * e->tagged + segment;
}

int meg_tag_of_exchange(const meg_entry *e, int64_t number)
{
    int64_t tag = meg_tag_of_states(e, e->segments) + 2 * e->micro * number;
    return tag + 2 * e->micro < INT32_MAX ? (int)tag : -1;
}

int meg_entry_tags(const meg_entry *e)
{
    int most = MEG_TAG_OUTCOME;
    for (int i = 0; i < e->stations; i++)
        for (int k = 0; k < e->station[i].instrs; k++) {
            const meg_instr *in = &e->station[i].instr[k];
            bool message = in->code == MEG_SEND || in->code == MEG_RECV;
            int last = message ? in->tag + e->micro - 1 : in->tag;
            if ((message || in->code == MEG_REDUCE) && last > most) most = last;
        }
    return most + 1;
}
