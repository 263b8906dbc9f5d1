/* What is known of an initializer's kind: is it trained, a buffer that files of weights have, a number
 * of the code? How that is found out is the business of initializers.c.
 */
#include "import/onnx/build/kinds.h"
#include "import/onnx/wire/texts.h"

#include <math.h>

bool meg_onnx_nameless(meg_bytes s)
{
    if (meg_begins(s, "onnx::")) return true;
    if (!meg_begins(s, "val_")) return false; /* val_12, but not a user's val_scale */
    for (s.at += strlen("val_"); s.at < s.end && *s.at >= '0' && *s.at <= '9'; s.at++)
        continue;
    return s.at == s.end;
}

bool meg_onnx_is_initializer(const meg_onnx_symbol *s)
{
    return s && s->constant && s->maker < 0;
}

static const meg_onnx_symbol *root_of(const meg_onnx_symbol *s)
{
    return s->of ? s->of : s;
}

bool meg_onnx_is_weight(const meg_onnx_symbol *s)
{
    const meg_onnx_tensor *t = s->constant;
    const meg_onnx_symbol *root = root_of(s);
    bool whole = t && (t->type == MEG_ONNX_INT64 || t->type == MEG_ONNX_INT32 ||
                       t->type == MEG_ONNX_BOOL);
    if (!t || whole) return false;
    if (s->trained || root->trained) return true;
    if (root->kind != MEG_ONNX_UNSAID) return root->kind == MEG_ONNX_PARAMETER;
    return t->size > 1 && root->maker < 0;
}

bool meg_onnx_is_buffer(const meg_onnx_symbol *s)
{
    return root_of(s)->kind == MEG_ONNX_BUFFER && !root_of(s)->unsaved;
}

bool meg_onnx_is_fused(const meg_onnx_node *n)
{
    return meg_contains(meg_onnx_note(n, "pkg.onnxscript.rewriter.rule_name"), "FuseBatchNorm");
}

/* Masks of minus infinity are no weights, whatever they are called. */
void meg_onnx_doubt(meg_onnx_build *b, meg_onnx_symbol *s)
{
    const meg_onnx_tensor *t = s->constant;
    if (s->looked_at || (!s->guessed && s->kind != MEG_ONNX_UNSAID)) return;
    s->looked_at = true;
    s->doubtful = s->guessed;
    b->computed += t->size;
    for (int64_t i = 0; i < t->size && s->kind != MEG_ONNX_CONSTANT; i++)
        if (!isfinite(meg_onnx_number(t, i))) {
            s->unsaved = !s->guessed || meg_onnx_nameless(s->name); /* a buffer has a name */
            s->kind = s->unsaved ? MEG_ONNX_CONSTANT : MEG_ONNX_BUFFER;
            return;
        }
}
