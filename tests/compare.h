/* The rule by which results of whole networks are compared; docs/style.md, 14, has it in words.
 *
 * Per tensor (gradients, running statistics, optimizer states, weights) and for the loss, the error is
 *
 *     |got - judge| / max(|judge|, 1e-3 x the largest norm of a parameter's gradient)
 *
 * by norm: a bias in front of a batch norm has a true gradient of zero. The judge is the plan of one rank
 * in double (ref64).
 *
 *     in double    1e-10, and as many right answers: only the order of sums differs
 *     in float     max(1e-4, 3 x own): own is the error of one rank in float against the same judge
 *
 * Own is the largest over all tensors, not the tensor's: an error of a tensor of one number (a bias, a
 * slope, the loss) is one draw, and of two draws of the same kind one is more than three times the other
 * in one case of five. One rank in float is, for plans of many ranks, the device under test with the same
 * kernels (the same MEGALITH_WINOGRAD, too; with phases=yes, if that is further off: plans that cut a norm have its
 * mean and variance as kernels of their own, which round more often); for a device on one rank it is `ref`, plain
 * C in float.
 *
 * Networks of comparisons in float have no kinks (tests/smooth.h). There is one seed and no second try.
 * Where 1e-4 is met, own is not asked for, since it could only allow more: that saves its run.
 */
#ifndef TESTS_COMPARE_H
#define TESTS_COMPARE_H

#include "network.h"

static const double compare_double = 1e-10; /* up to the order of sums */
static const double compare_float = 1e-4;
static const double compare_times = 3;         /* of one rank's own error */
static const double compare_negligible = 1e-3; /* of the largest gradient */

/* The largest error of all tensors, and whose it is. Refuses a degenerate judge. */
static inline double compare_error(const network_result *judge, const network_result *got,
                                   const char **name)
{
    double largest = 0, worst = fabs(judge->loss - got->loss) / fabs(judge->loss);
    double error = judge->error > 0 ? fabs(judge->error - got->error) / judge->error
                                    : fabs(got->error);
    *name = "loss";
    if (!(error <= worst)) worst = error, *name = "absolute error";
    assert_int_equal(judge->tensors, got->tensors);
    assert_true(isfinite(judge->loss) && judge->loss > 0);
    for (int i = 0; i < judge->tensors; i++)
        if (judge->gradient[i])
            largest = fmax(largest, network_norm(judge->data[i], NULL, judge->count[i]));
    assert_true(isfinite(largest) && largest > 1e-6);
    for (int i = 0; i < judge->tensors; i++) {
        int k = 0;
        while (k < got->tensors && strcmp(judge->name[i], got->name[k]) != 0)
            k++;
        assert_true(k < got->tensors);
        double norm = network_norm(judge->data[i], NULL, judge->count[i]);
        double d = network_norm(judge->data[i], got->data[k], judge->count[i]) /
                   fmax(norm, compare_negligible * largest);
        if (!(d <= worst)) worst = d, *name = judge->name[i];
    }
    return worst;
}

/* ---- in double ---- */

static inline bool compare_same(const network_result *judge, const network_result *got,
                                const char *what)
{
    const char *name;
    double error = compare_error(judge, got, &name);
    bool good = error <= compare_double && judge->correct == got->correct;
    print_message("%s: %s is off by %.2e in double%s\n", what, name, error,
                  good ? "" : ": NOT the answer of one rank");
    if (!good)
        print_message("    allowed %.0e; right answers %g, of one rank %g\n", compare_double,
                      got->correct, judge->correct);
    return good;
}

/* ---- in float ---- */

typedef struct compare_own {                     /* the error of one rank in float */
    network_result *(*run)(const void *context); /* one rank in float; its result is freed */
    const void *context;
    const void
        *phased;  /* the same with norms in phases, as plans that cut them have them; NULL: none */
    double error; /* what it is, once it is known; else 0 */
    bool known;
} compare_own;

static inline void compare_find_own(const network_result *judge, compare_own *own)
{
    const void *const contexts[] = {own->context, own->phased};
    const char *name;
    if (own->known) return;
    own->known = true;
    for (int i = 0; i < 2 && contexts[i]; i++) {
        network_result *one = own->run(contexts[i]);
        own->error = fmax(own->error, compare_error(judge, one, &name));
        network_free(one);
    }
}

static inline double compare_allowed(double own)
{
    return fmax(compare_float, compare_times * own);
}

/* Is an error allowed? Prints it, and, if it is not small, the one of one rank and what is allowed. */
static inline bool compare_judge(double error, const char *name, double own, const char *what)
{
    bool small = error <= compare_float, good = error <= compare_allowed(own);
    print_message("%s: %s is off by %.2e in float\n", what, name, error);
    if (!small)
        print_message("    one rank in float is off by %.2e, allowed %.2e: %s\n", own,
                      compare_allowed(own), good ? "good" : "NOT the answer of one rank");
    return good;
}

static inline bool compare_near(const network_result *judge, const network_result *got,
                                compare_own *own, const char *what)
{
    const char *name;
    double error = compare_error(judge, got, &name);
    if (!(error <= compare_float)) compare_find_own(judge, own);
    return compare_judge(error, name, own->error, what);
}

/* ---- cases of one rank ---- */

static inline network_result *compare_run_plain(const void *context)
{
    network_case plain = *(const network_case *)context;
    plain.device = "ref";
    plain.threads = 1;
    return network_run(&plain, MEG_ENTRY_TRAIN, 0);
}

/* A case that must take the bytes that were predicted. */
static inline network_result *compare_run(const network_case *c)
{
    network_result *r = network_run(c, MEG_ENTRY_TRAIN, 0);
    assert_int_equal(r->predicted, r->touched);
    return r;
}

/* Another plan or device gives the judge's answer. */
static inline void compare_with(const network_case *judge, const network_result *answer,
                                const network_case *other, const char *what)
{
    compare_own own = {.run = compare_run_plain, .context = judge};
    assert_string_equal(judge->device, "ref64");
    network_result *r = compare_run(other);
    if (strcmp(other->device, "ref64") == 0) assert_true(compare_same(answer, r, what));
    else assert_true(compare_near(answer, r, &own, what));
    network_free(r);
}

static inline void compare_cases(const network_case *judge, const network_case *other,
                                 const char *what)
{
    network_result *answer = compare_run(judge);
    compare_with(judge, answer, other, what);
    network_free(answer);
}

/* The same bits. */
static inline void compare_bits(const network_case *one, const network_case *other,
                                const char *what)
{
    const char *name;
    network_result *a = compare_run(one), *b = compare_run(other);
    double error = compare_error(a, b, &name);
    if (error != 0) fail_msg("%s: %s is off by %g, expected the same bits", what, name, error);
    network_free(a);
    network_free(b);
}

#endif
