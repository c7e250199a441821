"""Learning to rank: score hits with a LightGBM model over their features; `signalbox eval tune` trains it."""

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
from agent.retrieval.fusion import FusedHit
from agent.retrieval.rerank.ltr_features import NAMES, VERSION, Matrix, compute_ltr_features
from retrievers.core.errors import Unavailable
from retrievers.core.optional_dependencies import install_command
from retrievers.core.timeouts import wait_within

FILE = "ltr.json"
"""Name of the model file in SIGNALBOX_HOME, written by `eval tune`."""

_FORMAT = "signalbox-ltr"
_TRAIN = "`signalbox eval tune DATASET` trains one"


@dataclass(frozen=True, slots=True)
class LtrModel:
    """A trained LightGBM model.

    Args:
        booster: a `lightgbm.Booster` over the features of `agent.retrieval.rerank.ltr_features`.
        trained_on: description of the training data, for people.
    """

    booster: Any
    trained_on: Mapping[str, Any] = field(default_factory=dict)

    def scores(self, rows: Matrix) -> list[float]:
        """Return one score per row, comparable within the pool that the rows describe."""
        # The pool is small: starting threads would cost more time than it saves.
        return [float(score) for score in np.atleast_1d(self.booster.predict(rows, num_threads=1))]


@dataclass(frozen=True, slots=True)
class LtrReranker:
    """A `Reranker` that runs a trained model in this process; scores are comparable within one pool only."""

    model: LtrModel
    name: str = "ltr"
    is_remote: bool = False
    is_comparable: bool = False

    async def rerank(self, question: str, language: str, pool: Sequence[FusedHit], *, deadline: float) -> list[float]:
        """Return one score per hit, in pool order; higher is better.

        Args:
            pool: in fused order, chunks loaded.
            deadline: time of `time.monotonic()`.
        Raises:
            Unavailable: the hits were not scored before the deadline.
        """
        try:
            # In a thread: analysing the texts of the pool would block the event loop.
            judging = asyncio.to_thread(self._scores, question, language, pool)
            return await wait_within(judging, deadline - time.monotonic())
        except TimeoutError as error:
            raise Unavailable(self.name, "the hits were not scored in time") from error

    def _scores(self, question: str, language: str, pool: Sequence[FusedHit]) -> list[float]:
        return self.model.scores(compute_ltr_features(question, language, pool))

    async def aclose(self) -> None:
        """Do nothing: there are no resources to release."""


def open_ltr_reranker(name: str, home: Path) -> LtrReranker:
    """Return the ranker for the setting: `ltr:FILE`, or `ltr` for the model that `eval tune` wrote to the home folder.

    Raises:
        BadSetting: LightGBM is not installed, or there is no model that this version can use.
    """
    given = name.partition(":")[2]
    path = Path(given).expanduser() if given else home.expanduser() / FILE
    return LtrReranker(load_model(path), name)


def save_model(model: LtrModel, path: Path) -> None:
    """Write a model in the form that `load_model` reads.

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


def load_model(path: Path) -> LtrModel:
    """Read a model that `save_model` wrote.

    Raises:
        BadSetting: LightGBM is not installed, or the file is missing or not a model that this version can use.
    """
    lightgbm = import_lightgbm()
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = f"{path} cannot be read ({error.strerror}); {_TRAIN}"
        raise BadSetting(f"RERANKER=ltr: {reason}", where="reranker") from error
    except (ValueError, RecursionError):
        raise _unusable(path, "it is not a model file") from None
    if not isinstance(record, dict) or record.get("format") != _FORMAT:
        raise _unusable(path, "it is not a model file")
    if (record.get("version"), record.get("features")) != (VERSION, list(NAMES)):
        raise _unusable(path, "its model was trained on features other than those of this version")
    text, trained_on = record.get("model"), record.get("trained_on")
    # LightGBM's parser can crash the process on a damaged text, so it only gets a text with the right checksum.
    if not isinstance(text, str) or record.get("sha256") != _digest(text) or not isinstance(trained_on, dict):
        raise _unusable(path, "it is damaged")
    try:
        booster = lightgbm.Booster(model_str=text)
    except lightgbm.basic.LightGBMError:
        raise _unusable(path, "this version of LightGBM cannot read its model") from None
    if booster.num_feature() != len(NAMES):
        raise _unusable(path, "its model was trained on features other than those of this version")
    return LtrModel(booster, trained_on)


def import_lightgbm() -> Any:
    """Import the lightgbm package.

    Raises:
        BadSetting: it is not installed.
    """
    try:
        import lightgbm
    except (ImportError, OSError) as error:
        # OSError: the package is installed, but the OpenMP library it needs is not.
        hint = install_command("ltr") if isinstance(error, ImportError) else "install libgomp or libomp"
        raise BadSetting(f"learning to rank needs the package lightgbm: {hint}", where="reranker") from error
    return lightgbm


def _unusable(path: Path, reason: str) -> BadSetting:
    return BadSetting(f"RERANKER=ltr: {path}: {reason}; {_TRAIN}", where="reranker")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
