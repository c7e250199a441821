"""Learned ranking: LightGBM over the features of a hit, with a model that `signalbox eval tune` has trained."""

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from agent.errors import BadSetting
from agent.retrieval.fusion import Fused
from agent.retrieval.rerank.features import NAMES, VERSION, Matrix, features
from retrievers.core.errors import Unavailable
from retrievers.core.extras import install_command
from retrievers.core.tasks import within

FILE = "ltr.json"
"""Where `eval tune` writes the model, within SIGNALBOX_HOME."""

_FORMAT = "signalbox-ltr"
_TRAIN = "`signalbox eval tune DATASET` trains one"


@dataclass(frozen=True, slots=True)
class TrainedRanker:
    """A trained ranker.

    Args:
        booster: a `lightgbm.Booster` over the features of `agent.retrieval.rerank.features`.
        trained_on: what it learned from, for people.
    """

    booster: Any
    trained_on: Mapping[str, Any] = field(default_factory=dict)

    def scores(self, rows: Matrix) -> list[float]:
        """One score per row, comparable within the pool that the rows describe."""
        # The pool is small: threads would cost more than they give.
        return [float(score) for score in np.atleast_1d(self.booster.predict(rows, num_threads=1))]


@dataclass(frozen=True, slots=True)
class LearnedRanker:
    """A `Reranker` by a model; nothing leaves the process, and scores compare within one pool only."""

    model: TrainedRanker
    name: str = "ltr"
    remote: bool = False
    comparable: bool = False

    async def rerank(self, question: str, language: str, pool: Sequence[Fused], *, deadline: float) -> list[float]:
        """One score per hit, in the order of the pool; higher is better.

        Args:
            pool: in fused order, chunks loaded.
            deadline: moment of `time.monotonic()`.
        Raises:
            Unavailable: the time was over before the hits were judged.
        """
        try:
            # Not on the event loop: the texts of a pool are analysed.
            judging = asyncio.to_thread(self._scores, question, language, pool)
            return await within(judging, deadline - time.monotonic())
        except TimeoutError as error:
            raise Unavailable(self.name, "the hits were not judged in time") from error

    def _scores(self, question: str, language: str, pool: Sequence[Fused]) -> list[float]:
        return self.model.scores(features(question, language, pool))

    async def aclose(self) -> None:
        """There is nothing to let go of."""


def open_ranker(name: str, home: Path) -> LearnedRanker:
    """The ranker of the setting: `ltr:FILE`, or `ltr` for the model that `eval tune` wrote into the home.

    Raises:
        BadSetting: LightGBM is not installed, or there is no model that this version can use.
    """
    given = name.partition(":")[2]
    path = Path(given).expanduser() if given else home.expanduser() / FILE
    return LearnedRanker(load(path), name)


def save(model: TrainedRanker, path: Path) -> None:
    """Write a model for `load`.

    Raises:
        OSError: the file cannot be written.
    """
    text = model.booster.model_to_string()
    record = {
        "format": _FORMAT,
        "version": VERSION,
        "features": list(NAMES),
        "trained_on": dict(model.trained_on),
        "sha256": _digest(text),
        "model": text,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")


def load(path: Path) -> TrainedRanker:
    """Read what `save` wrote.

    Raises:
        BadSetting: LightGBM is not installed, there is no such file, or it is not a model this version can use.
    """
    lightgbm = import_lightgbm()
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = f"{path} cannot be read ({error.strerror}); {_TRAIN}"
        raise BadSetting(f"RERANKER=ltr: {reason}", where="reranker") from error
    except (ValueError, RecursionError):
        raise _unusable(path, "it is no model file") from None
    if not isinstance(record, dict) or record.get("format") != _FORMAT:
        raise _unusable(path, "it is no model file")
    if (record.get("version"), record.get("features")) != (VERSION, list(NAMES)):
        raise _unusable(path, "its model was trained on other features than this version's")
    text, trained_on = record.get("model"), record.get("trained_on")
    # LightGBM's parser can end the process over a damaged text: it gets none but what was written.
    if not isinstance(text, str) or record.get("sha256") != _digest(text) or not isinstance(trained_on, dict):
        raise _unusable(path, "it is damaged")
    try:
        booster = lightgbm.Booster(model_str=text)
    except lightgbm.basic.LightGBMError:
        raise _unusable(path, "this version of LightGBM cannot read its model") from None
    if booster.num_feature() != len(NAMES):
        raise _unusable(path, "its model was trained on other features than this version's")
    return TrainedRanker(booster, trained_on)


def import_lightgbm() -> Any:
    """The package.

    Raises:
        BadSetting: it is not installed.
    """
    try:
        import lightgbm
    except (ImportError, OSError) as error:
        # OSError: the package is there, the OpenMP library it needs is not.
        hint = install_command("ltr") if isinstance(error, ImportError) else "install libgomp or libomp"
        raise BadSetting(f"learning to rank needs the package lightgbm: {hint}", where="reranker") from error
    return lightgbm


def _unusable(path: Path, reason: str) -> BadSetting:
    return BadSetting(f"RERANKER=ltr: {path}: {reason}; {_TRAIN}", where="reranker")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
