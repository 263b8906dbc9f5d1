/* The boundary of the device: places, never addresses. `far` has memory that the host cannot touch; what
 * reaches it all the same dies, what does not wait has poison in its numbers, and both are planted here. */
#include "device/arena.h"
#include "exec/traffic.h"
#include "threads_help.h"

#include "device_help.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    COUNT = 1000,
    BYTES = COUNT * sizeof(double),
    PLACES = 4 /* of so many bytes, each rounded up to 64 */
};

static const char *const kinds[] = {"ref64", "far"};

static int64_t place(int i)
{
    return (int64_t)i * (BYTES + 64) / 64 * 64;
}

static meg_arena *arena_of(meg_device *d)
{
    meg_error e = {0};
    meg_arena *a = NULL;
    meg_stretch all[] = {{place(0), place(1)}, {place(1) + 64, place(PLACES)}};
    meg_staging staging = {2, all, place(PLACES) - place(0) - 64};
    assert_int_equal(meg_arena_new(d, &e, &(meg_arena_spec){place(PLACES), MEG_FILL, &staging}, &a),
                     MEG_OK);
    return a;
}

static void count_up(void *first, void *to)
{
    for (int i = 0; i < COUNT; i++)
        ((double *)to)[i] = *(const double *)first + i;
}

static void load(meg_arena *a, int to, double *first)
{
    meg_arena_load(a, &(meg_stretch){place(to), place(to) + BYTES}, count_up, first);
}

/* Every call there is, on a device that shares memory and on one that does not. */
static void bytes_come_and_go(void **unused)
{
    (void)unused;
    for (int k = 0; k < 2; k++) {
        meg_device *d = open_device(kinds[k], 1);
        meg_arena *a = arena_of(d);
        double seven = 7, got[COUNT];
        assert_int_equal(meg_arena_touched(a), 0);
        load(a, 2, &seven);
        meg_arena_copy(a, place(3), place(2), BYTES);
        meg_arena_fill(a, place(2), BYTES, 0);
        meg_arena_read(a, place(3), BYTES, got);
        meg_device_wait(d);
        assert_true(got[0] == 7 && got[COUNT - 1] == 7 + COUNT - 1);
        assert_int_equal(meg_arena_touched(a), place(3) + BYTES);

        meg_mapping m = {.at = place(2), .bytes = BYTES, .reads = true, .writes = true};
        meg_arena_map(a, &m);
        assert_true(((double *)m.data)[5] == 0);
        ((double *)m.data)[5] = 55;
        meg_arena_unmap(a, &m);
        assert_null(m.data);
        meg_arena_read(a, place(2), BYTES, got);
        meg_device_wait(d);
        assert_true(got[5] == 55 && got[6] == 0);
        meg_arena_free(a);
        meg_device_close(d);
    }
    meg_arena_free(NULL);
}

static void kernels_run_on_places(void **unused)
{
    (void)unused;
    for (int k = 0; k < 2; k++) {
        meg_device *d = open_device(kinds[k], 1);
        meg_arena *a = arena_of(d);
        meg_request r = instruction(MEG_ADD, meg_box_of(1, COUNT, 1, 1, 1), MEG_F64);
        meg_prepared *add = prepare(d, &r);
        double one = 1, ten = 10, got[COUNT];
        int64_t at[MEG_OPERANDS];
        for (int o = 0; o < MEG_OPERANDS; o++)
            at[o] = -1;
        at[MEG_X] = place(0), at[MEG_X + 1] = place(2), at[MEG_Y] = place(3);
        load(a, 2, &ten);
        meg_arena_load(a, &(meg_stretch){place(0), place(0) + BYTES}, count_up, &one);
        meg_arena_launch(a, add, at, &moment);
        meg_arena_read(a, place(3), BYTES, got);
        meg_device_wait(d);
        for (int i = 0; i < COUNT; i++)
            assert_true(got[i] == 11 + 2 * i);
        meg_prepared_free(add);
        meg_arena_free(a);
        meg_device_close(d);
    }
}

/* ---- planted: the host reads a slot by itself ---- */

static int signal_of_reading(const char *at)
{
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGSEGV, SIG_DFL);
        _exit(*(volatile const char *)at == 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void host_access_dies(void **unused)
{
    (void)unused;
    if (SANITIZED) skip();
    for (int k = 0; k < 2; k++) {
        meg_device *d = open_device(kinds[k], 1);
        meg_arena *a = arena_of(d);
        int64_t last = place(PLACES) - 1;
        assert_int_equal(signal_of_reading(meg_arena_address(a, 0)), k ? SIGSEGV : 0);
        assert_int_equal(signal_of_reading(meg_arena_address(a, last)), k ? SIGSEGV : 0);
        assert_int_equal(signal_of_reading(meg_arena_staging(a, place(2))), 0);
        meg_arena_free(a);
        meg_device_close(d);
    }
}

/* ---- planted: a message does not wait for what makes it; in whole programs: t779-far ---- */

static void doze(void *nothing)
{
    (void)nothing;
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
}

typedef struct exchange {
    const char *kind;
    bool waits; /* as it should */
    bool right; /* what came */
} exchange;

/* Rank 0 loads late and sends; rank 1 receives and adds. */
static void exchange_numbers(meg_comm *c, void *argument)
{
    exchange *x = argument;
    meg_error e = {0};
    meg_device *d = NULL;
    OK(&e, meg_device_open(&e, x->kind, 1, &d));
    meg_arena *a = arena_of(d);
    meg_traffic_list *t = meg_traffic_new(c, d, a);
    bool sends = meg_comm_rank(c) == 0;
    double three = 3, got[COUNT];
    meg_arena_fetch(a, place(3), 8); /* what was moved before is no reason to wake up */
    meg_device_wait(d);
    meg_device_call(d, doze, NULL);
    if (sends) load(a, 2, &three);
    meg_traffic_item item = {.code = sends ? MEG_SEND : MEG_RECV,
                             .peer = sends ? 1 : 0,
                             .tag = 7,
                             .at = place(2),
                             .bytes = BYTES,
                             .after = x->waits && sends ? meg_device_look(d).put : 0,
                             .what = "numbers"};
    meg_traffic_add(t, &item);
    while (!meg_traffic_idle(t))
        OK(&e, meg_traffic_wait(t, &e));
    meg_arena_read(a, place(2), BYTES, got);
    meg_device_wait(d);
    for (int i = 0; !sends && i < COUNT; i++)
        x->right = (i == 0 || x->right) && got[i] == 3 + i;
    meg_traffic_free(t);
    meg_arena_free(a);
    meg_device_close(d);
}

static void missing_wait_shows(void **unused)
{
    (void)unused;
    for (int k = 0; k < 4; k++) {
        exchange x = {.kind = kinds[k % 2], .waits = k < 2};
        run_ranks(&(meg_threads_options){.ranks = 2}, exchange_numbers, &x);
        assert_true(x.right == x.waits);
    }
}

/* ---- waiting ---- */

/* Rank 1 waits for a message of a rank that does something else for a while. */
static void wait_for_late(meg_comm *c, void *argument)
{
    exchange *x = argument;
    if (meg_comm_rank(c) == 0) nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    exchange_numbers(c, x);
}

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void waiting_costs_little(void **unused)
{
    (void)unused;
    for (int k = 0; k < 2; k++) {
        exchange x = {.kind = kinds[k], .waits = true};
        double start = processor_seconds();
        run_ranks(&(meg_threads_options){.ranks = 2}, wait_for_late, &x);
        double used = processor_seconds() - start;
        assert_true(x.right);
        if (used > 0.15) fail_msg("%s: 1 s of waiting cost %g s of processor time", kinds[k], used);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_and_go),    cmocka_unit_test(kernels_run_on_places),
        cmocka_unit_test(host_access_dies),     cmocka_unit_test(missing_wait_shows),
        cmocka_unit_test(waiting_costs_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
