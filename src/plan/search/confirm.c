/* The choice, held against every rank. Of many ranks a search looks at the middle of each mesh, and at nothing but the
 * step. Others may need more: at an edge, with a row more than their neighbours, or for evaluation. A trainer would
 * refuse such a plan, so it is not chosen.
 */
#include "plan/search/look.h"

static const double SHARE = 2; /* of the work: when so much was done, a choice is taken as it is */

bool meg_look_confirm(meg_seeker *x, meg_candidate *c)
{
    const meg_search_ask *q = x->ask;
    meg_whole whole;
    if (q->ranks <= MEG_SEARCH_FEW || q->memory == 0 || meg_look_enough(x, SHARE)) return true;
    x->out->work += q->graph->nodes; /* what is refused costs something, too */
    if (meg_look_plan(x, c->words, true, &whole) != MEG_OK) {
        c->verdict = MEG_ILLEGAL;
        c->why = meg_pool_text(x->out->pool, "%s", x->error.message);
        return false;
    }
    x->out->work += whole.work;
    bool fits = meg_look_judge(x, &whole, c);
    meg_whole_free(&whole);
    return fits;
}
