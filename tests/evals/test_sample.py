import subprocess
import sys
from pathlib import Path

SAMPLE = Path(__file__).parents[2] / "evals" / "data" / "sample"


def test_the_sample_passes_its_own_validation():
    done = subprocess.run([sys.executable, str(SAMPLE / "validate_queries.py")], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout
    assert "OK (0 errors)" in done.stdout
