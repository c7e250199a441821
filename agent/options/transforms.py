"""The option TRANSFORMS: names of the query transformers."""

from typing import Literal, get_args

Name = Literal["compress", "rewrite", "translate", "expand", "decompose", "stepback", "hyde"]
NAMES: tuple[Name, ...] = get_args(Name)
