/* Plan files on disk: what --plan reads, and what `plan --save` and checkpoints write (the text: plan/text.h). */
#ifndef MEG_TRAIN_CHECKPOINT_PLANFILE_H
#define MEG_TRAIN_CHECKPOINT_PLANFILE_H

#include "plan/text.h"

meg_status meg_plan_file_read(meg_error *e, const char *path, meg_plan_text **out);
meg_status meg_plan_file_write(meg_error *e, const char *path, const meg_plan *p);

#endif
