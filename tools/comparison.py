"""The rule by which our numbers are compared with PyTorch's: it is the Python package's (python/megalith/comparison.py)."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python"))

from megalith.comparison import *  # noqa: E402,F401,F403
