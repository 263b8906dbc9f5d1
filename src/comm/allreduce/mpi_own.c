/* The MPI library's own allreduce: the judge in tests, the baseline in benchmarks, and the choice
 * where a machine does it in hardware. It shows no steps; libraries choose between the likes of
 * halving_doubling and ring by size, so the better of these is its price.
 *
 * Rajeev Thakur, Rolf Rabenseifner, William Gropp, Optimization of collective communication
 * operations in MPICH, 2005.
 */
#include "comm/allreduce/allreduce.h"

static double cost(const meg_allreduce *a, int64_t element_bytes, const meg_allreduce_rates *r)
{
    double ring = meg_allreduce_ring.cost(a, element_bytes, r);
    double halving = meg_allreduce_halving_doubling.cost(a, element_bytes, r);
    return ring < halving ? ring : halving;
}

const meg_allreduce_kind meg_allreduce_mpi = {
    .name = "mpi",
    .doc = "the MPI library's own, over all ranks of a communicator",
    .paper = "Thakur, Rabenseifner and Gropp, Collective communication in MPICH, IJHPCA 2005",
    .cost = cost,
};
