"""Values of the limits of a process that reads one file (`child.py` sets them), and messages for exceeding them."""

import signal
from dataclasses import dataclass

PART_BYTES = 8 << 20
"""After each part of a file of this many bytes, the limits start anew: a file of many documents can have any size."""

EXIT_OUT_OF_MEMORY = 77


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Limits of a process that reads a file. They apply to each part of a large file anew.

    Attributes:
        memory_bytes: maximum address space.
        cpu_s: maximum processor time of all threads together, in seconds.
        wait_s: how long the caller waits for the result, in seconds.
        output_bytes: maximum size of the result, as JSON.
        messages: maximum number of messages of the result, such as documents.
    """

    memory_bytes: int = 1 << 30
    cpu_s: int = 30
    wait_s: float = 38.0
    output_bytes: int = 20_000_000
    messages: int = 400_000

    @property
    def out_of_memory(self) -> str:
        return f"reading it takes more than {self.memory_bytes >> 20:,} MiB of memory; split it"

    @property
    def out_of_cpu(self) -> str:
        return f"reading it takes more than {self.cpu_s} s of processor time; split it"

    @property
    def out_of_time(self) -> str:
        return f"reading it takes longer than {self.wait_s:g} s; split it"

    @property
    def too_much_output(self) -> str:
        return f"its text is larger than {self.output_bytes // 1_000_000} MB; split it"

    @property
    def too_many_messages(self) -> str:
        return f"{PART_BYTES >> 20} MiB of it or less hold more than {self.messages:,} documents; split it"

    def exit_reason(self, exit_code: int) -> str:
        """Return why a process ended before it had read its file.

        Args:
            exit_code: as in `subprocess.Popen.returncode`: negative for a signal.
        """
        if exit_code == -signal.SIGXCPU:
            return self.out_of_cpu
        if exit_code in (EXIT_OUT_OF_MEMORY, -signal.SIGKILL):  # SIGKILL: the system's memory is full
            return self.out_of_memory
        name = signal.Signals(-exit_code).name if exit_code < 0 else f"exit code {exit_code}"
        return f"its reader crashed ({name}); it may use {self.memory_bytes >> 20:,} MiB of memory"


DEFAULT_LIMITS = ProcessLimits()
