"""Apply a request's own options to the settings, and reject options that cannot work."""

from agent.options import rank_features
from agent.settings import Settings
from agent.types import Request
from retrievers.core.errors import BadRequest, join_names
from retrievers.core.types import Scope
from retrievers.postgres.catalogue.catalogue import filterable_fields

OPTION_NAMES = ("fusion", "lexical_weight", "depth", "rank_features")


def apply_request_options(request: Request, settings: Settings) -> Settings:
    """Return the settings, overridden by the options that the request sets (`OPTION_NAMES`).

    Raises:
        BadRequest: an option would have no effect.
    """
    given = {name: getattr(request, name) for name in OPTION_NAMES}
    own = {name: value for name, value in given.items() if value is not None}
    if "lexical_weight" in own and own.get("fusion", settings.fusion) != "convex":
        raise BadRequest("lexical_weight has an effect only with the fusion convex", where="lexical_weight")
    return settings.model_copy(update=own) if own else settings


def check_rank_features(request: Request, scope: Scope) -> None:
    """Check that the fields used by the request's rank features exist in the scope.

    Raises:
        BadRequest: a field does not exist; the error lists the fields that do.
    """
    fields = filterable_fields(scope)
    for one in rank_features.parse_rank_features(request.rank_features or ""):
        if one.field and one.field not in fields:
            what = f'there is no field "{one.field[:80]}" to rank by; there are: {join_names(fields)}'
            raise BadRequest(what, where="rank_features", valid=tuple(fields))
