"""Writes tests/golden/onnx/corners: what a file must not lose without a word (tests/t635-corners.c).

    python3 tools/make_onnx_corners.py
"""
import os

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                      "tests", "golden", "onnx", "corners")
RANDOM = numpy.random.default_rng(1)


def tensor(name, numbers, kind=numpy.float32):
    return numpy_helper.from_array(numpy.asarray(numbers, kind), name)


def node(op, inputs, output, **words):
    return helper.make_node(op, inputs.split(), [output], **words)


def constant(name, numbers, kind=numpy.float32):
    return helper.make_node("Constant", [], [name], value=tensor("", numbers, kind))


LAYERS = [tensor("conv.weight", 0.3 * RANDOM.standard_normal((4, 3, 3, 3))),
          tensor("conv.bias", [0.1, 0.2, -0.1, 0.3]),
          tensor("fc.weight", 0.3 * RANDOM.standard_normal((5, 4))), tensor("fc.bias", numpy.zeros(5))]
MASK = [node("RandomUniformLike", "x", "u"), constant("half", 0.5), node("Less", "u half", "m"),
        node("Cast", "m", "mask", to=TensorProto.FLOAT)]


def noted(n, key, text):
    """The node, or graph, with a note of PyTorch's exporter."""
    n.metadata_props.append(onnx.StringStringEntryProto(key=key, value=text))
    return n


def save_tokens(name, nodes, tensors, signature, features=5):
    """fc.weight -> x -> nodes -> z, on tokens, with the signature of torch.export"""
    nodes = [node("MatMul", "input fc.weight", "x"), *nodes]
    data, out = (helper.make_tensor_value_info(port, TensorProto.FLOAT, (2, 4, features))
                 for port in ("input", "z"))
    graph = helper.make_graph(nodes, name, [data], [out],
                              [tensor("fc.weight", 0.3 * RANDOM.standard_normal((features, features))), *tensors])
    lines = ["# inputs", "p_fc_weight: PARAMETER target='fc.weight'", *signature, "", "# outputs"]
    noted(graph, "pkg.torch.export.ExportedProgram.graph_signature", "\n".join(lines))
    write(name, graph)


def write(name, graph):
    model = helper.make_model(graph, producer_name="pytorch", ir_version=10,
                              opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, os.path.join(FOLDER, name + ".onnx"))


def norm(x, y, module, weights):
    n = node("LayerNormalization", f"{x} {weights}.weight {weights}.bias", y)
    return noted(n, "pkg.torch.onnx.name_scopes", f"['', '{module}', 'layer_norm']")


def save(name, nodes, tensors=()):
    """conv -> x -> nodes -> z -> mean -> fc"""
    nodes = [node("Conv", "input conv.weight conv.bias", "x", pads=[1, 1, 1, 1]), *nodes,
             node("GlobalAveragePool", "z", "mean"), node("Flatten", "mean", "flat"),
             node("Gemm", "flat fc.weight fc.bias", "logits", transB=1)]
    data = helper.make_tensor_value_info("input", TensorProto.FLOAT, (2, 3, 4, 4))
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, (2, 5))
    graph = helper.make_graph(nodes, name, [data], [logits], [*LAYERS, *tensors])
    write(name, graph)


def main():
    os.makedirs(FOLDER, exist_ok=True)
    save("max-absent", [helper.make_node("Max", ["x", ""], ["z"])])
    save("max-unknown", [node("Max", "nothing x", "z")])
    save("half-parameter", [node("Mul", "x gain", "z")],
         [tensor("gain", numpy.arange(1, 5).reshape(4, 1, 1) / 4, numpy.float16)])
    save("half-constant", [constant("narrow", numpy.arange(1, 5).reshape(4, 1, 1) / 4, numpy.float16),
                           node("Cast", "narrow", "gain", to=TensorProto.FLOAT),
                           node("Mul", "x gain", "z")])
    save("truths", [constant("reals", numpy.reshape([0.5, 0, 2, -1], (4, 1, 1))),
                    node("Cast", "reals", "truth", to=TensorProto.BOOL),
                    node("Cast", "truth", "gain", to=TensorProto.FLOAT), node("Mul", "x gain", "z")])
    save("clip-trained", [node("Clip", "x low", "z")], [tensor("low", 0.125)])
    save("clip-simplified", [node("Clip", "x /Constant_output_0 /Constant_1_output_0", "z")],
         [tensor("/Constant_output_0", 0), tensor("/Constant_1_output_0", 6)])
    save("named-val", [node("Mul", "x val_scale", "z")], [tensor("val_scale", 0.5)])
    shape = tensor("shape", [4, 1, 1], numpy.int64)
    save("untied", [node("Reshape", "w shape", "w1"), node("Reshape", "w shape", "w2"),
                    node("Mul", "x w1", "a"), node("Tanh", "x", "t"), node("Mul", "t w2", "b"),
                    node("Add", "a b", "z")], [tensor("w", [[1, 2], [3, 4]]), shape])
    save("mask-twice", [*MASK, node("Mul", "x mask", "a"), node("Tanh", "x", "t"),
                        node("Mul", "t mask", "b"), node("Add", "a b", "z")])
    save("mask-inverse", [*MASK, node("Not", "m", "n"), node("Cast", "n", "rest", to=TensorProto.FLOAT),
                          node("Mul", "x mask", "a"), node("Mul", "x rest", "b"), node("Add", "a b", "z")])
    save("mask-trained", [*MASK, node("Mul", "mask alpha", "scaled"), node("Mul", "x scaled", "z")],
         [tensor("alpha", [0.7])])
    save("mask-scaled", [*MASK, node("Mul", "x mask", "z")])
    rules = "RemoveOptionalBiasFromConv, FuseBatchNormIntoConv, RemoveOptionalBiasFromConv"
    save("folded", [noted(node("Conv", "x second.weight", "z"), "pkg.onnxscript.rewriter.rule_name", rules)],
         [tensor("second.weight", 0.3 * RANDOM.standard_normal((4, 4, 3, 3)))])
    save_tokens("bias-of-zeros", [node("Transpose", "x", "k", perm=[0, 2, 1]), node("MatMul", "x k", "s"),
                                  node("Add", "s bias", "t"), node("Softmax", "t", "p", axis=-1),
                                  node("MatMul", "p x", "z")], [tensor("bias", numpy.zeros((4, 4)))],
                ["p_bias: PARAMETER target='bias'"])
    save_tokens("fixed-positions", [node("Add", "x pe", "z")], [tensor("pe", RANDOM.random((1, 4, 5)))],
                ["b_pe: BUFFER target='pe' persistent=False"])
    pairs = [f"p_{m}_{w}: PARAMETER target='{m}.{w}'" for m in "abc" for w in ("weight", "bias")]
    ones = [tensor("b.weight", numpy.ones(5)), tensor("b.bias", numpy.zeros(5))]
    save_tokens("tied-and-merged", [norm("x", "y1", "a", "b"), node("Tanh", "y1", "t"),
                                    norm("t", "y2", "b", "b"), node("Tanh", "y2", "u"),
                                    norm("u", "z", "c", "b")], ones, pairs)
    save("truth-buffer", [constant("zero", 0), node("Where", "seen x zero", "z")],
         [tensor("seen", numpy.reshape([1, 0, 1, 1], (4, 1, 1)), bool)])
    save_tokens("mask-of-heads", attention(numpy.triu(numpy.full((4, 4), -numpy.inf), 1).reshape(4, 1, 4)), [],
                [], 8)
    save_merged()


def attention(mask):
    """x -> 4 heads of 2 features -> z, 4 tokens"""
    return [constant("parts", [2, 4, 4, 2], numpy.int64), constant("whole", [2, 4, 8], numpy.int64),
            constant("mask", mask), node("Reshape", "x parts", "r"), node("Transpose", "r", "q", perm=[0, 2, 1, 3]),
            node("Transpose", "r", "k", perm=[0, 2, 3, 1]), node("MatMul", "q k", "s"),
            node("Add", "s mask", "t"), node("Softmax", "t", "p", axis=-1), node("MatMul", "p q", "o"),
            node("Transpose", "o", "u", perm=[0, 2, 1, 3]), node("Reshape", "u whole", "z")]


def called(n, module, arguments):
    """The node with what torch.export notes of the call that it comes from."""
    noted(n, "pkg.torch.onnx.name_scopes", f"['', '{module}', 'call']")
    arguments = ", ".join("%" + a for a in arguments.split())
    return noted(n, "pkg.torch.onnx.fx_node",
                 f"%call : [num_users=1] = call_function[target=torch.ops.aten.call](args = ({arguments}), kwargs = {{}})")


def save_merged():
    """What PyTorch's optimizer made one tensor of, because it began alike, and what it left out."""
    scales = [tensor("a.scale", numpy.full(5, 0.5))]
    lines = [f"p_{m}_scale: PARAMETER target='{m}.scale'" for m in "ab"]
    nodes = [called(node("Mul", f"{x} a.scale", y), m, f"{x} p_{m}_scale")
             for x, y, m in (("x", "t1", "a"), ("t1", "t2", "b"), ("t2", "z", "b"))]
    save_tokens("merged-scales", nodes, scales, lines)
    save_tokens("merged-unsaid", [node("Mul", "x a.scale", "t1"), node("Mul", "t1 a.scale", "z")], scales, lines)
    norms = [called(norm(x, y, m, "n"), m, f"{x} p_{m}_weight p_{m}_bias")
             for x, y, m in (("x", "t1", "n"), ("t1", "t2", "m"), ("t2", "z", "m"))]
    save_tokens("merged-twice", norms, [tensor("n.weight", numpy.ones(5)), tensor("n.bias", numpy.zeros(5))],
                [f"p_{m}_{w}: PARAMETER target='{m}.{w}'" for m in "nm" for w in ("weight", "bias")])
    clones = [called(node("MatMul", f"{x} a.w", y), m, f"{x} p_{m}_w")
              for x, y, m in (("x", "t1", "a"), ("t1", "z", "b"))]
    save_tokens("merged-clones", clones, [tensor("a.w", RANDOM.standard_normal((5, 5)))],
                [f"p_{m}_w: PARAMETER target='{m}.w'" for m in "ab"])
    dense = [noted(called(node("Gemm", f"{x} {m}.weight", y, transB=1), m, f"{x} p_{m}_weight p_{bias}_bias"),
                   "pkg.onnxscript.rewriter.rule_name", "RemoveOptionalBiasFromGemm")
             for x, y, m, bias in (("flat", "t1", "a", "b"), ("t1", "t2", "b", "b"), ("t2", "z", "c", "c"))]
    save_flat("tied-zeros", dense, [tensor(f"{m}.weight", RANDOM.standard_normal((4, 4))) for m in "abc"],
              [f"p_{m}_{w}: PARAMETER target='{m}.{w}'" for m in "abc" for w in ("weight", "bias")])
    same = [called(norm(x, y, m, "n"), m, f"{x} p_{which}_weight p_{which}_bias")  # m and o are one module
            for x, y, m, which in (("x", "t1", "n", "n"), ("t1", "t2", "m", "o"), ("t2", "z", "o", "o"))]
    save_tokens("merged-tied", same, [tensor("n.weight", numpy.ones(5)), tensor("n.bias", numpy.zeros(5))],
                [f"p_{m}_{w}: PARAMETER target='{m}.{w}'" for m in "nmo" for w in ("weight", "bias")])
    views = [called(node("Mul", f"{x} a.scale", y), m, f"{x} view")
             for x, y, m in (("x", "t1", "a"), ("t1", "t2", "b"), ("t2", "z", "b"))]
    save_tokens("merged-views", views, scales, lines)  # the calls do not name them, but each module has one


def save_flat(name, nodes, tensors, signature):
    """conv -> mean -> flat -> nodes -> z, with the signature of torch.export"""
    nodes = [node("Conv", "input conv.weight conv.bias", "x", pads=[1, 1, 1, 1]),
             node("GlobalAveragePool", "x", "mean"), node("Flatten", "mean", "flat"), *nodes]
    data = helper.make_tensor_value_info("input", TensorProto.FLOAT, (2, 3, 4, 4))
    out = helper.make_tensor_value_info("z", TensorProto.FLOAT, (2, 4))
    graph = helper.make_graph(nodes, name, [data], [out], [*LAYERS[:2], *tensors])
    lines = ["# inputs", *(f"p_conv_{w}: PARAMETER target='conv.{w}'" for w in ("weight", "bias")), *signature,
             "", "# outputs"]
    noted(graph, "pkg.torch.export.ExportedProgram.graph_signature", "\n".join(lines))
    write(name, graph)


if __name__ == "__main__":
    main()
