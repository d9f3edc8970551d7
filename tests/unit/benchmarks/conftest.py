import sys
from pathlib import Path

# a benchmark is a directory that is run, so its modules import each other by their bare names
sys.path.append(str(Path(__file__).parents[3] / "benchmarks" / "proxy"))
