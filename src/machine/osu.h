/* What the OSU Micro-Benchmarks print, as data, and a link of a machine made of it: on clusters somebody has run
 * them already. Texts are bytes without trust; reading files is somebody else's business (textfile.h).
 *
 *     # OSU MPI Latency Test v5.9               the title says what was measured
 *     # Size          Latency (us)
 *     0                       1.05              rows: bytes of a message, and the figure
 *     ...
 *
 *     osu_latency         one message at a time, half of a round trip   -> latency, bandwidth by size
 *     osu_bw              many messages under way, of one pair          -> all: if nothing says it better; bandwidth
 *                                                                          by size where osu_latency is not given
 *     osu_bibw            the same in both directions at once           -> all: not more than half of it
 *     osu_mbw_mr          the same of many pairs                        -> all:
 *     osu_allreduce       a sum over ranks                              -> no link: it is compared with (`megalith osu`)
 */
#ifndef MEG_MACHINE_OSU_H
#define MEG_MACHINE_OSU_H

#include "machine/description.h"

#include <stddef.h>

typedef enum meg_osu_kind {
    MEG_OSU_LATENCY,
    MEG_OSU_BANDWIDTH,
    MEG_OSU_BOTH_WAYS,
    MEG_OSU_PAIRS,
    MEG_OSU_ALLREDUCE,
    MEG_OSU_KINDS
} meg_osu_kind;

enum {
    MEG_OSU_ROWS = 64,
    MEG_OSU_FILES = 8,         /* of one link */
    MEG_OSU_TEXT_MAX = 1 << 20 /* bytes of an output */
};

typedef struct meg_osu {
    meg_osu_kind kind;
    int rows;
    struct {
        int64_t bytes;
        double figure;   /* seconds, or bytes a second */
    } row[MEG_OSU_ROWS]; /* ascending */
} meg_osu;

const char *meg_osu_name(meg_osu_kind kind); /* "osu_latency" */

/* `what` and the line are named in messages. */
meg_status meg_osu_read(meg_error *e, const char *what, const char *text, size_t size,
                        meg_osu *out);

/* The link that the outputs are of; one must be osu_latency's. Figures have three digits, as far as such
 * measurements are worth anything. */
meg_status meg_osu_link(meg_error *e, const char *what, const meg_osu *osu, int count,
                        meg_link *out);

#endif
