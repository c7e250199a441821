"""What a process keeps of the memory that it has freed."""

import subprocess
import sys
from pathlib import Path

import pytest

# A large body is freed first, which is what makes the library keep blocks of up to its size. Then 40 bodies come, a
# small block that stays after each, and the bodies are freed.
_UPLOADS = """
import sys
from retrievers.core import heap
if sys.argv[1] == "returned":
    heap.return_freed_memory()
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
bytearray(30 << 20)
before = resident()
bodies, kept = [], []
for _ in range(40):
    bodies.append(bytearray(1 << 20))
    kept.append(bytearray(3000))
del bodies
print((resident() - before) >> 20)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_freed_uploads_are_returned_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", _UPLOADS, "returned"], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 8
