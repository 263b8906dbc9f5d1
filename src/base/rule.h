/* Words that have an effect only under a condition: momentum for nesterov, a folder for what is said
 * of checkpoints. A table of rows (word, condition, what to say) per option table; one function.
 *
 * The rule of rules: a word that was given and has no effect is refused if whoever gave it would
 * believe something untrue of what is learned or kept (the loss's path, the rate, checkpoints); it
 * is warned about if it is only about speed, memory or place, or is likely in scripts that run the
 * same words on one rank and on many. Values that ask for nothing, as defaults mostly do, are fine.
 */
#ifndef MEG_BASE_RULE_H
#define MEG_BASE_RULE_H

#include "base/log.h"
#include "base/option.h"

typedef enum meg_verdict {
    MEG_WARNS,
    MEG_REFUSES
} meg_verdict;

typedef struct meg_rule {
    const char *word; /* NULL ends the table */
    const char *off;  /* a value that asks for nothing; NULL: each asks for something */
    bool (*counts)(const void *state); /* has the word an effect? */
    meg_verdict verdict;
    const char *says; /* after "word=value ": what is wrong, and what would be right */
} meg_rule;

typedef struct meg_ruled {  /* an option string, after it was read without error */
    const char *what;       /* for messages */
    const meg_param *table; /* of words that are not in it, `off` is compared as text */
    const meg_rule *rules;  /* NULL: none */
    const char *text;
    const void *state; /* of the conditions */
} meg_ruled;

/* Refuses or warns; without a log it only refuses. */
meg_status meg_rules_check(meg_error *e, const meg_logger *log, const meg_ruled *r);

#endif
