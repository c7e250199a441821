"""What embedding long texts leaves behind in a process."""

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import asyncio
from pathlib import Path
from retrievers.embed.onnx import OnnxEmbedder

def held():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmRSS"))

async def main():
    embedder = OnnxEmbedder(Path({folder!r}), "packaged", cores=2)
    await embedder.embed(["a question"])
    before = held()
    await embedder.embed(["the night ferry leaves from pier four at nine " * 30] * 64)
    print(held() - before)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process holds")
def test_the_memory_of_large_batches_is_given_back():
    folder = Path(__file__).parents[2] / "retrievers" / "embed" / "minilm"
    code = CODE.format(folder=str(folder))
    grown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=250)
    assert int(grown.stdout) < 100  # MB; kept, it is more than 300
