/* `megalith version`. */
#include "cli/command.h"

static meg_status run(const meg_arguments *a, meg_error *e)
{
    (void)a, (void)e;
    puts("megalith " MEG_VERSION);
    return MEG_OK;
}

const meg_command meg_command_version = {
    .name = "version",
    .usage = "",
    .doc = "prints the version",
    .run = run,
};
