"""Translations of PyTorch's operators (aten) into ONNX nodes, by family. Importing this fills the table."""
from . import attention, layers, norms, places, points, pools, recurrent, reduce, shapes, weights  # noqa: F401
