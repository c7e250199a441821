"""What a process keeps of the memory that it has freed."""

import gc
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from retrievers.core import process_memory
from retrievers.core.errors import BadDocument, BadFilter
from retrievers.core.filters import parse_filter
from retrievers.core.metadata import Field, flatten_metadata

# A large body is freed first, which is what makes the library keep blocks of up to its size. Then 40 bodies come, a
# small block that stays after each, and the bodies are freed.
_UPLOADS = """
import sys
from retrievers.core import process_memory
if sys.argv[1] == "returned":
    process_memory.configure_malloc()
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


# 400,000 small objects, as from a parsed body of 7 MB. Beside every thousandth lies one of a reference cycle.
_SMALL = """
from retrievers.core import process_memory
process_memory.configure_malloc()
process_memory.freeze_objects()
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
before = resident()
body = []
for number in range(400_000):
    body.append((number, str(number)))
    if not number % 1000:
        cycle = []
        cycle.append(cycle)
del body, cycle
held = resident()
process_memory.release_memory()
print((held - before) >> 20, (resident() - before) >> 20)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_what_lies_beside_a_reference_cycle_is_returned_to_the_system_too() -> None:
    done = subprocess.run([sys.executable, "-c", _SMALL], capture_output=True, text=True, check=True)
    held, kept = map(int, done.stdout.split())
    assert (held > 30, kept < 5) == (True, True)


_FIELDS = {"a": Field("a", "string", "string")}
_CALLS = 50


@pytest.mark.parametrize(
    "work",
    [
        lambda: flatten_metadata({"a": {"b": {"c": [1, 2]}}}),
        lambda: flatten_metadata({str(number): number for number in range(2000)}),
        lambda: parse_filter({"type": "not", "filter": {"type": "eq", "key": "a", "value": "b"}}, _FIELDS),
        lambda: parse_filter({"type": "and", "filters": [5]}, _FIELDS),
        process_memory.trim_heap,
    ],
)
def test_work_of_every_document_and_filter_leaves_no_reference_cycle(work: Callable[[], object]) -> None:
    # Many calls, because threads of other tests may leave some objects meanwhile.
    with suppress(BadDocument, BadFilter):
        work()  # may fill caches
    gc.collect()
    gc.disable()
    try:
        for _ in range(_CALLS):
            with suppress(BadDocument, BadFilter):
                work()
        assert gc.collect() < _CALLS
    finally:
        gc.enable()
