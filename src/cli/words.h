/* The words a command knows: its own table and those of the library, seen as one list of books. */
#ifndef MEG_CLI_WORDS_H
#define MEG_CLI_WORDS_H

#include "cli/command.h"

typedef struct meg_book {
    const char *title;
    meg_target to;
    const meg_param *params;
    const char *optimizer, *model; /* only for this one; NULL: for all */
    bool raw; /* its values are option strings themselves: --options "depth=56" */
} meg_book;

typedef struct meg_choice { /* which optimizer and model there are; NULL: any */
    const char *optimizer, *model;
} meg_choice;

/* What stands for every ONNX file where a model is chosen. */
#define MEG_FILE_MODEL ".onnx"

/* Is this MODEL a file (.onnx) instead of a name of the zoo? */
bool meg_model_is_file(const char *model);

/* The model whose words a MODEL knows: itself, MEG_FILE_MODEL, or NULL if it is unknown. */
const char *meg_choice_model(const char *model);

/* The i-th book of a command that agrees with the choice; false past the end. */
bool meg_book_at(const meg_command *c, const meg_choice *choice, int i, meg_book *out);

/* The word's row and, in `out`, its book; NULL: no book has it. */
const meg_param *meg_word_find(const meg_command *c, const meg_choice *choice, const char *word,
                               meg_book *out);

/* Says that the word is unknown: the nearest one, and all that are known. */
meg_status meg_word_unknown(meg_error *e, const meg_command *c, const meg_choice *choice,
                            const char *word);

#endif
