/* Optimizers against PyTorch 2 and Keras 3: weights after each of three steps, lr 0.1, in double by
 *
 *     w = torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64, requires_grad=True)
 *     o = torch.optim.SGD([w], lr=0.1, momentum=0.9)    # Adam: betas=(beta1, beta2), eps=epsilon
 *     for t in range(1, 4):
 *         w.grad = torch.tensor([0.5 * t, -1.0 / t, 0.25, 2.0 - t], dtype=torch.float64)
 *         o.step()
 *         print(["%.17g" % x for x in w.tolist()])
 *
 * with the arguments that each row names (RMSprop: alpha=rho). Rows with epsilon_hat and inside are those of
 * keras.optimizers of Keras 3.15 in float64: apply() of the same gradients, with betas that are floats, too,
 * since Keras rounds them. Tolerances are for weights of order one: a few roundings of double, 1e-14; of float,
 * 1e-6.
 */
#include "ops/optimizer/optimizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    ELEMENTS = 4,
    STEPS = 3,
    COUNT = 39,
    SETTINGS = 256
}; /* COUNT: no multiple of a vector */

typedef struct row {
    const char *optimizer, *settings;
    double w[STEPS][ELEMENTS];
} row;

/* clang-format off */
static const row rows[] = {
    {"sgd", "", {
        {0.94999999999999996, -1.8999999999999999, 0.47499999999999998, -0.10000000000000001},
        {0.84999999999999998, -1.8499999999999999, 0.44999999999999996, -0.10000000000000001},
        {0.69999999999999996, -1.8166666666666664, 0.42499999999999993, 0},
    }},
    {"sgd", "weight_decay=0.2", {
        {0.93000000000000005, -1.8600000000000001, 0.46500000000000002, -0.10000000000000001},
        {0.81140000000000001, -1.7728000000000002, 0.43070000000000003, -0.098000000000000004},
        {0.64517199999999997, -1.7040106666666668, 0.39708600000000005, 0.0039600000000000078},
    }},
    {"sgd", "momentum=0.9", {
        {0.94999999999999996, -1.8999999999999999, 0.47499999999999998, -0.10000000000000001},
        {0.80499999999999994, -1.76, 0.42749999999999999, -0.19},
        {0.52449999999999997, -1.6006666666666667, 0.35975000000000001, -0.17100000000000001},
    }},
    {"sgd", "momentum=0.9 weight_decay=0.2", {
        {0.93000000000000005, -1.8600000000000001, 0.46500000000000002, -0.10000000000000001},
        {0.74840000000000007, -1.6468, 0.3992, -0.188},
        {0.41999200000000003, -1.3886506666666667, 0.30699599999999999, -0.16344},
    }},
    {"sgd", "momentum=0.8 nesterov=1", {
        {0.91000000000000003, -1.8200000000000001, 0.45500000000000002, -0.18000000000000002},
        {0.69799999999999995, -1.6660000000000001, 0.39400000000000002, -0.24400000000000005},
        {0.33839999999999992, -1.5228000000000002, 0.32019999999999998, -0.11520000000000007},
    }},
    {"sgd", "momentum=0.8 nesterov=1 weight_decay=0.2", {
        {0.874, -1.748, 0.437, -0.18000000000000002},
        {0.61773599999999995, -1.5054719999999999, 0.35386800000000002, -0.23752000000000004},
        {0.21447030399999994, -1.2652206079999999, 0.25661515200000001, -0.097865280000000041},
    }},
    {"adam", "", {
        {0.90000000199999997, -1.900000001, 0.4000000039999998, -0.09999999900000002},
        {0.80348180063850938, -1.806782038298161, 0.30000000800000037, -0.16700582346581133},
        {0.70768167911536572, -1.7194661867609113, 0.20000001200000028, -0.15841905212620963},
    }},
    {"adam", "beta1=0.8 beta2=0.95 epsilon=1e-3 weight_decay=0.2", {
        {0.90014265335235377, -1.9000713775874376, 0.40028490028490027, -0.099900099900099917},
        {0.8012105050133117, -1.8045948022371683, 0.30087109759023595, -0.16188356599678166},
        {0.70193080616834769, -1.7127923464753347, 0.20197680600718085, -0.14176222826570994},
    }},
    {"adamw", "", {
        {0.89900000199999996, -1.898000001, 0.39950000399999985, -0.09999999900000002},
        {0.80158280063650933, -1.8028840382971609, 0.29910050799600041, -0.16690582346681132},
        {0.70498109631272921, -1.7137653027216142, 0.19880141148800434, -0.1581521463037428},
    }},
    {"adamw", "beta1=0.8 beta2=0.95 epsilon=1e-3 weight_decay=0.2", {
        {0.8801996007984032, -1.8600999000999001, 0.39039840637450196, -0.099900099900099917},
        {0.76508420513452913, -1.7309494836862969, 0.28298884462151386, -0.16148659140625102},
        {0.65188802844911142, -1.6114719161636848, 0.17772747410358553, -0.1402129056253705},
    }},
    {"rmsprop", "", {
        {1.9999996048181146e-07, -1.0000000999999905, -0.49999960000015953, -0.9999999000000096},
        {-0.89532268191141617, -0.55098688525563044, -1.2088806040035269, -0.9999999000000096},
        {-1.6988271328732787, -0.26289218194145042, -1.7891295540927319, -0.28934884149229889},
    }},
    {"rmsprop", "rho=0.9 epsilon=1e-3 weight_decay=0.2", {
        {0.68519438080726014, -1.68448490992658, 0.18660379347650702, -0.31523091832602124},
        {0.41278196896342656, -1.516239686163849, -0.018840157640375305, -0.2943312896273062},
        {0.16495383261518051, -1.3921911497024684, -0.1787096480277027, -0.05414974098064082},
    }},
    {"rmsprop", "rho=0.9 momentum=0.8", {
        {0.68377225398316066, -1.6837722439831617, 0.1837722739831569, -0.31622775601683834},
        {0.14507577961866858, -1.2833480873626197, -0.2986256196482498, -0.56920996083030906},
        {-0.54494527547407223, -0.8645475061659158, -0.87663860739205335, -0.53654548284481307},
    }},
    {"adam", "beta1=0.875 beta2=0.984375 epsilon=1e-2 epsilon_hat=1", {
        {0.9137931034482758, -1.9074074074074074, 0.42424242424242425, -0.092592592592592587},
        {0.8235147674281873, -1.820672748187222, 0.34275367475230806, -0.15390669483053268},
        {0.73121658361588537, -1.7394830876654943, 0.25845120748172368, -0.14362271514006697},
    }},
    {"adamw", "beta1=0.875 beta2=0.984375 epsilon=1e-2 epsilon_hat=1 weight_decay=0.25", {
        {0.88879310344827589, -1.8574074074074074, 0.41174242424242424, -0.092592592592592587},
        {0.7762949398419805, -1.7242375630020368, 0.31996011414624742, -0.15159188001571786},
        {0.66458938253362909, -1.5999419634052581, 0.22765864402200686, -0.1375181033248592},
    }},
    {"rmsprop", "rho=0.9 epsilon=1e-2 inside=1", {
        {0.7327387580875756, -1.6984886554222363, 0.30388386486181596, -0.30151134457776363},
        {0.45801763019019748, -1.5570672991849268, 0.13485301391611262, -0.30151134457776363},
        {0.20273314858980485, -1.4626393927480916, -0.017468541185231723, -0.072696963599625852},
    }},
    {"rmsprop", "rho=0.9 epsilon=1e-2 inside=1 momentum=0.8", {
        {0.7327387580875756, -1.6984886554222363, 0.30388386486181596, -0.30151134457776363},
        {0.24420863666025794, -1.3158582235227159, -0.022039894194434639, -0.54272042023997458},
        {-0.40189994208198887, -0.91532597156626427, -0.43510045654077945, -0.50687329979160556},
    }},
};
/* clang-format on */

typedef union settings { /* aligned for any struct */
    double align;
    char bytes[SETTINGS];
} settings;

typedef struct buffers { /* the four elements, over and over */
    float f32[2 + MEG_OPTIMIZER_STATES][COUNT];
    double f64[2 + MEG_OPTIMIZER_STATES][COUNT];
} buffers;

enum {
    WEIGHT,
    GRADIENT,
    STATE
};

static const meg_optimizer *parsed(const char *name, const char *text, settings *out)
{
    meg_error e = {0};
    const meg_optimizer *o = meg_optimizer_find(name);
    assert_non_null(o);
    assert_true(o->settings_bytes <= SETTINGS);
    if (meg_options_parse(&e, o->params, name, text, out->bytes)) fail_msg("%s", e.message);
    return o;
}

static void set(buffers *b, int which, const double value[ELEMENTS])
{
    for (int i = 0; i < COUNT; i++) {
        b->f64[which][i] = value[i % ELEMENTS];
        b->f32[which][i] = (float)value[i % ELEMENTS];
    }
}

static void start(buffers *b)
{
    *b = (buffers){0};
    set(b, WEIGHT, (double[]){1, -2, 0.5, 0});
}

/* One step in both precisions; states beyond those used are absent. */
static void step(buffers *b, const meg_optimizer *o, const settings *s, meg_scalars now, bool decay)
{
    double t = now.step;
    int states = meg_optimizer_states(o, s);
    set(b, GRADIENT, (double[]){0.5 * t, -1.0 / t, 0.25, 2.0 - t});
    meg_update f32 = {COUNT, b->f32[WEIGHT], b->f32[GRADIENT], {NULL}, &now, s, decay};
    meg_update f64 = {COUNT, b->f64[WEIGHT], b->f64[GRADIENT], {NULL}, &now, s, decay};
    for (int i = 0; i < states; i++) {
        f32.state[i] = b->f32[STATE + i];
        f64.state[i] = b->f64[STATE + i];
    }
    o->f32(&f32);
    o->f64(&f64);
}

static void compare(const buffers *b, const double want[ELEMENTS], const char *what, int t)
{
    for (int i = 0; i < COUNT; i++) {
        double expected = want[i % ELEMENTS];
        double f64 = b->f64[WEIGHT][i], f32 = (double)b->f32[WEIGHT][i];
        if (!(fabs(f64 - expected) <= 1e-14) || !(fabs(f32 - expected) <= 1e-6))
            fail_msg("%s: element %d after step %d: expected %.17g, got %.17g, in float %.9g", what,
                     i, t, expected, f64, f32);
    }
}

static void test_torch(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        settings s;
        buffers b;
        char what[128];
        const meg_optimizer *o = parsed(rows[k].optimizer, rows[k].settings, &s);
        snprintf(what, sizeof what, "%s %s", rows[k].optimizer, rows[k].settings);
        start(&b);
        for (int t = 1; t <= STEPS; t++) {
            step(&b, o, &s, (meg_scalars){.lr = 0.1, .step = t, .scale = 1}, true);
            compare(&b, rows[k].w[t - 1], what, t);
        }
    }
}

/* A parameter that does not decay is one with weight_decay=0. */
static void test_decay(void **state)
{
    (void)state;
    for (int i = 0; meg_optimizer_at(i); i++) {
        settings with, without;
        buffers a, b;
        const meg_optimizer *o = parsed(meg_optimizer_at(i)->name, "weight_decay=0.2", &with);
        parsed(o->name, "weight_decay=0", &without);
        start(&a);
        start(&b);
        for (int t = 1; t <= STEPS; t++) {
            step(&a, o, &with, (meg_scalars){.lr = 0.1, .step = t, .scale = 1}, false);
            step(&b, o, &without, (meg_scalars){.lr = 0.1, .step = t, .scale = 1}, true);
        }
        assert_memory_equal(&a, &b, sizeof a);
    }
}

static void test_skip(void **state)
{
    (void)state;
    for (int i = 0; meg_optimizer_at(i); i++) {
        settings s;
        buffers a, b;
        const meg_optimizer *o = parsed(meg_optimizer_at(i)->name, "weight_decay=0.2", &s);
        start(&a);
        step(&a, o, &s, (meg_scalars){.lr = 0.1, .step = 1, .scale = 1}, true);
        b = a;
        step(&b, o, &s, (meg_scalars){.lr = 0.1, .step = 1, .skip = 1, .scale = 1}, true);
        assert_memory_equal(&a, &b, sizeof a);
    }
}

/* `scale` multiplies gradients: by 2 they are those of twice the loss, by hand for sgd. */
static void test_scale(void **state)
{
    (void)state;
    settings s;
    buffers b;
    const meg_optimizer *o = parsed("sgd", "", &s);
    start(&b);
    step(&b, o, &s, (meg_scalars){.lr = 0.1, .step = 1, .scale = 2}, true);
    compare(&b, (double[]){1 - 0.1, -2 + 0.2, 0.5 - 0.05, -0.2}, "sgd, scale 2", 1);
}

/* Padding of formats has weight and gradient 0, and stays so. */
static void test_padding(void **state)
{
    (void)state;
    for (int i = 0; meg_optimizer_at(i); i++) {
        settings s;
        buffers b = {0};
        const meg_optimizer *o = parsed(meg_optimizer_at(i)->name, "weight_decay=0.2", &s);
        meg_scalars now = {.lr = 0.1, .step = 1, .scale = 1};
        meg_update u = {COUNT, b.f32[WEIGHT], b.f32[GRADIENT], {NULL}, &now, &s, true};
        for (int k = 0; k < MEG_OPTIMIZER_STATES; k++)
            u.state[k] = b.f32[STATE + k];
        o->f32(&u);
        for (int k = 0; k < COUNT; k++)
            assert_true(b.f32[WEIGHT][k] == 0);
    }
}

static void test_states(void **state)
{
    (void)state;
    static const struct {
        const char *optimizer, *settings;
        int states;
    } wants[] = {{"sgd", "", 0},   {"sgd", "momentum=0.9", 1}, {"adam", "", 2},
                 {"adamw", "", 2}, {"rmsprop", "", 1},         {"rmsprop", "momentum=0.9", 2}};
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
        settings s;
        const meg_optimizer *o = parsed(wants[i].optimizer, wants[i].settings, &s);
        assert_int_equal(meg_optimizer_states(o, &s), wants[i].states);
    }
    assert_null(meg_optimizer_find("lion"));
    assert_null(meg_optimizer_at(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch),   cmocka_unit_test(test_decay),
        cmocka_unit_test(test_skip),    cmocka_unit_test(test_scale),
        cmocka_unit_test(test_padding), cmocka_unit_test(test_states)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
