/* `megalith doctor`: what this build and this machine are, one line each. It never fails: what is
 * missing is said in its line.
 */
#include "cli/launch/launch.h"
#include "cli/session.h"
#include "comm/comm.h"
#include "device/cpu/common/cpu.h"
#include "device/cpu/simd/simd.h"
#include "exec/meters/rates.h"
#include "machine/memory.h"
#include "machine/topology.h"

#include <inttypes.h>
#include <stdarg.h>

__attribute__((format(printf, 2, 3))) static void line(const char *what, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    printf("%-14s", what);
    vprintf(format, list);
    putchar('\n');
    va_end(list);
}

/* With what may be swapped; less, if a control group limits it. */
static void print_machine(void)
{
    char memory[32], left[32];
    meg_memory m = meg_memory_look("");
    meg_print_bytes(m.most, memory);
    meg_print_bytes(m.free, left);
    line("memory", "%s%s, %s of it free", memory, m.limited ? " by a limit" : "", left);
}

static const char *many(int count)
{
    return count == 1 ? "" : "s";
}

static void print_cores(meg_context *ctx)
{
    meg_error e = {0};
    meg_topology *t = NULL;
    int used = meg_device_threads(ctx->device);
    if (meg_topology_open(&e, NULL, &t) != MEG_OK) {
        line("cores", "%d in use; %s", used, e.message);
        return;
    }
    meg_topology_counts n = meg_topology_count(t, NULL);
    line("cores", "%d in use; %d package%s, %d NUMA node%s, %d core%s, %d processor%s", used,
         n.packages, many(n.packages), n.nodes, many(n.nodes), n.cores, many(n.cores), n.processors,
         many(n.processors));
    meg_topology_close(t);
}

static void print_device(meg_context *ctx)
{
    meg_rates r = {0};
    meg_rates_probe(ctx->device, &r);
    print_cores(ctx);
    if (meg_device_kind_of(ctx->device) == &meg_device_cpu) {
        const meg_cpu *cpu = meg_device_state(ctx->device);
        line("instructions", "%s, channels in blocks of %d", cpu->simd->name, cpu->block);
    }
    line("device", "%s: %.1f GFLOP/s, %.1f GB/s, %.1f us per kernel; plain C %.2f GFLOP/s",
         ctx->options.device, 1e-9 * r.flops, 1e-9 * r.bandwidth, 1e6 * r.launch, 1e-9 * r.plain);
}

/* -np wants both: our plug-in, and the MPI's launcher. */
static void print_mpi(void)
{
    int usable = 0;
    for (int i = 0; meg_comm_mpi(i); i++) {
        const char *mpi = meg_comm_mpi(i), *program = meg_launch_program(mpi);
        bool plugin = meg_comm_has(mpi);
        usable += plugin && program;
        if (plugin && program) line("mpi", "%s, started with %s", mpi, program);
        else if (plugin) line("mpi", "%s: its launcher is missing", mpi);
        else if (program)
            line("mpi", "%s: %s is here, but this build has no plug-in for it", mpi, program);
    }
    if (usable == 0)
        line("mpi", "missing: -np N and run need one (Debian: libopenmpi-dev openmpi-bin, then "
                    "build again)");
}

static void print_data(meg_context *ctx)
{
    static const char *const sources[] = {"fashion-mnist:split=train", "fashion-mnist:split=test"};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        meg_data *d = NULL;
        if (meg_data_open(ctx, sources[i], &d) == MEG_OK)
            line("data", "%s, %" PRId64 " samples", sources[i], meg_data_count(d));
        else line("data", "missing: %s", meg_message(ctx));
        meg_data_free(d);
    }
}

static meg_status run(const meg_arguments *a, meg_error *e)
{
    char version[32];
    meg_session s;
    meg_status status = meg_session_open(&s, a, e);
    if (status == MEG_OK) {
        meg_onednn_version(version, sizeof version);
        line("megalith", "%s", MEG_VERSION);
        line("compiler", "%s", __VERSION__);
        line("oneDNN", "%s", version);
        print_machine();
        print_device(s.ctx);
        print_mpi();
        print_data(s.ctx);
    }
    meg_session_close(&s);
    return status;
}

const meg_command meg_command_doctor = {
    .name = "doctor",
    .usage = "[--threads N] [--device D]",
    .doc = "says what this build and this machine are, and what is missing",
    .takes = MEG_TAKES_CONTEXT,
    .run = run,
};
