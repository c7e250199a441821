"""Apply a request's own options to the settings, and reject options that cannot work."""

from agent.options import rank_features
from agent.settings import Settings
from agent.types import Request
from retrievers.core.errors import BadRequest, listing
from retrievers.core.types import Scope
from retrievers.postgres.catalogue import filterable

NAMES = ("fusion", "lexical_weight", "depth", "rank_features")


def settings_for(request: Request, settings: Settings) -> Settings:
    """Return the settings, overridden by the options that the request sets (`NAMES`).

    Raises:
        BadRequest: an option would have no effect.
    """
    given = {name: getattr(request, name) for name in NAMES}
    own = {name: value for name, value in given.items() if value is not None}
    if "lexical_weight" in own and own.get("fusion", settings.fusion) != "convex":
        raise BadRequest("lexical_weight has an effect only with the fusion convex", where="lexical_weight")
    return settings.model_copy(update=own) if own else settings


def check_fields(request: Request, scope: Scope) -> None:
    """Check that the fields used by the request's rank features exist in the scope.

    Raises:
        BadRequest: a field does not exist; the error lists the fields that do.
    """
    fields = filterable(scope)
    for one in rank_features.parse(request.rank_features or ""):
        if one.field and one.field not in fields:
            what = f'there is no field "{one.field[:80]}" to rank by; there are: {listing(fields)}'
            raise BadRequest(what, where="rank_features", valid=tuple(fields))
