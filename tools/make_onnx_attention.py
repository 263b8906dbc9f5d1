"""Writes tests/golden/onnx/heads*: attention of set 23, which is one node, with the outputs of ONNX's reference.

    python3 tools/make_onnx_attention.py      (onnx 1.23.2, numpy, safetensors)
"""
import os

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from safetensors.numpy import save_file

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "golden", "onnx")
RANDOM = numpy.random.default_rng(5)
TOKENS, WIDTH = 5, 8


def tensor(name, numbers, kind=numpy.float32):
    return numpy_helper.from_array(numpy.asarray(numbers, kind), name)


def weight(name, columns):
    return tensor(name, 0.5 * RANDOM.standard_normal((WIDTH, columns)))


def node(op, inputs, output, **words):
    return helper.make_node(op, [i.strip("-") for i in inputs.split()], [output], name=output, **words)


def attend(inputs, output, heads, kv=None, **words):
    return node("Attention", inputs, output, q_num_heads=heads, kv_num_heads=kv or heads, **words)


def heads(prefix, source, output):
    """(n, tokens, width) -> (n, 2, tokens, width / 2)"""
    return [node("Reshape", f"{source} apart", prefix + "r"), node("Transpose", prefix + "r", output, perm=[0, 2, 1, 3])]


PRODUCTS = [node("MatMul", f"image {name}.weight", name) for name in "q k v few more".split()]
WEIGHTS = [weight("q.weight", 8), weight("k.weight", 8), weight("v.weight", 8), weight("few.weight", 4),
           weight("more.weight", 12), tensor("apart", [0, 0, 2, 4], numpy.int64)]
HIDDEN = numpy.tril(numpy.ones((TOKENS, TOKENS)))
HIDDEN[3, 1] = 0

MODELS = {
    "heads": ([attend("q k v", "y0", 2), attend("q k v", "y1", 4, is_causal=1, scale=0.7),
               attend("q few few", "y2", 4, 2), attend("q k more", "y3", 2)], []),
    "heads-masked": ([attend("q k v bools", "y0", 2), attend("q k v numbers", "y1", 2, is_causal=1),
                      *heads("a", "q", "q4"), *heads("b", "k", "k4"), *heads("c", "v", "v4"),
                      node("Attention", "q4 k4 v4 spread", "y2")],
                     [tensor("bools", HIDDEN[None, None], bool),
                      tensor("numbers", RANDOM.standard_normal((TOKENS, TOKENS))),
                      tensor("spread", RANDOM.standard_normal((1, 2, 1, TOKENS)))]),
    "heads-seen": ([node("ReduceSum", "image last", "s", keepdims=0), node("Reshape", "s wide", "s4"),
                    node("Greater", "s4 low", "sees"), attend("q k v sees", "y0", 2), attend("q k v s4", "y1", 2)],
                   [tensor("last", [-1], numpy.int64), tensor("wide", [0, 1, 1, TOKENS], numpy.int64),
                    tensor("low", -1.0)]),
}


def write(name, nodes, tensors):
    count = sum(n.op_type == "Attention" for n in nodes)
    ports = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None) for i in range(count)]
    data = helper.make_tensor_value_info("image", TensorProto.FLOAT, ("N", TOKENS, WIDTH))
    graph = helper.make_graph([*PRODUCTS, *nodes], name, [data], ports, [*WEIGHTS, *tensors])
    model = helper.make_model(graph, producer_name="test", ir_version=10, opset_imports=[helper.make_opsetid("", 23)])
    onnx.save(model, os.path.join(FOLDER, name + ".onnx"))
    x = RANDOM.standard_normal((3, TOKENS, WIDTH)).astype(numpy.float32)
    y = ReferenceEvaluator(model).run(None, {"image": x})
    out = {f"output{i}": numpy.ascontiguousarray(v.astype(numpy.float32)) for i, v in enumerate(y)}
    save_file({"image": x, **out}, os.path.join(FOLDER, name + ".safetensors"))


for name, (nodes, tensors) in MODELS.items():
    write(name, nodes, tensors)
for name, words, inputs in (("bad-past", {}, "q k v - k4 v4"), ("bad-softcap", {"softcap": 2.0}, "q k v")):
    nodes = [*heads("b", "k", "k4"), *heads("c", "v", "v4"), attend(inputs, "y0", 2, **words)]
    graph = helper.make_graph([*PRODUCTS, *nodes], name,
                              [helper.make_tensor_value_info("image", TensorProto.FLOAT, ("N", TOKENS, WIDTH))],
                              [helper.make_tensor_value_info("y0", TensorProto.FLOAT, None)], WEIGHTS)
    onnx.save(helper.make_model(graph, producer_name="test", ir_version=10,
                                opset_imports=[helper.make_opsetid("", 23)]), os.path.join(FOLDER, name + ".onnx"))
