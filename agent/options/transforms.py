"""The option TRANSFORMS: names of the query transformers."""

from typing import Literal, get_args

TransformName = Literal["compress", "rewrite", "translate", "expand", "decompose", "stepback", "hyde"]
NAMES: tuple[TransformName, ...] = get_args(TransformName)
