/* Words of a plan that have no effect on it: the table, and its conditions (base/rule.h). They are
 * about speed, memory and place, and scripts run them on one rank and on many: warnings. Words of the
 * optimizer are about learning; its own table says which are refused.
 */
#include "base/rule.h"
#include "ops/optimizer/optimizer.h"
#include "plan/partition/segments.h"
#include "plan/plan.h"

#include <string.h>

static bool has_stages(const void *state)
{
    const meg_plan *p = state;
    return p->options.stages > 1;
}

static bool has_order(const void *state)
{
    const meg_plan *p = state;
    return p->options.stages > 1 || strcmp(p->options.schedule, "serial") == 0;
}

static bool has_groups(const void *state)
{
    const meg_plan *p = state;
    return p->options.stages > 1 || strchr(p->options.mesh, '/');
}

static bool cuts_by_itself(const void *state)
{
    const meg_plan *p = state;
    return p->options.stages == 1 || !p->options.assign[0];
}

static bool cuts_channels(const void *state)
{
    const meg_plan *p = state;
    for (int i = 0; i < p->segments; i++)
        if (p->segment[i].dim[MEG_C] > 1) return true;
    return false;
}

/* Do ranks hold the same weights? */
static bool shares_weights(const void *state)
{
    const meg_plan *p = state;
    bool shared = p->replicas > 1 || (p->directions > 1 && p->world.ranks > 1);
    for (int i = 0; i < p->segments; i++)
        shared = shared || p->segment[i].size > 1;
    return shared;
}

static bool has_parts(const void *state)
{
    const meg_plan *p = state;
    return p->options.zero != MEG_ZERO_STATES || !shares_weights(p) ||
           meg_optimizer_states(p->optimizer, p->settings) > 0;
}

static bool normalises(const void *state)
{
    const meg_plan *p = state;
    return meg_graph_normalises(p->source);
}

static const meg_rule RULES[] = {
    {"norm", "0", normalises, MEG_WARNS,
     "has no effect: this network has no batch norm; leave it out"},
    {"schedule", "auto", has_order, MEG_WARNS,
     "has no effect: it orders the work of stages, and there is one; give stages=2 or more"},
    {"level", "block", has_groups, MEG_WARNS,
     "has no effect: it is for stages=2 or more, and for a mesh that changes within a stage"},
    {"balance", "compute", has_stages, MEG_WARNS,
     "has no effect: there is one stage; give stages=2 or more"},
    {"balance", "compute", cuts_by_itself, MEG_WARNS,
     "has no effect: assign= says where stages begin; leave one of them out"},
    {"assign", "", has_stages, MEG_WARNS,
     "has no effect: there is one stage; give stages=2 or more"},
    {"channels", "auto", cuts_channels, MEG_WARNS,
     "has no effect: no mesh cuts channels; give a mesh with c, as mesh=c2"},
    {"zero", "0", shares_weights, MEG_WARNS,
     "has no effect: no ranks share weights; give replicas or a mesh, on more ranks"},
    {"zero", "0", has_parts, MEG_WARNS,
     "has no effect: this optimizer keeps no states (sgd: give it momentum); or use zero=3"},
    {"allreduce", "ring", shares_weights, MEG_WARNS,
     "has no effect: no ranks sum gradients; give replicas or a mesh, on more ranks"},
    {"bucket", "16MiB", shares_weights, MEG_WARNS,
     "has no effect: no ranks sum gradients; give replicas or a mesh, on more ranks"},
    {0},
};

meg_status meg_plan_judge(const meg_plan *p, meg_error *e, const meg_logger *log,
                          const char *options)
{
    const meg_ruled own = {"plan", meg_plan_params, RULES, options, p};
    const meg_ruled optimizer = {p->optimizer->name, p->optimizer->params, p->optimizer->rules,
                                 options, p->settings};
    MEG_TRY(e, meg_rules_check(e, log, &own));
    return meg_rules_check(e, log, &optimizer);
}
