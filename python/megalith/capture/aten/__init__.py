"""Translations of PyTorch's operators (aten) into ONNX nodes, by family. Importing this fills the table."""
from . import attention, layers, norms, points, pools, reduce, shapes  # noqa: F401
