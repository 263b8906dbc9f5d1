/* The books of words: see words.h. */
#include "cli/words.h"
#include "base/nearest.h"
#include "import/onnx/onnx.h"
#include "ops/optimizer/optimizer.h"
#include "train/trainer.h"
#include "zoo/zoo.h"

#include <string.h>

enum {
    WORD_BYTES = 128,
    LIST_BYTES = 760 /* of a message */
};

static const meg_param OPTIONS[] = {
    {"options", MEG_PARAM_STRING, 0, "", "the model's words as one text: \"depth=56 classes=100\"",
     NULL, 0, 0},
    {0},
};

static const meg_param PLAN_FILE[] = {
    {"plan", MEG_PARAM_STRING, 0, "",
     "a plan file, as `plan --save` writes it, or a name: `megalith list plans`", NULL, 0, 0},
    {0},
};

static const meg_param KINDS[] = {
    {"freeze", MEG_PARAM_STRING, 0, "",
     "weights that are not trained, by name: layer1.*,bn1.weight; may be given again", NULL, 0, 0},
    {"train", MEG_PARAM_STRING, 0, "", "those that are, after all; wins over --freeze", NULL, 0, 0},
    {0},
};

static const meg_param RANKS[] = {
    {"np", MEG_PARAM_INT, 0, "1", "ranks on this machine, started with mpirun or srun (-np 4)",
     NULL, 1, 1 << 20},
    {0},
};

/* All books, whether they agree with the choice or not; false past the end. */
static bool any_book(const meg_command *c, int i, meg_book *out)
{
    const meg_book fixed[] = {
        {c->name, MEG_TO_COMMAND, c->params, NULL, NULL, false},
        {"device", MEG_TO_CONTEXT, meg_context_params, NULL, NULL, false},
        {"plan", MEG_TO_PLAN, meg_plan_params, NULL, NULL, false},
        {"plan file", MEG_TO_PLAN_FILE, PLAN_FILE, NULL, NULL, false},
        {"trainer", MEG_TO_TRAINER, meg_trainer_params, NULL, NULL, false},
        {"ranks", MEG_TO_RANKS, RANKS, NULL, NULL, false},
        {"model", MEG_TO_MODEL, OPTIONS, NULL, NULL, true},
        {"weights", MEG_TO_KINDS, KINDS, NULL, NULL, false},
    };
    int count = (int)(sizeof fixed / sizeof *fixed);
    if (i < count) {
        *out = fixed[i];
        return true;
    }
    for (i -= count, count = 0; meg_optimizer_at(count); count++) {
        const meg_optimizer *o = meg_optimizer_at(count);
        if (i == count) *out = (meg_book){o->name, MEG_TO_PLAN, o->params, o->name, NULL, false};
        if (i == count) return true;
    }
    if (i == count) {
        *out = (meg_book){MEG_FILE_MODEL, MEG_TO_MODEL,   meg_onnx_params,
                          NULL,           MEG_FILE_MODEL, false};
        return true;
    }
    const meg_model *m = meg_zoo_at(i - count - 1);
    if (m) *out = (meg_book){m->name, MEG_TO_MODEL, m->params, NULL, m->name, false};
    return m != NULL;
}

bool meg_model_is_file(const char *model)
{
    size_t length = strlen(model), tail = strlen(".onnx");
    return length > tail && strcmp(model + length - tail, ".onnx") == 0;
}

const char *meg_choice_model(const char *model)
{
    if (meg_model_is_file(model)) return MEG_FILE_MODEL;
    return meg_zoo_find(model) ? model : NULL;
}

static bool agrees(const char *wanted, const char *owner)
{
    return !wanted || !owner || strcmp(wanted, owner) == 0;
}

bool meg_book_at(const meg_command *c, const meg_choice *choice, int i, meg_book *out)
{
    unsigned takes = c->takes | 1u << MEG_TO_COMMAND;
    if (c->takes & MEG_TAKES_MODEL) takes |= 1u << MEG_TO_KINDS;
    for (int k = 0; any_book(c, k, out); k++) {
        bool fits = takes >> out->to & 1 && out->params &&
                    agrees(choice->optimizer, out->optimizer) && agrees(choice->model, out->model);
        if (fits && i-- == 0) return true;
    }
    return false;
}

const meg_param *meg_word_find(const meg_command *c, const meg_choice *choice, const char *word,
                               meg_book *out)
{
    for (int i = 0; meg_book_at(c, choice, i, out); i++)
        for (const meg_param *p = out->params; p->name; p++)
            if (strcmp(p->name, word) == 0) return p;
    return NULL;
}

/* ---- unknown words ---- */

/* With dashes, as it is written on the command line. */
static void add_word(char *list, size_t size, const char *word)
{
    size_t used = strlen(list);
    snprintf(list + used, size - used, " --%s", word);
    for (char *at = list + used + 3; used + 3 < size && *at; at++)
        if (*at == '_') *at = '-';
}

/* A word of another model or optimizer than the chosen: which one? */
static bool others_word(const meg_command *c, const char *word, meg_book *out)
{
    const meg_choice any = {NULL, NULL};
    return meg_word_find(c, &any, word, out) && (out->optimizer || out->model);
}

meg_status meg_word_unknown(meg_error *e, const meg_command *c, const meg_choice *choice,
                            const char *word)
{
    char known[LIST_BYTES] = "", close[WORD_BYTES] = "", asked[WORD_BYTES] = "", hint[MEG_HINT];
    meg_nearest n = meg_nearest_to(word);
    meg_book book;
    for (int i = 0; meg_book_at(c, choice, i, &book); i++)
        for (const meg_param *p = book.params; p->name; p++) {
            meg_book first; /* a word of two books is listed once */
            bool again = meg_word_find(c, choice, p->name, &first) != p;
            if (!again && (choice->model || !book.model)) add_word(known, sizeof known, p->name);
            meg_nearest_try(&n, p->name);
        }
    add_word(asked, sizeof asked, word);
    if (others_word(c, word, &book))
        return meg_fail(e, MEG_EARG,
                        "%s: unknown option%s: it is a word of %s %s, not of %s; known:%s --help",
                        c->name, asked, book.model ? "model" : "optimizer", book.title,
                        book.model ? choice->model : choice->optimizer, known);
    if (n.word) add_word(close, sizeof close, n.word);
    if (n.word) n.word = close + 1; /* behind the blank */
    meg_nearest_hint(&n, hint);
    return meg_fail(e, MEG_EARG, "%s: unknown option%s%s; known:%s --help", c->name, asked, hint,
                    known);
}
