"""Makes the ONNX files of tests/golden/onnx, with inputs and outputs of onnxruntime beside them.

    python3 tools/make_onnx.py            (needs onnx, onnxruntime, numpy, safetensors)

Names with "bad-" are models that must be refused; they have no outputs.
"""
import os

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                      "tests", "golden", "onnx")
random = numpy.random.default_rng(7)


def weight(name, *dims, scale=0.5, offset=0.0):
    value = (scale * random.standard_normal(dims) + offset).astype(numpy.float32)
    return numpy_helper.from_array(value, name)


def wholes(name, *values):
    return numpy_helper.from_array(numpy.array(values, dtype=numpy.int64), name)


def number(name, value):
    return numpy_helper.from_array(numpy.array(value, dtype=numpy.float32), name)


def node(op, inputs, output, name="", **attributes):
    outputs = output.split() if isinstance(output, str) else output
    return helper.make_node(op, inputs.split(), outputs, name=name, **attributes)


def norm(name, channels):
    return [weight(f"{name}.weight", channels, scale=0.2, offset=1),
            weight(f"{name}.bias", channels),
            weight(f"{name}.running_mean", channels, scale=0.1),
            numpy_helper.from_array(random.uniform(0.5, 2, channels).astype(numpy.float32),
                                    f"{name}.running_var")]


def norm_inputs(x, name):
    return f"{x} {name}.weight {name}.bias {name}.running_mean {name}.running_var"


def model(nodes, weights, image, output, opset=20, producer="test", kind=TensorProto.FLOAT):
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("image", kind, image)],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in output.split()],
        weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9 + (opset > 20),
                             producer_name=producer)


def save(name, m, batch=2, check=True):
    path = os.path.join(FOLDER, name + ".onnx")
    onnx.save(m, path)
    if not check:
        return
    image = [d.dim_value or batch for d in m.graph.input[0].type.tensor_type.shape.dim]
    x = random.standard_normal(image).astype(numpy.float32)
    y = onnxruntime.InferenceSession(path).run(None, {"image": x})
    for port, value in zip(m.graph.output, y):
        port.CopyFrom(helper.make_tensor_value_info(port.name, TensorProto.FLOAT,
                                                    ["N", *value.shape[1:]]))
    onnx.save(m, path)
    onnx.checker.check_model(path)
    tensors = {"image": x}
    tensors.update({f"output{i}": v for i, v in enumerate(y)})
    save_file(tensors, os.path.join(FOLDER, name + ".safetensors"))


def cnn():
    """Residual, grouped, concatenated: what a usual network has; PyTorch's names."""
    nodes = [
        node("Conv", "image conv1.weight", "c1", kernel_shape=[3, 3], pads=[1, 1, 1, 1],
             strides=[2, 2]),
        node("BatchNormalization", norm_inputs("c1", "bn1"), "b1", epsilon=1e-3, momentum=0.8),
        node("Relu", "b1", "r1"),
        node("MaxPool", "r1", "p1", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        node("Conv", "p1 layer.0.conv.weight layer.0.conv.bias", "c2", name="/layer/0/Conv",
             auto_pad="SAME_UPPER", kernel_shape=[2, 3], group=2),
        node("Add", "c2 p1", "a1"),
        node("AveragePool", "p1", "p2", kernel_shape=[3, 3], pads=[1, 1, 1, 1],
             count_include_pad=1),
        node("Concat", "a1 p2", "cat", axis=1),
        node("GlobalAveragePool", "cat", "pool"),
        node("Flatten", "pool", "flat"),
        node("Dropout", "flat ratio", "drop"),
        node("Gemm", "drop fc.weight fc.bias", "logits", transB=1),
    ]
    weights = [weight("conv1.weight", 4, 3, 3, 3), *norm("bn1", 4),
               weight("layer.0.conv.weight", 4, 2, 2, 3), weight("layer.0.conv.bias", 4),
               number("ratio", 0.25), weight("fc.weight", 5, 8), weight("fc.bias", 5)]
    save("cnn", model(nodes, weights, ["N", 3, 13, 11], "logits"), batch=3)


def floats():
    """Weights in float_data, unpacked arithmetic of shapes, MatMul and Add, a softmax at the end."""
    def listed(t):
        return helper.make_tensor(t.name, TensorProto.FLOAT, t.dims,
                                  numpy_helper.to_array(t).flatten().tolist())
    nodes = [
        node("Shape", "image", "shape"),
        helper.make_node("Constant", [], ["zero"], value_int=0),
        node("Gather", "shape zero", "n"),
        node("Unsqueeze", "n axes", "n1"),
        node("Concat", "n1 rest", "target", axis=0),
        node("Reshape", "image target", "flat"),
        node("MatMul", "flat hidden", "h"),
        node("Add", "h bias", "hb"),
        node("Relu", "hb", "r"),
        node("Identity", "r", "same"),
        node("Gemm", "same w2 b2", "logits", alpha=0.5, beta=2.0),
        node("Softmax", "logits", "probabilities", axis=-1),
    ]
    weights = [wholes("axes", 0), wholes("rest", -1), listed(weight("hidden", 12, 7)),
               listed(weight("bias", 7)), listed(weight("w2", 7, 4)), listed(weight("b2", 4))]
    save("floats", model(nodes, weights, ["N", 3, 4], "probabilities logits", opset=13))


def points():
    nodes = [
        node("LeakyRelu", "image", "a", alpha=0.3), node("PRelu", "a slopes", "b"),
        node("Sigmoid", "b", "c"), node("Tanh", "c", "d"), node("Gelu", "d", "e"),
        node("Clip", "e lo hi", "f"), node("Mul", "f scales", "g"), node("Sub", "g a", "h"),
        node("Div", "h two", "i"), node("Sum", "i a b", "j"), node("Softmax", "j", "y", axis=1),
    ]
    weights = [weight("slopes", 3, 1, 1), number("lo", 0.05), number("hi", 0.4),
               weight("scales", 1, 3, 1, 1), number("two", 2.0)]
    save("points", model(nodes, weights, ["N", 3, 4, 5], "y j"))


def shapes():
    nodes = [
        node("ConvTranspose", "image up.weight up.bias", "a", kernel_shape=[3, 3], strides=[2, 2],
             pads=[1, 0, 0, 1], output_padding=[1, 0]),
        node("Pad", "a pads", "b", mode="reflect"),
        node("Slice", "b starts ends axes steps", "c"),
        node("Split", "c", "d e", axis=1, num_outputs=2),
        node("Concat", "e d", "f", axis=1), node("Transpose", "f", "g", perm=[0, 2, 3, 1]),
        node("Reshape", "g dims", "h"), node("Squeeze", "one last", "y"),
        node("Unsqueeze", "h last", "one"),
    ]
    nodes[-2], nodes[-1] = nodes[-1], nodes[-2]
    weights = [weight("up.weight", 2, 4, 3, 3), weight("up.bias", 4),
               wholes("pads", 0, 0, 1, 2, 0, 0, 1, 0), wholes("starts", 1, 0), wholes("ends", -1, 9),
               wholes("axes", 2, 3), wholes("steps", 1, 2), wholes("dims", 0, -1, 4),
               wholes("last", 3)]
    save("shapes", model(nodes, weights, ["N", 2, 3, 4], "y", opset=18))


def tokens():
    """A block of a transformer over given features: tokens in the middle, features last."""
    nodes = [
        node("Add", "image positions", "x"),
        node("LayerNormalization", "x ln.weight ln.bias", "n", axis=-1),
        node("Transpose", "q.weight", "qt", perm=[1, 0]), node("MatMul", "n qt", "qm"),
        node("Add", "q.bias qm", "q"), node("MatMul", "n k", "k1"), node("MatMul", "n v", "v1"),
        node("Reshape", "q heads", "qh"), node("Transpose", "qh", "q4", perm=[0, 2, 1, 3]),
        node("Reshape", "k1 heads", "kh"), node("Transpose", "kh", "k4", perm=[0, 2, 3, 1]),
        node("Reshape", "v1 heads", "vh"), node("Transpose", "vh", "v4", perm=[0, 2, 1, 3]),
        node("MatMul", "q4 k4", "s"), node("Mul", "s scale", "ss"),
        helper.make_node("Constant", [], ["mask"], value=numpy_helper.from_array(
            numpy.triu(numpy.full((5, 5), -1e4, dtype=numpy.float32), 1))),
        node("Add", "ss mask", "masked"),
        node("Softmax", "masked", "p", axis=-1), node("MatMul", "p v4", "o"),
        node("Transpose", "o", "ot", perm=[0, 2, 1, 3]), node("Reshape", "ot flat", "of"),
        node("MatMul", "of out", "om"), node("Add", "x om", "r"), node("Gelu", "r", "g"),
        node("Concat", "g x", "both", axis=2), node("Gather", "both first", "y", axis=1),
    ]
    weights = [weight("positions", 1, 5, 6), weight("ln.weight", 6), weight("ln.bias", 6),
               weight("q.weight", 6, 6), weight("q.bias", 6), weight("k", 6, 6), weight("v", 6, 6),
               weight("out", 6, 6), wholes("heads", 0, 0, 2, 3), wholes("flat", 0, 0, 6),
               number("scale", 3 ** -0.5), numpy_helper.from_array(numpy.array(1), "first")]
    save("tokens", model(nodes, weights, ["N", 5, 6], "y both"))


def ids():
    """Rows by ids, and the same matrix as the head."""
    nodes = [node("Gather", "wte ids", "x"), node("Relu", "x", "r"),
             node("Transpose", "wte", "t", perm=[1, 0]), node("MatMul", "r t", "y")]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4, 7])], [weight("wte", 7, 5)])
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    path = os.path.join(FOLDER, "ids.onnx")
    onnx.save(m, path)
    x = random.integers(0, 7, (3, 4))
    y = onnxruntime.InferenceSession(path).run(None, {"ids": x})[0]
    save_file({"ids": x.astype(numpy.int32), "output0": y},
              os.path.join(FOLDER, "ids.safetensors"))


def norms():
    nodes = [
        node("InstanceNormalization", "image i.weight i.bias", "a", epsilon=1e-3),
        node("GroupNormalization", "a g.weight g.bias", "b", num_groups=2),
        node("LayerNormalization", "b l.weight l.bias", "c", axis=1),
        node("Resize", "c none scales", "d", mode="linear"),
        node("Resize", "c none none sizes", "e", mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric", axes=[2, 3]),
        node("GlobalMaxPool", "e", "f"), node("Mul", "d f", "y"),
    ]
    for n in nodes:
        for i, name in enumerate(n.input):
            if name == "none":
                n.input[i] = ""
    weights = [weight("i.weight", 4), weight("i.bias", 4), weight("g.weight", 4),
               weight("g.bias", 4), weight("l.weight", 4, 3, 5), weight("l.bias", 4, 3, 5),
               numpy_helper.from_array(numpy.array([1, 1, 2, 1.5], dtype=numpy.float32), "scales"),
               wholes("sizes", 4, 7)]
    save("norms", model(nodes, weights, ["N", 4, 3, 5], "y e", opset=21))


def means():
    """Global pools in their other forms."""
    nodes = [node("ReduceMean", "image axes", "a", keepdims=0), node("MatMul", "a w", "y"),
             node("ReduceMean", "image axes", "k"), node("Mul", "image k", "z"),
             node("ReduceMean", "z axes", "m"), node("Reshape", "m flat", "r")]
    save("means", model(nodes, [wholes("axes", -1, 2), weight("w", 3, 5), wholes("flat", 0, 3)],
                        ["N", 3, 4, 5], "y z r"))


def entries():
    """Entries taken several times; windows and norms over axes that are not the usual ones."""
    weights = [weight("ln.weight", 3, 5, scale=0.2, offset=1), weight("ln.bias", 3, 5),
               wholes("some", 0, 2, 2, -2), wholes("shape", 6, 5), wholes("axis", 2),
               numpy_helper.from_array(numpy.array([[0, 1], [3, -1]]), "table")]
    nodes = [node("LayerNormalization", "image ln.weight ln.bias", "ln", axis=2),
             node("AveragePool", "ln", "pool", kernel_shape=[2, 2], dilations=[1, 3], pads=[1, 1, 0, 1],
                  count_include_pad=0),
             node("Gather", "ln some", "g", axis=2), node("Gather", "image table", "t", axis=1),
             node("ReduceMean", "image axis", "mean"), node("Expand", "mean shape", "e")]
    save("entries", model(nodes, weights, ["N", 4, 3, 5], "pool g t e"))


def products():
    """Vectors as matrices, constants on the left, a bias that is one number or data."""
    weights = [weight("v", 5), weight("left", 7, 3), weight("row", 3), weight("w", 60, 6),
               weight("u", 60, 6), weight("one", 1)]
    nodes = [node("MatMul", "image v", "mv"), node("MatMul", "left image", "lm"),
             node("MatMul", "row image", "rm"), node("Flatten", "image", "flat"),
             node("Gemm", "flat w one", "g1"), node("Gemm", "flat u g1", "g2", alpha=0.5)]
    save("products", model(nodes, weights, ["N", 4, 3, 5], "mv lm rm g2"))


def bounds():
    """Limits that cross, exactly: all becomes the upper one; slopes that are data; lists of floats."""
    weights = [number("least", 2), number("most", 1), number("million", 1e6)]
    nodes = [node("Clip", "image least most", "c"), node("Sub", "c most", "zero"),
             node("Mul", "zero million", "still"),
             node("Constant", "", "factors", value_floats=[1.0, -2.0, 0.5, 3.0, -1.0]),
             node("Mul", "image factors", "f"), node("Add", "still f", "y"), node("PRelu", "image f", "p")]
    save("bounds", model(nodes, weights, ["N", 4, 3, 5], "y p"))


def external():
    nodes = [node("Conv", "image w b", "y", kernel_shape=[3])]
    m = model(nodes, [weight("w", 6, 2, 3), weight("b", 6)], ["N", 2, 9], "y")
    path = os.path.join(FOLDER, "external.bin")
    if os.path.exists(path):
        os.remove(path)
    onnx.save_model(m, os.path.join(FOLDER, "external.onnx"), save_as_external_data=True,
                    location="external.bin", size_threshold=0)
    save("external", onnx.load(os.path.join(FOLDER, "external.onnx"), load_external_data=False))


def training():
    """Batch normalisation in training form: its statistics come out."""
    nodes = [node("BatchNormalization", norm_inputs("image", "bn"), "y mean var", training_mode=1,
                  momentum=0.7)]
    m = model(nodes, norm("bn", 3), ["N", 3, 4, 2], "y mean var")
    onnx.save(m, os.path.join(FOLDER, "training.onnx"))
    x = random.standard_normal((5, 3, 4, 2)).astype(numpy.float32)
    from onnx.reference import ReferenceEvaluator
    y = ReferenceEvaluator(m).run(None, {"image": x})
    save_file({"image": x, **{f"output{i}": v.astype(numpy.float32) for i, v in enumerate(y)}},
              os.path.join(FOLDER, "training.safetensors"))


def folded():
    nodes = [node("Conv", "image onnx::Conv_12 onnx::Conv_13", "y", kernel_shape=[1, 1])]
    save("folded", model(nodes, [weight("onnx::Conv_12", 2, 3, 1, 1), weight("onnx::Conv_13", 2)],
                         ["N", 3, 4, 4], "y", producer="pytorch"))


def moved():
    """Attention as PyTorch's MultiheadAttention writes it: the batch leaves the first place, is joined with
    heads, and comes back; a class token in front, a mask made of shapes."""
    t, c, h, d = 4, 6, 2, 3
    nodes = [node("Shape", "image", "all"), node("Gather", "all zero", "n", axis=0),
             node("Unsqueeze", "n zeros", "n1"), node("Concat", "n1 unit unit", "spread", axis=0),
             node("Expand", "token spread", "tokens"), node("Concat", "tokens image", "x", axis=1),
             node("Add", "x position", "xp"),
             node("Transpose", "xp", "turned", perm=[1, 0, 2]),
             node("MatMul", "turned in_proj", "qkv"), node("Add", "qkv in_bias", "qkvb"),
             node("Reshape", "qkvb four", "r"), node("Unsqueeze", "r zeros", "u"),
             node("Transpose", "u", "ut", perm=[3, 1, 2, 0, 4]), node("Squeeze", "ut back", "parts")]
    for k, name in enumerate("qkv"):
        nodes += [node("Gather", f"parts index{k}", f"{name}g", axis=0),
                  node("Mul", "n heads", f"nh{k}"),
                  node("Unsqueeze", f"nh{k} zeros", f"nh1{k}"),
                  node("Concat", f"length nh1{k} each", f"shape{k}", axis=0),
                  node("Reshape", f"{name}g shape{k}", f"{name}r"),
                  node("Transpose", f"{name}r", f"{name}t", perm=[1, 0, 2])]
    nodes += [node("Transpose", "kt", "ktt", perm=[0, 2, 1]), node("MatMul", "qt ktt", "s"),
              node("Mul", "s scale", "ss"),
              node("Concat", "n1 h1 length length", "square", axis=0), node("Reshape", "ss square", "s4"),
              node("Concat", "length length", "tt", axis=0), node("Expand", "one tt", "ones"),
              node("Trilu", "ones", "lower", upper=0), node("Equal", "lower nought", "hidden"),
              node("Where", "hidden low nought", "mask"), node("Add", "s4 mask", "masked"),
              node("Softmax", "masked", "p", axis=-1),
              node("Concat", "n1 h1 length each", "vs", axis=0), node("Reshape", "vt vs", "v4"),
              node("MatMul", "p v4", "o"), node("Transpose", "o", "ot", perm=[2, 0, 1, 3]),
              node("Reshape", "ot rows", "flat"), node("Gemm", "flat out_w out_b", "g", transB=1),
              node("Concat", "length n1 features", "backs", axis=0), node("Reshape", "g backs", "g3"),
              node("Transpose", "g3", "y", perm=[1, 0, 2]),
              node("ReduceMean", "y axis1", "mean", keepdims=0),
              node("Softmax", "o", "middle", axis=2), node("PRelu", "y slopes", "bent")]
    weights = [weight("token", 1, 1, c), weight("position", 1, t + 1, c), weight("in_proj", c, 3 * c),
               weight("in_bias", 3 * c), weight("out_w", c, c), weight("out_b", c), weight("slopes", 1, c),
               number("scale", d ** -0.5), number("one", 1), number("nought", 0),
               number("low", -float("inf")), wholes("zeros", 0), wholes("unit", 1), wholes("back", -2),
               wholes("four", t + 1, -1, 3, c), wholes("length", t + 1), wholes("each", d),
               wholes("h1", h), wholes("rows", -1, c), wholes("features", c), wholes("axis1", 1)]
    for name, value in {"zero": 0, "heads": h, "index0": 0, "index1": 1, "index2": 2}.items():
        weights.append(numpy_helper.from_array(numpy.array(value, dtype=numpy.int64), name))
    save("moved", model(nodes, weights, ["N", t, c], "y mean middle bent", opset=18))


def keras():
    """A file that looks as if Keras had made it; and one whose exporter merged two scales."""
    m = model([node("Relu", "image", "y")], [], ["N", 3, 4], "y")
    m.graph.input[0].name = m.graph.node[0].input[0] = "keras_tensor"
    onnx.save(m, os.path.join(FOLDER, "keras.onnx"))
    nodes = [node("LayerNormalization", "image s b", "a"), node("LayerNormalization", "a s b", "y")]
    save("merged", model(nodes, [weight("s", 4), weight("b", 4)], ["N", 3, 4], "y"))
    nodes = [node("MatMul", "image val_7", "y")]
    save("nameless", model(nodes, [weight("val_7", 4, 5)], ["N", 3, 4], "y", producer="pytorch"))


def bad():
    image = ["N", 3, 4, 4]
    inner = helper.make_graph([node("Relu", "image", "z")], "inner", [],
                              [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)])
    yes = numpy_helper.from_array(numpy.array(True), "yes")
    save("bad-if", model([helper.make_node("If", ["yes"], ["y"], name="choose", then_branch=inner,
                                           else_branch=inner)], [yes], image, "y"), check=False)
    save("bad-operator", model([node("Unique", "image", "y", name="mix")], [],
                               image, "y"), check=False)
    save("bad-cycle", model([node("Add", "image b", "a", name="first"), node("Relu", "a", "b")], [],
                            image, "b"), check=False)
    save("bad-type", model([node("Relu", "image", "y")], [], image, "y",
                           kind=TensorProto.COMPLEX64), check=False)
    negative = weight("w", 1, 3, 1, 1)
    negative.dims[0] = -1
    save("bad-negative", model([node("Conv", "image w", "y")], [negative], image, "y"), check=False)
    huge = weight("w", 1, 3, 1, 1)
    huge.dims[0] = 1 << 62
    save("bad-huge", model([node("Conv", "image w", "y")], [huge], image, "y"), check=False)
    short = weight("w", 2, 3, 1, 1)
    short.dims[0] = 3
    save("bad-short", model([node("Conv", "image w", "y")], [short], image, "y"), check=False)
    save("bad-attribute", model([node("Relu", "image", "y", name="act", slope=3)], [], image, "y"),
         check=False)
    save("bad-old", model([node("Relu", "image", "y")], [], image, "y", opset=9), check=False)
    save("bad-open", model([node("Relu", "image", "y")], [], ["N", 3, "h", "w"], "y"), check=False)
    twice = [node("Relu", "image", "y"), node("Tanh", "image", "y")]
    save("bad-twice", model(twice, [], image, "y"), check=False)
    away = weight("w", 1, 3, 1, 1)
    away.ClearField("raw_data")
    away.data_location = TensorProto.EXTERNAL
    away.external_data.add(key="location", value="../../../etc/passwd")
    save("bad-outside", model([node("Conv", "image w", "y")], [away], image, "y"), check=False)


def worse():
    """More models that must be refused."""
    image = ["N", 3, 4, 4]
    inner = helper.make_graph([node("Identity", "image", "z")], "body", [], [
        helper.make_tensor_value_info("z", TensorProto.FLOAT, None)])
    save("bad-loop", model([helper.make_node("Loop", ["", "", "image"], ["y"], name="again", body=inner)],
                           [], image, "y"), check=False)
    save("bad-batch", model([node("Transpose", "image", "y", name="turn", perm=[1, 0, 2, 3])], [], image,
                            "y"), check=False)
    save("bad-pool", model([node("Transpose", "image", "x", perm=[1, 0, 2, 3]),
                            node("GlobalAveragePool", "x", "y", name="pool")], [], image, "y"), check=False)
    save("bad-weights", model([node("Add", "u v", "w"), node("Conv", "image w", "y", name="taps")],
                              [weight("u", 2, 3, 1, 1), weight("v", 2, 3, 1, 1)], image, "y"), check=False)
    vast = [wholes("many", 1 << 40, 1 << 40), number("one", 1)]
    save("bad-vast", model([node("Expand", "one many", "w", name="spread"), node("Add", "image w", "y")],
                           vast, image, "y"), check=False)


def turned():
    """Weights that are turned, twice, or only said to be; and those whose axes are not named once each."""
    nodes = [node("Transpose", "u", "same", perm=[0, 1]), node("MatMul", "image same", "a"),
             node("Transpose", "v", "once", perm=[1, 0]), node("MatMul", "a once", "b"),
             node("Transpose", "w", "there"), node("Transpose", "there", "back"), node("MatMul", "b back", "c"),
             node("Transpose", "x", "still", perm=[0, 1]), node("Transpose", "still", "x1"),
             node("MatMul", "c x1", "y")]
    save("turned", model(nodes, [weight(k, 4, 4) for k in "uvwx"], ["N", 3, 4], "y"))
    for name, shape, perm in (("bad-perm", (4, 4), [0, 0]), ("bad-perm4", (3, 1, 1, 1), [0, 0, 0, 0])):
        nodes = [node("Transpose", "w", "v", name="turn", perm=perm), node("Conv", "image v", "y")]
        save(name, model(nodes, [weight("w", *shape)], ["N", 3, 4, 4], "y"), check=False)
    nodes = [node("Expand", "one many", f"w{i}", name=f"spread{i}") for i in range(3)]
    nodes += [node("Add", f"{'image' if i == 0 else f'y{i - 1}'} w{i}", f"y{i}") for i in range(3)]
    save("bad-many", model(nodes, [wholes("many", 640, 640), number("one", 1)], ["N", 640, 640], "y2"),
         check=False)


def main():
    os.makedirs(FOLDER, exist_ok=True)
    makers = (cnn, floats, points, shapes, external, training, folded, bad, tokens, ids, norms,
              means, moved, keras, worse, entries, products, bounds, turned)
    for make in makers:
        make()


if __name__ == "__main__":
    main()
