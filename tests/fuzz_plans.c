/* ./do fuzz N SEED: N random graphs under random plans, each against one rank; then N convolutional
 *     ones under plans that cut inside layers. --pipes, --meshes: the first, the second alone.
 * ./do fuzz --matrix [DEVICE [MODEL]]: all models under all plans of tests/matrix.h; DEVICE is
 *     ref64 (default) or cpu.
 * ./do fuzz --mesh-list [DEVICE [MODEL]]: all models under all meshes of tests/mesh_list.h.
 * ./do fuzz --mpi N SEED runs, under mpirun, --case SEED on as many ranks as --ranks SEED says.
 */
#include "fuzz_case.h"
#include "fuzz_matrix.h"
#include "fuzz_mesh.h"
#include "fuzz_mpi.h"
#include "mesh_list.h"

/* Meshes are drawn from a wider range than any graph allows: up to a third may be refused. */
static int fuzz(fuzz_make *make, const char *option, int64_t count, uint64_t seed)
{
    int64_t by[3] = {0, 0, 0};
    for (int64_t i = 0; i < count; i++) {
        fprintf(stderr, "seed %llu\n", (unsigned long long)(seed + (uint64_t)i));
        by[fuzz_run(make, seed + (uint64_t)i, option)]++;
    }
    printf("%s%lld cases: %lld agree, %lld refused, %lld FAILED\n", option, (long long)count,
           (long long)by[FUZZ_GOOD], (long long)by[FUZZ_REFUSED], (long long)by[FUZZ_BAD]);
    int64_t share = make == fuzz_make_pipe ? 10 : 3;
    return by[FUZZ_BAD] > 0 || by[FUZZ_REFUSED] * share > count + 10;
}

static int pipes(int64_t count, uint64_t seed)
{
    return fuzz(fuzz_make_pipe, "--pipes ", count, seed);
}

static int meshes(int64_t count, uint64_t seed)
{
    return fuzz(mesh_case_of, "--meshes ", count, seed);
}

static int64_t number(int argc, char **argv, int at, int64_t otherwise)
{
    return argc > at ? strtoll(argv[at], NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "100";
    const char *device = argc > 2 ? argv[2] : "ref64", *name = argc > 3 ? argv[3] : NULL;
    if (strcmp(what, "--matrix") == 0) return matrix_run(matrix_at_plans, device, name);
    if (strcmp(what, "--mesh-list") == 0) return matrix_run(mesh_at, device, name);
    bool word = what[0] == '-';
    uint64_t seed = (uint64_t)number(argc, argv, 2, 1);
    if (strcmp(what, "--ranks") == 0) return fuzz_mpi_ranks(seed);
    if (strcmp(what, "--case") == 0) return fuzz_mpi_case(seed);
    int64_t count = number(argc, argv, word ? 2 : 1, 100);
    if (word) seed = (uint64_t)number(argc, argv, 3, 1);
    if (strcmp(what, "--pipes") == 0) return pipes(count, seed);
    if (strcmp(what, "--meshes") == 0) return meshes(count, seed);
    return pipes(count, seed) + meshes(count, seed) > 0;
}
