/* The topology of a machine, by hwloc (Broquedis et al., "hwloc: a generic framework for managing
 * hardware affinities in HPC applications", PDP 2010): see topology.h. It knows containers, control groups,
 * many kinds of processors, and imaginary machines, with which this is tested.
 */
#include "machine/topology.h"

#include <hwloc.h>
#include <stdlib.h>

struct meg_topology {
    hwloc_topology_t tree;
};

static meg_status load(meg_error *e, hwloc_topology_t tree, const char *text)
{
    MEG_CHECK(e, !text || hwloc_topology_set_synthetic(tree, text) == 0, MEG_EARG,
              "'%s' describes no machine: use words like \"package:2 core:4 pu:2\"", text);
    MEG_CHECK(e, hwloc_topology_load(tree) == 0, MEG_EIO,
              "hwloc cannot say how the processors of this machine are grouped");
    return MEG_OK;
}

meg_status meg_topology_open(meg_error *e, const char *text, meg_topology **out)
{
    meg_topology *t = calloc(1, sizeof *t);
    MEG_CHECK(e, t, MEG_ENOMEM, "no memory for the topology of the machine");
    if (hwloc_topology_init(&t->tree) != 0) {
        free(t);
        return meg_fail(e, MEG_ENOMEM, "no memory for the topology of the machine");
    }
    meg_status status = load(e, t->tree, text);
    if (status == MEG_OK) *out = t;
    else meg_topology_close(t);
    return status;
}

void meg_topology_close(meg_topology *t)
{
    if (!t) return;
    hwloc_topology_destroy(t->tree);
    free(t);
}

/* ---- counting ---- */

static bool meets(hwloc_obj_t object, const meg_processors *within)
{
    int number;
    hwloc_bitmap_foreach_begin(
        number, object->cpuset) if (!within || (number < MEG_PROCESSORS &&
                                                meg_processors_has(within, number))) return true;
    hwloc_bitmap_foreach_end();
    return false;
}

static int count_of(const meg_topology *t, hwloc_obj_type_t type, const meg_processors *within)
{
    int count = 0;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(t->tree, type, o));)
        count += meets(o, within);
    return count;
}

meg_topology_counts meg_topology_count(const meg_topology *t, const meg_processors *within)
{
    return (meg_topology_counts){.packages = count_of(t, HWLOC_OBJ_PACKAGE, within),
                                 .nodes = count_of(t, HWLOC_OBJ_NUMANODE, within),
                                 .cores = count_of(t, HWLOC_OBJ_CORE, within),
                                 .processors = count_of(t, HWLOC_OBJ_PU, within)};
}

/* ---- neighbours ---- */

int meg_topology_order(const meg_topology *t, const meg_processors *set, int out[MEG_PROCESSORS])
{
    meg_processors left = *set;
    int count = 0;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(t->tree, HWLOC_OBJ_PU, o));) {
        if (o->os_index >= MEG_PROCESSORS || !meg_processors_has(&left, (int)o->os_index)) continue;
        left.bits[o->os_index / 64] &= ~((uint64_t)1 << (o->os_index % 64));
        out[count++] = (int)o->os_index;
    }
    for (int i = 0; i < MEG_PROCESSORS; i++)
        if (meg_processors_has(&left, i)) out[count++] = i;
    return count;
}

meg_processors meg_topology_part(const meg_topology *t, const meg_processors *set, int i, int n)
{
    int list[MEG_PROCESSORS], count = meg_topology_order(t, set, list);
    meg_processors part = {{0}};
    for (int k = count * i / n; k < count * (i + 1) / n; k++)
        meg_processors_add(&part, list[k]);
    return part;
}
