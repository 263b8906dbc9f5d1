/* Plan files on disk: what --plan reads and `plan --save` writes (the text: plan/text.h). */
#ifndef MEG_CLI_PLANFILE_H
#define MEG_CLI_PLANFILE_H

#include "plan/text.h"

meg_status meg_plan_file_read(meg_error *e, const char *path, meg_plan_text **out);
meg_status meg_plan_file_write(meg_error *e, const char *path, const meg_plan *p);

#endif
