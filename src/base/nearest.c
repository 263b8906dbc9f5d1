/* Nearest words: see nearest.h. */
#include "base/nearest.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum {
    LONGEST = 63,     /* letters compared */
    BEGINNING = 3,    /* letters of a word that stand for all of it */
    NAMES_BYTES = 700 /* of a message */
};

/* What others call it. A row counts only where its word is one of those that are known. */
static const struct {
    const char *asked, *word, *why;
} SYNONYMS[] = {
    {"learning_rate", "lr", NULL},
    {"rate", "lr", NULL},
    {"eta", "lr", NULL},
    {"scheduler", "lr_schedule", NULL},
    {"lr_scheduler", "lr_schedule", NULL},
    {"decay", "weight_decay", NULL},
    {"wd", "weight_decay", NULL},
    {"l2", "weight_decay", NULL},
    {"eps", "epsilon", NULL},
    {"betas", "beta1", "and --beta2"},
    {"gamma", "drop", NULL},
    {"step_size", "drop_every", NULL},
    {"batch_size", "batch", NULL},
    {"bs", "batch", NULL},
    {"micro_batches", "micro", NULL},
    {"micro_batch_size", "micro", "it is their number"},
    {"accumulate", "micro", NULL},
    {"accumulation", "micro", NULL},
    {"gradient_accumulation_steps", "micro", NULL},
    {"num_epochs", "epochs", NULL},
    {"max_epochs", "epochs", NULL},
    {"iterations", "steps", NULL},
    {"max_steps", "steps", NULL},
    {"num_threads", "threads", NULL},
    {"workers", "threads", NULL},
    {"num_workers", "threads", NULL},
    {"random_seed", "seed", NULL},
    {"num_classes", "classes", NULL},
    {"image_size", "image", NULL},
    {"input_shape", "image", NULL},
    {"np", "ranks", "it plans for so many, and starts none"},
    {"n", "ranks", "it plans for so many, and starts none"},
    {"n", "np", NULL},
    {"ranks", "np", NULL},
    {"nproc", "np", NULL},
    {"nproc_per_node", "np", NULL},
    {"world_size", "np", NULL},
    {"hosts", "m", "a file with one host a line"},
    {"hostfile", "m", NULL},
    {"machinefile", "m", NULL},
    {"ppn", "npernode", NULL},
    {"pipeline", "stages", NULL},
    {"pp", "stages", NULL},
    {"data_parallel", "replicas", NULL},
    {"dp", "replicas", NULL},
    {"tensor_parallel", "mesh", "as c2"},
    {"tp", "mesh", "as c2"},
    {"spatial", "mesh", "as 2x2"},
    {"memory", "budget", NULL},
    {"dataset", "data", NULL},
    {"train_data", "data", NULL},
    {"valid", "test", NULL},
    {"validation", "test", NULL},
    {"val", "test", NULL},
    {"test_data", "test", NULL},
    {"weights", "load", NULL},
    {"pretrained", "load", NULL},
    {"init", "load", NULL},
    {"load", "weights", NULL},
    {"output", "save", NULL},
    {"out", "save", NULL},
    {"save", "out", NULL},
    {"output", "out", NULL},
    {"o", "out", NULL},
    {"checkpoint_dir", "checkpoint", NULL},
    {"checkpoints", "checkpoint", NULL},
    {"save_every", "checkpoint_every", NULL},
    {"resume_from", "checkpoint", "training goes on from the newest of that folder"},
    {"verbose", "log", "as --log info"},
    {"log_level", "log", NULL},
    {"print_every", "every", NULL},
    {"log_every", "every", NULL},
    {"augment", "flip", "and --shift"},
    {"hflip", "flip", NULL},
    {"gpu", "device", "GPUs are not there yet"},
    {"gpus", "device", "GPUs are not there yet"},
    {"cuda", "cpu", "GPUs are not there yet"},
    {"gpu", "cpu", "GPUs are not there yet"},
    {"rocm", "cpu", "GPUs are not there yet"},
    {"hip", "cpu", "GPUs are not there yet"},
    {"mps", "cpu", "GPUs are not there yet"},
    {"xpu", "cpu", "GPUs are not there yet"},
    {"tpu", "cpu", "TPUs are not there"},
    {"none", "constant", NULL},
    {"multistep", "step", NULL},
    {"numpy", "npy", NULL},
    {"random", "synthetic", NULL},
    {"dummy", "synthetic", NULL},
    {"mnist", "fashion-mnist", NULL},
    {"linear", "dense", NULL},
    {"gemm", "dense", NULL},
    {"fc", "dense", NULL},
    {"bn", "batchnorm", NULL},
    {"upsample", "resize", NULL},
    {"cross_entropy", "softmax_xent", NULL},
    {"crossentropy", "softmax_xent", NULL},
    {"crossentropyloss", "softmax_xent", NULL},
    {"bce", "bce_logits", NULL},
    {"l2_loss", "mse", NULL},
    {"fit", "train", NULL},
    {"benchmark", "bench", NULL},
    {"eval", "train", "with --epochs 0 --load FILE --test SOURCE"},
    {"evaluate", "train", "with --epochs 0 --load FILE --test SOURCE"},
    {"test", "train", "with --epochs 0 --load FILE --test SOURCE"},
    {"infer", "forward", NULL},
    {"predict", "forward", NULL},
    {"summary", "show", NULL},
    {"mpirun", "run", NULL},
    {"models", "list", "as `megalith list models`"},
};

static int letter(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

static bool same(const char *a, const char *b)
{
    while (*a && letter(*a) == letter(*b))
        a++, b++;
    return letter(*a) == letter(*b);
}

static bool begins(const char *word, const char *with)
{
    while (*with && letter(*word) == letter(*with))
        word++, with++;
    return !*with;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

int meg_word_distance(const char *a, const char *b)
{
    int rows[3][LONGEST + 1], height = (int)strnlen(a, LONGEST), width = (int)strnlen(b, LONGEST);
    int *two = rows[0], *one = rows[1], *row = rows[2]; /* the rows before, and this one */
    for (int j = 0; j <= width; j++)
        row[j] = j;
    for (int i = 1; i <= height; i++) {
        int *free = two;
        two = one, one = row, row = free;
        row[0] = i;
        for (int j = 1; j <= width; j++) {
            bool equal = letter(a[i - 1]) == letter(b[j - 1]);
            row[j] = least(one[j - 1] + !equal, least(one[j], row[j - 1]) + 1);
            bool swapped = i > 1 && j > 1 && letter(a[i - 1]) == letter(b[j - 2]) &&
                           letter(a[i - 2]) == letter(b[j - 1]);
            if (swapped) row[j] = least(row[j], two[j - 2] + 1);
        }
    }
    return row[width];
}

/* How far a word may be to be taken for a slip of the pen; one letter says nothing. */
static int reach(const char *asked)
{
    int length = (int)strlen(asked);
    if (length < 2) return 0;
    return least(3, length < 5 ? 1 : (length + 1) / 3);
}

meg_nearest meg_nearest_to(const char *asked)
{
    return (meg_nearest){.asked = asked, .distance = reach(asked) + 1};
}

static int distance_of(const meg_nearest *n, const char *word)
{
    int distance = meg_word_distance(n->asked, word);
    bool part = strlen(n->asked) >= BEGINNING && begins(word, n->asked);
    bool more = strlen(word) > BEGINNING && begins(n->asked, word);
    return part || more ? least(distance, reach(n->asked)) : distance;
}

void meg_nearest_try(meg_nearest *n, const char *word)
{
    for (size_t i = 0; i < sizeof SYNONYMS / sizeof *SYNONYMS && n->distance > 0; i++) {
        if (strcmp(SYNONYMS[i].word, word) != 0 || !same(SYNONYMS[i].asked, n->asked)) continue;
        n->word = word;
        n->why = SYNONYMS[i].why;
        n->distance = 0;
        return;
    }
    int distance = distance_of(n, word);
    if (distance >= n->distance) return;
    n->word = word;
    n->why = NULL;
    n->distance = distance;
}

void meg_nearest_hint(const meg_nearest *n, char hint[MEG_HINT])
{
    hint[0] = '\0';
    if (!n->word) return;
    snprintf(hint, MEG_HINT, " (did you mean %.80s?%s%.80s)", n->word, n->why ? " " : "",
             n->why ? n->why : "");
}

meg_status meg_unknown(meg_error *e, const char *what, const char *asked, const char *(*at)(int i))
{
    char known[NAMES_BYTES] = "", hint[MEG_HINT];
    size_t used = 0;
    meg_nearest n = meg_nearest_to(asked);
    for (int i = 0; at(i); i++) {
        meg_nearest_try(&n, at(i));
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, " %s", at(i));
    }
    meg_nearest_hint(&n, hint);
    return meg_fail(e, MEG_EARG, "%s '%.64s'%s; known:%s", what, asked, hint, known);
}
