"""Recognise text on scanned pages with the program ocrmypdf, if it is installed."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from retrievers.core.errors import BadDocument
from retrievers.sandbox import CancelCheck, ProcessLimits
from retrievers.sandbox.program import run_program

PROGRAM = "ocrmypdf"
_LIMITS = replace(ProcessLimits(), cpu_s=60, wait_s=120.0)
"""A page takes some seconds. The memory limit applies to each process that the program starts."""


@dataclass(slots=True)
class TextRecognition:
    """Runs text recognition (OCR).

    Attributes:
        languages: languages of the texts as tesseract names them, such as "eng+chi_sim"; None switches recognition off.
    """

    languages: str | None = None

    @contextmanager
    def recognise(self, file: BinaryIO, is_cancelled: CancelCheck) -> Iterator[BinaryIO]:
        """Yield an open copy of a PDF with recognised text on its scanned pages. Pages that have text are unchanged.

        Raises:
            BadDocument: the program is not installed, fails, or exceeds the limits.
            Unavailable: `is_cancelled` returned True.
        """
        program = shutil.which(PROGRAM)
        if program is None:
            raise BadDocument(f"{PROGRAM} is not installed")
        with tempfile.TemporaryDirectory(prefix="signalbox-") as name:
            folder = Path(name)
            file.seek(0)
            with (folder / "scan.pdf").open("wb") as copy:
                shutil.copyfileobj(file, copy)
            options = ("--skip-text", "--output-type", "pdf", "--jobs", "1", "--quiet", "-l", self.languages or "eng")
            run_program((program, *options, "scan.pdf", "text.pdf"), folder, _LIMITS, is_cancelled)
            try:
                text = (folder / "text.pdf").open("rb")
            except OSError:
                raise BadDocument(f"{PROGRAM} left no PDF") from None
            with text:
                yield text
