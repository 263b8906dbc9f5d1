/* Runs every operator's samples and writes what went in and what came out, for
 * tools/torch_compare.py: one file <folder>/<op>.<how>.safetensors each, where `how` is
 *
 *     f32, f64   the plain kernels
 *     cpu        the cpu device; operands begin in its blocked format where they may
 *
 * Tensors of sample K: K.x0.. data inputs, K.w0.. weights, K.dy; K.y, K.y1 (a second output), K.eval (evaluation), K.dx0..,
 * K.dw0.., K.after0.. (what the state pass made of the weights). The metadata "cases" is
 * "K|op|shapes|attributes;...".
 */
#include "../tests/plain_op.h"

#include "device/cpu/common/cpu.h"
#include "device/device.h"
#include "import/safetensors/safetensors.h"

enum { TENSORS = 4096 };

typedef struct dump { /* of one operator in one way */
    const char *how;
    meg_device *device; /* NULL: plain kernels */
    meg_pool *pool;
    int count;
    meg_saved tensor[TENSORS];
} dump;

/* ---- the cpu device ---- */

typedef struct slot { /* an operand as it lies on the device */
    meg_format format;
    int64_t bytes;
    void *data;
} slot;

static void *room(int64_t bytes)
{
    size_t size = ((size_t)bytes + 127) / 64 * 64; /* oneDNN likes whole cache lines */
    void *data = aligned_alloc(64, size);
    if (!data) {
        fputs("dump_samples: out of memory\n", stderr);
        exit(1);
    }
    return memset(data, 0xff, size); /* NaN: what nobody writes must show */
}

static void launch(meg_device *d, const meg_request *r, void *at[MEG_OPERANDS])
{
    meg_error e = {0};
    meg_prepared *k = NULL;
    if (meg_device_prepare(d, &e, r, &k)) {
        fprintf(stderr, "dump_samples: %s\n", e.message);
        exit(1);
    }
    int64_t scratch = k->spec.bytes[MEG_SCRATCH];
    at[MEG_SCRATCH] = scratch ? room(scratch) : NULL;
    meg_device_launch(d, k, at, &(meg_moment){.seed = 1, .step = 1});
    meg_device_wait(d);
    free(at[MEG_SCRATCH]);
    meg_prepared_free(k);
}

/* Copies between two formats of one operand; `node` is NULL for activations. */
static void reformat(meg_device *d, const meg_request *like, int operand, slot from, slot to)
{
    const meg_node *v = like->node;
    int input = operand >= MEG_DX ? operand - MEG_DX : operand;
    bool weight = (operand < MEG_Y || operand >= MEG_DX) && input >= v->op->data_inputs &&
                  input >= v->op->data_inputs_max;
    meg_request r = {.code = MEG_COPY, .graph = like->graph, .node = weight ? v : NULL};
    r.box[MEG_X] = r.box[MEG_Y] = like->box[operand];
    r.dtype[MEG_X] = r.dtype[MEG_Y] = like->dtype[operand];
    r.format[MEG_X] = from.format;
    r.format[MEG_Y] = to.format;
    r.bytes[MEG_X] = from.bytes;
    r.bytes[MEG_Y] = to.bytes;
    void *at[MEG_OPERANDS] = {[MEG_X] = from.data, [MEG_Y] = to.data};
    launch(d, &r, at);
}

static meg_request request_of(const dump *u, const plain_op *p, meg_pass pass, meg_mask used)
{
    const meg_cpu *cpu = meg_device_state(u->device);
    meg_request r = {.code = MEG_KERNEL, .graph = p->graph, .node = p->node, .pass = pass};
    r.work = meg_op_whole(p->graph, p->node);
    for (int i = 0; i < MEG_OPERANDS; i++) {
        if (!(used & MEG_BIT(i)) || !p->t[i].data) continue;
        bool activation = i < p->data || (i >= MEG_Y && i < MEG_AUX) || i == MEG_DY;
        bool real = p->type[i] == p->real;
        r.box[i] = p->t[i].box;
        r.dtype[i] = p->type[i];
        if (activation && real) r.format[i] = meg_format_blocked(cpu->block);
    }
    return r;
}

/* Gives operands the formats that the kernel wants, until it wants nothing else. */
static void settle(meg_device *d, meg_request *r, meg_spec *s)
{
    for (int tries = 0; tries < 4; tries++) {
        meg_device_describe(d, r, s);
        if (memcmp(r->format, s->format, sizeof r->format) == 0) return;
        memcpy(r->format, s->format, sizeof r->format);
    }
    fprintf(stderr, "dump_samples: %s %s: wants other formats whenever it gets what it wants\n",
            r->node->op->name, meg_pass_name(r->pass));
    exit(1);
}

static bool is_aux(int operand)
{
    return operand >= MEG_AUX && operand < MEG_DY;
}

static slot plain_slot(const plain_op *p, int operand)
{
    int64_t bytes = meg_box_size(&p->t[operand].box) * meg_dtype_bytes(p->type[operand]);
    return (slot){MEG_FORMAT_PLAIN, bytes, p->t[operand].data};
}

/* Runs a pass as plain_run does. Aux stay on the device: their format is the kernel's own. */
static bool device_run(const dump *u, plain_op *p, slot aux[MEG_AUXES], meg_pass pass)
{
    if (!meg_op_has(p->node->op, pass)) return false;
    meg_mask reads = meg_op_reads(p->node->op, pass), writes = meg_op_writes(p->node->op, pass);
    meg_request r = request_of(u, p, pass, reads | writes);
    meg_spec s;
    slot on[MEG_OPERANDS] = {{0}};
    void *at[MEG_OPERANDS] = {NULL};
    settle(u->device, &r, &s);
    for (int i = 0; i < MEG_OPERANDS; i++) {
        if (!((reads | writes) & MEG_BIT(i)) || !p->t[i].data) continue;
        if (is_aux(i) && (reads & MEG_BIT(i))) {
            at[i] = aux[i - MEG_AUX].data;
            continue;
        }
        on[i] = (slot){s.format[i], meg_operand_bytes(&r, &s, i), NULL};
        on[i].data = at[i] = room(on[i].bytes);
        if (reads & MEG_BIT(i)) reformat(u->device, &r, i, plain_slot(p, i), on[i]);
    }
    launch(u->device, &r, at);
    for (int i = 0; i < MEG_OPERANDS; i++) {
        if (!on[i].data) continue;
        if (is_aux(i)) {
            free(aux[i - MEG_AUX].data);
            aux[i - MEG_AUX] = on[i];
            continue;
        }
        if (writes & MEG_BIT(i)) reformat(u->device, &r, i, on[i], plain_slot(p, i));
        free(on[i].data);
    }
    return true;
}

/* ---- samples ---- */

/* Is this input of the operator positive in all networks that make sense? */
static bool wants_positive(const meg_op *op, int operand)
{
    static const char *const ops[] = {"log", "pow", "sqrt"};
    for (size_t i = 0; operand == MEG_X && i < sizeof ops / sizeof *ops; i++)
        if (strcmp(op->name, ops[i]) == 0) return true;
    return false;
}

/* Numbers that float holds exactly. What may become a divisor or a logarithm's argument (counts,
 * variances, sums of exponentials: later inputs of operators that do not take any number, and the
 * running variance) lies around one. */
static void fill(plain_op *p, int operand, int number)
{
    char name[64];
    const meg_op *op = p->node->op;
    const meg_value *v = &p->graph->value[plain_value(p, operand)];
    snprintf(name, sizeof name, "%s %d %d", op->name, number, operand);
    meg_stream s = {1, 0, meg_hash(name)};
    bool later = operand > 0 && operand < p->data && op->data_inputs_max < MEG_INPUTS;
    bool spread = v->kind == MEG_STATE && v->start == MEG_ONES;
    if (strcmp(op->name, "where") == 0) later = false; /* a mask has both signs */
    later = later || wants_positive(op, operand);
    for (int64_t i = 0; i < meg_box_size(&p->t[operand].box); i++) {
        double x = meg_random_normal(s, (uint64_t)i);
        if (later || spread) x = 0.5 + meg_random_uniform(s, (uint64_t)i);
        plain_set(p, operand, i, (double)(float)x);
    }
}

/* Labels of input `i`: "5@7" of the shapes has seven classes. */
static void fill_labels(plain_op *p, int i, const char *shapes, int number)
{
    meg_stream s = {1, 0, meg_hash("labels") + (uint64_t)number};
    for (int k = 0; k < i; k++)
        shapes += strcspn(shapes, " ") + 1;
    double classes = (double)strtoll(strchr(shapes, '@') + 1, NULL, 10);
    for (int64_t k = 0; k < meg_box_size(&p->t[MEG_X + i].box); k++)
        plain_set(p, MEG_X + i, k, classes * meg_random_uniform(s, (uint64_t)k));
}

static void save(dump *u, const plain_op *p, int operand, const char *name)
{
    const meg_value *v = &p->graph->value[plain_value(p, operand)];
    if (u->count == TENSORS) {
        fprintf(stderr, "dump_samples: %s has more than %d tensors\n", p->node->name, TENSORS);
        exit(1);
    }
    int64_t bytes = meg_box_size(&p->t[operand].box) * meg_dtype_bytes(p->type[operand]);
    void *copy = meg_pool_alloc(u->pool, (size_t)bytes);
    memcpy(copy, p->t[operand].data, (size_t)bytes);
    meg_saved *s = &u->tensor[u->count++];
    *s = (meg_saved){.name = name, .dtype = p->type[operand], .rank = v->rank, .data = copy};
    memcpy(s->dims, v->dims, (size_t)v->rank * sizeof *v->dims);
}

/* Saves input i of the node, or its gradient: "3.x0", "3.dw1". */
static void save_input(dump *u, const plain_op *p, int number, const char *what, int i)
{
    bool data = i < p->data;
    int operand = (what[0] == 'd' ? MEG_DX : MEG_X) + i;
    const char *letter = what[0] == 'a' ? "" : data ? "x" : "w";
    save(u, p, operand,
         meg_pool_text(u->pool, "%d.%s%s%d", number, what, letter, data ? i : i - p->data));
}

static void run_sample(dump *u, const meg_op *op, int number)
{
    plain_op p;
    slot aux[MEG_AUXES] = {{0}};
    meg_error e = {0};
    const meg_sample *s = &op->samples[number];
    if (plain_open(&e, op->name, s, u->device ? MEG_F32 : u->how[1] == '6' ? MEG_F64 : MEG_F32,
                   &p)) {
        fprintf(stderr, "dump_samples: %s %s %s: %s\n", op->name, s->shapes,
                s->attrs ? s->attrs : "", e.message);
        exit(1);
    }
    for (int i = 0; i < p.node->inputs; i++) {
        if (p.type[MEG_X + i] == MEG_I32) fill_labels(&p, i, s->shapes, number);
        else fill(&p, MEG_X + i, number);
        save_input(u, &p, number, "", i);
    }
    fill(&p, MEG_DY, number);
    save(u, &p, MEG_DY, meg_pool_text(u->pool, "%d.dy", number));

    static const meg_pass order[] = {MEG_EVAL, MEG_FORWARD, MEG_BACKWARD, MEG_WEIGHT,
                                     MEG_STATE_PASS};
    for (size_t k = 0; k < sizeof order / sizeof *order; k++) {
        meg_pass pass = order[k];
        if (pass == MEG_EVAL && !op->f32->run[MEG_EVAL]) continue;
        if (!(u->device ? device_run(u, &p, aux, pass) : plain_run(&p, pass))) continue;
        meg_mask made = meg_op_writes(op, pass);
        if (made & MEG_BIT(MEG_Y))
            save(u, &p, MEG_Y,
                 meg_pool_text(u->pool, "%d.%s", number, pass == MEG_EVAL ? "eval" : "y"));
        if (p.node->outputs > 1 && pass == MEG_FORWARD)
            save(u, &p, MEG_Y + 1, meg_pool_text(u->pool, "%d.y1", number));
        for (int i = 0; i < p.node->inputs; i++) {
            if (made & MEG_BIT(MEG_DX + i)) save_input(u, &p, number, "d", i);
            if (made & MEG_BIT(MEG_X + i)) save_input(u, &p, number, "after", i);
        }
    }
    for (int i = 0; i < MEG_AUXES; i++)
        free(aux[i].data);
    plain_close(&p);
}

static void dump_op(const char *folder, const meg_op *op, const char *how, meg_device *device)
{
    dump *u = calloc(1, sizeof *u);
    meg_error e = {0};
    *u = (dump){.how = how, .device = device, .pool = meg_pool_new()};
    const char *cases = "";
    for (int i = 0; op->samples[i].shapes; i++) {
        const meg_sample *s = &op->samples[i];
        cases = meg_pool_text(u->pool, "%s%s%d|%s|%s|%s", cases, i ? ";" : "", i, op->name,
                              s->shapes, s->attrs ? s->attrs : "");
        run_sample(u, op, i);
    }
    meg_saved_file content = {.count = u->count, .notes = 1, .tensor = u->tensor};
    content.note = &(meg_saved_note){"cases", cases};
    const char *path = meg_pool_text(u->pool, "%s/%s.%s.safetensors", folder, op->name, how);
    if (meg_safetensors_write(&e, path, &content)) {
        fprintf(stderr, "dump_samples: %s\n", e.message);
        exit(1);
    }
    meg_pool_free(u->pool);
    free(u);
}

int main(int argc, char **argv)
{
    meg_error e = {0};
    meg_device *cpu = NULL;
    const meg_op *op;
    if (argc != 2) {
        fputs("usage: dump_samples FOLDER\n", stderr);
        return 2;
    }
    if (meg_device_open(&e, "cpu", 2, &cpu)) {
        fprintf(stderr, "dump_samples: %s\n", e.message);
        return 1;
    }
    for (int i = 0; (op = meg_op_at(i)); i++) {
        dump_op(argv[1], op, "f32", NULL);
        dump_op(argv[1], op, "f64", NULL);
        dump_op(argv[1], op, "cpu", cpu);
    }
    meg_device_close(cpu);
    return 0;
}
