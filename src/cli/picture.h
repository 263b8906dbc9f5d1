/* The picture of a session: `--report FILE`. Asked for before the plan is made, so that what the forecast knew is kept;
 * where something runs, some steps of it are recorded; written at the end, by the first rank.
 */
#ifndef MEG_CLI_PICTURE_H
#define MEG_CLI_PICTURE_H

#include "cli/page/recording.h"
#include "cli/session.h"

typedef struct meg_picture { /* all zero: none is wanted */
    meg_session *session;
    const char *path;
    meg_recording *recording; /* NULL: nothing runs */
} meg_picture;

/* Collective. A file that cannot be written is an error now. path "": none is wanted. */
meg_status meg_picture_begin(meg_picture *p, meg_session *s, const char *path);

/* The plan is there: what is known of it, if nobody asked before. */
meg_status meg_picture_foresee(meg_session *s);

/* Collective. The trainer is there. others: who listens, too; NULL: nobody. */
meg_status meg_picture_listen(meg_picture *p, const meg_listeners *others);
void meg_picture_record(meg_picture *p, int64_t first,
                        int64_t steps); /* by their numbers, from 1 */
void meg_picture_step(meg_picture *p, const meg_progress *progress);

/* Collective. seconds: of a step, measured; 0: none. */
meg_status meg_picture_end(meg_picture *p, double seconds);
void meg_picture_drop(meg_picture *p); /* in any case */

/* "critical path: .." of a plan of several ranks; "": it is not known. The text is the arguments'. */
const char *meg_picture_path(const meg_session *s);

#endif
