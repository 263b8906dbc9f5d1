import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

collect_ignore = ["on_ranks.py", "fit_on_ranks.py"]  # scripts, which tests start on ranks
