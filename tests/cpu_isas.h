/* What the tests of the cpu device's own kernels share: devices with 1, 2 and 3 threads for each
 * instruction set that this machine has, formats written down once more, launching. oneDNN reads
 * its limit only once in a process, so each set has a child of its own.
 */
#ifndef MEG_TESTS_CPU_ISAS_H
#define MEG_TESTS_CPU_ISAS_H

#include "device/cpu/common/cpu.h"
#include "device/cpu/simd/simd.h"
#include "device/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    TEAMS = 3
};

/* ---- devices ---- */

static inline meg_device **devices(void **state)
{
    return *state;
}

static inline const meg_cpu *cpu_of(meg_device *d)
{
    return meg_device_state(d);
}

static inline int open_devices(void **state)
{
    meg_device **d = calloc(TEAMS, sizeof *d);
    meg_error e = {0};
    *state = d;
    for (int i = 0; i < TEAMS; i++)
        if (meg_device_open(&e, "cpu", i + 1, &d[i]) != MEG_OK) {
            print_error("%s\n", e.message);
            return -1;
        }
    print_message("kernels: %s\n", cpu_of(d[0])->simd->name);
    return 0;
}

static inline int close_devices(void **state)
{
    for (int i = 0; i < TEAMS; i++)
        meg_device_close(devices(state)[i]);
    free(*state);
    return 0;
}

/* Runs the tests once per limit; a machine without AVX-512 runs those for AVX2 twice. */
static inline int for_each_isa(int (*tests)(void))
{
    static const char *const limits[] = {"SSE41", "AVX2", "ALL"};
    int failed = 0;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        int status = 0;
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            setenv("DNNL_MAX_CPU_ISA", limits[i], 1);
            exit(tests() != 0);
        }
        if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0) failed++;
    }
    return failed != 0;
}

/* ---- formats, written down once more ---- */

static inline int64_t place(const meg_box *b, int block, int64_t n, int64_t c, int64_t pixel)
{
    int64_t pixels = meg_extent(b, MEG_D) * meg_extent(b, MEG_H) * meg_extent(b, MEG_W);
    int64_t blocks = (meg_extent(b, MEG_C) + block - 1) / block;
    return ((n * blocks + c / block) * pixels + pixel) * block + c % block;
}

/* Moves elements between plain and blocked, `size` bytes each; padding of the latter untouched. */
static inline void move(const meg_box *b, int block, void *blocked, void *plain, int64_t size,
                        bool pack)
{
    int64_t pixels = meg_extent(b, MEG_D) * meg_extent(b, MEG_H) * meg_extent(b, MEG_W), i = 0;
    for (int64_t n = 0; n < meg_extent(b, MEG_N); n++)
        for (int64_t c = 0; c < meg_extent(b, MEG_C); c++)
            for (int64_t p = 0; p < pixels; p++, i++) {
                char *x = (char *)blocked + place(b, block, n, c, p) * size;
                char *y = (char *)plain + i * size;
                memcpy(pack ? x : y, pack ? y : x, (size_t)size);
            }
}

/* ---- running a request ---- */

static inline void launch(meg_device *d, const meg_request *r, void *const at[MEG_OPERANDS])
{
    meg_error e = {0};
    meg_prepared *k = NULL;
    if (meg_device_prepare(d, &e, r, &k) != MEG_OK) fail_msg("%s", e.message);
    meg_device_launch(d, k, at, &(meg_moment){.seed = 1, .step = 1});
    meg_device_wait(d);
    meg_prepared_free(k);
}

static inline void copy(meg_device *d, const meg_box *b, meg_format from, meg_format to,
                        void *const data[2])
{
    meg_request r = {.code = MEG_COPY};
    void *at[MEG_OPERANDS] = {[MEG_X] = data[0], [MEG_Y] = data[1]};
    r.box[MEG_X] = r.box[MEG_Y] = *b;
    r.format[MEG_X] = from;
    r.format[MEG_Y] = to;
    launch(d, &r, at);
}

static inline double noise(uint64_t *seed) /* (-1, 1), exact in float */
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return (double)((int64_t)(*seed >> 41) - (1 << 22)) / (1 << 22);
}

#endif
