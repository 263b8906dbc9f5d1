/* The words of context and trainer. */
#include "train/trainer.h"

#include <stddef.h>

#define AT(field) offsetof(meg_context_options, field)

const meg_param meg_context_params[] = {
    {"device", MEG_PARAM_TEXT, AT(device), "cpu", "who computes: megalith list devices", NULL, 0,
     0},
    {"threads", MEG_PARAM_INT, AT(threads), "0",
     "of the cpu device (0: this rank's share of the cores)", NULL, 0, 4096},
    {"machine", MEG_PARAM_STRING, AT(machine), "",
     "what plans are made for: a description or a file of one (without: this machine)", NULL, 0, 0},
    {"seed", MEG_PARAM_INT, AT(seed), "1", "of all random numbers", NULL, 0, 1e15},
    {"log", MEG_PARAM_CHOICE, AT(log), "warn", "what is said on stderr", "quiet|warn|info|debug", 0,
     0},
    {"pin", MEG_PARAM_BOOL, AT(pin), "yes",
     "each of a node's ranks keeps to its share of the cores", NULL, 0, 0},
    {"prices", MEG_PARAM_STRING, AT(prices), "",
     "what kernels cost: a file of megalith probe, or builtin (default: of this machine, probed "
     "once)",
     NULL, 0, 0},
    {NULL, 0, 0, NULL, NULL, NULL, 0, 0}};

#undef AT
#define AT(field) offsetof(meg_trainer_options, field)

const meg_param meg_trainer_params[] = {
    {"lr", MEG_PARAM_REAL, AT(schedule.lr), "0.1",
     "learning rate (the largest); of the others than sgd 0.001, unless given", NULL, 0, 1e6},
    {"lr_schedule", MEG_PARAM_CHOICE, AT(schedule.kind), "constant", "how the rate changes",
     "constant|step|cosine", 0, 0},
    {"epochs", MEG_PARAM_REAL, AT(schedule.epochs), "1", "passes over the data", NULL, 0, 1e9},
    {"warmup", MEG_PARAM_REAL, AT(schedule.warmup), "0", "epochs in which the rate rises", NULL, 0,
     1e9},
    {"drop", MEG_PARAM_REAL, AT(schedule.drop), "0.1", "lr_schedule=step: factor", NULL, 0, 1},
    {"drop_every", MEG_PARAM_REAL, AT(schedule.drop_every), "30", "lr_schedule=step: epochs", NULL,
     1e-9, 1e9},
    {"shuffle", MEG_PARAM_BOOL, AT(shuffle), "yes", "another order every epoch", NULL, 0, 0},
    {"shift", MEG_PARAM_INT, AT(shift), "0", "augmentation: shift by up to so many pixels", NULL, 0,
     1 << 20},
    {"flip", MEG_PARAM_BOOL, AT(flip), "no", "augmentation: mirror at random", NULL, 0, 0},
    {"shard", MEG_PARAM_BYTES, AT(shard), "0",
     "saves weights as files of at most so many bytes, e.g. 5GB (0: as one)", NULL, 0, 0},
    {"checkpoint", MEG_PARAM_STRING, AT(checkpoint), "",
     "folder for checkpoints; training goes on from the newest", NULL, 0, 0},
    {"checkpoint_every", MEG_PARAM_INT, AT(checkpoint_every), "0",
     "steps between checkpoints (0: an epoch); there is one at the end, too", NULL, 0, 1e15},
    {"keep", MEG_PARAM_INT, AT(keep), "3", "how many checkpoints", NULL, 1, 1e9},
    {"resume", MEG_PARAM_CHOICE, AT(resume), "auto",
     "from a checkpoint: if there is one; there must be one; there must be none", "auto|yes|no", 0,
     0},
    {NULL, 0, 0, NULL, NULL, NULL, 0, 0}};
