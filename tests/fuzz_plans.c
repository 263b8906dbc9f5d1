/* ./do fuzz N SEED: N random graphs under random plans, each against one rank.
 * ./do fuzz --matrix [DEVICE [MODEL]]: all models under all plans of tests/matrix.h; DEVICE is
 *     ref64 (default) or cpu.
 * ./do fuzz --mpi N SEED runs, under mpirun, --case SEED on as many ranks as --ranks SEED says.
 */
#include "fuzz_case.h"
#include "fuzz_matrix.h"
#include "fuzz_mpi.h"

static int fuzz(int64_t count, uint64_t seed)
{
    int64_t by[3] = {0, 0, 0};
    for (int64_t i = 0; i < count; i++) {
        fprintf(stderr, "seed %llu\n", (unsigned long long)(seed + (uint64_t)i));
        by[fuzz_run(seed + (uint64_t)i)]++;
    }
    printf("%lld cases: %lld agree, %lld refused, %lld FAILED\n", (long long)count,
           (long long)by[FUZZ_GOOD], (long long)by[FUZZ_REFUSED], (long long)by[FUZZ_BAD]);
    return by[FUZZ_BAD] > 0 || by[FUZZ_REFUSED] * 10 > count + 10;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "100";
    if (strcmp(what, "--matrix") == 0)
        return matrix_run(argc > 2 ? argv[2] : "ref64", argc > 3 ? argv[3] : NULL);
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    if (strcmp(what, "--ranks") == 0) return fuzz_mpi_ranks(seed);
    if (strcmp(what, "--case") == 0) return fuzz_mpi_case(seed);
    return fuzz(strtoll(what, NULL, 10), seed);
}
