"""One step of Keras itself, on whichever back end runs: loss, gradients, running statistics."""
import contextlib
from typing import Any, Iterator

import keras
import numpy as np

from megalith.check import Step


def array(x: Any) -> np.ndarray:
    return np.array(keras.ops.convert_to_numpy(x))


def _attention(query, key, value, bias=None, mask=None, scale=None, is_causal=False, **_):
    ops, t = keras.ops, query.shape[1]
    scores = scale * ops.einsum("btnh,bsnh->bnts", query, key)
    if is_causal:
        mask = np.tril(np.ones((t, key.shape[1]), bool))
    if mask is not None:
        scores = ops.where(mask, scores, ops.cast(-1e9, scores.dtype))
    return ops.einsum("bnts,bsnh->btnh", ops.softmax(scores), value)


def _gelu(x, approximate=True):
    import tensorflow as tf

    assert not approximate
    return 0.5 * x * (1 + tf.math.erf(x / tf.constant(np.sqrt(2), x.dtype)))


def _plain_kernel():
    from torch.nn import attention

    return attention.sdpa_kernel(attention.SDPBackend.MATH)


@contextlib.contextmanager
def exact():
    """Doubles throughout. Keras on TensorFlow (attention on JAX, too) rounds to float inside of attention, of gelu and of
    slopes: the first two are written out, slopes of test networks are powers of 2. On PyTorch and JAX whatever two
    types meet becomes float.

    PyTorch's fused attention keeps of a query's scores the logarithm of the sum of their exponentials. Where Keras' mask hides all
    keys, that is -2e38 + log(keys) = -2e38, so that in backward each key has the share 1, not 1 / keys: the plain kernel
    has it right."""
    from keras.src import backend, ops
    from keras.src.backend.common import dtypes

    own = (ops.dot_product_attention, backend.nn.gelu)
    table = dict(dtypes.BIT64_TO_BIT32_DTYPE)
    if keras.config.floatx() == "float64":
        dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64"
    if keras.config.floatx() == "float64" and keras.backend.backend() != "torch":
        ops.dot_product_attention = _attention
    if keras.config.floatx() == "float64" and keras.backend.backend() == "tensorflow":
        backend.nn.gelu = _gelu
    try:
        with _plain_kernel() if keras.backend.backend() == "torch" else contextlib.nullcontext():
            yield
    finally:
        ops.dot_product_attention, backend.nn.gelu = own
        dtypes.BIT64_TO_BIT32_DTYPE.update(table)


def entropy(logits: bool) -> Any:
    """The loss, in the float type that is set: Keras' own default is float32."""
    return keras.losses.SparseCategoricalCrossentropy(from_logits=logits, dtype=keras.config.floatx())


def _loss(model: Any, x: Any, y: Any, loss: Any) -> Any:
    return loss(y, model(x, training=True))


def _tensorflow(model, x, y, loss):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        value = _loss(model, x, y, loss)
    gradients = tape.gradient(value, [v.value for v in model.trainable_variables])
    return value, [tf.convert_to_tensor(g) for g in gradients]  # those of embeddings are slices


def _torch(model, x, y, loss):
    for v in model.trainable_variables:
        v.value.grad = None
    value = _loss(model, x, y, loss)
    value.backward()
    return value.detach(), [v.value.grad for v in model.trainable_variables]


def _jax(model, x, y, loss):
    import jax

    def run(trained, rest):
        out, rest = model.stateless_call(trained, rest, x, training=True)
        return loss(y, out), rest

    trained, rest = ([v.value for v in vs] for vs in (model.trainable_variables, model.non_trainable_variables))
    (value, rest), gradients = jax.value_and_grad(run, has_aux=True)(trained, rest)
    for v, now in zip(model.non_trainable_variables, rest):
        v.assign(now)
    return value, gradients


def step(model: Any, captured: Any, x: np.ndarray, y: np.ndarray, loss: Any) -> Step:
    """By the names of the capture; numbers as Keras has them."""
    names = {id(b.variable): name for name, b in captured.bindings.items()}
    x = x.astype(keras.config.floatx()) if x.dtype.kind == "f" else x
    way = {"tensorflow": _tensorflow, "torch": _torch, "jax": _jax}[keras.backend.backend()]
    with exact():
        value, gradients = way(model, keras.ops.convert_to_tensor(x), keras.ops.convert_to_tensor(y), loss)
    of = {names[id(v)]: array(g) for v, g in zip(model.trainable_variables, gradients)}
    running = {names[id(v)]: array(v) for v in model.non_trainable_variables
               if id(v) in names and v.path.rsplit("/", 1)[-1].startswith("moving_")}
    return Step(float(array(value)), of, running)


def thread_counts() -> Iterator[int]:
    """With one thread and with two, where the back end's count can be changed: the rule of megalith/comparison.py wants
    the framework's float in both."""
    if keras.backend.backend() != "torch":
        yield 0
        return
    import torch

    before = torch.get_num_threads()
    for count in (1, 2):
        torch.set_num_threads(count)
        yield count
    torch.set_num_threads(before)


def degenerate(step: Step) -> str:
    """What would make a comparison with this step worthless; "": nothing."""
    loss, gradients = step.loss, step.gradients
    norms = {k: float(np.linalg.norm(g)) for k, g in gradients.items()}
    if not np.isfinite(loss) or not all(np.isfinite(v) for v in norms.values()):
        return "a number is not finite"
    dead = [k for k, v in norms.items() if v < 1e-7 * max(norms.values()) and not k.endswith("bias")]
    if dead:
        return f"no gradient reaches {dead[0]} and {len(dead) - 1} more"
    empty = [k for k, g in gradients.items() if np.count_nonzero(g) < g.size / 16 and not k.endswith(("bias", "embeddings"))]
    return f"most numbers of the gradient of {empty[0]} are zero" if empty else ""
