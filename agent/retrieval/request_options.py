"""Settings that a request may have otherwise, and what a request may not ask of them."""

from agent.options import rank_features
from agent.settings import Settings
from agent.types import Request
from retrievers.core.errors import BadRequest, listing
from retrievers.core.types import Scope
from retrievers.postgres.catalogue import filterable

NAMES = ("fusion", "lexical_weight", "depth", "rank_features")


def settings_for(request: Request, settings: Settings) -> Settings:
    """The settings with the request's own options in their place.

    Raises:
        BadRequest: an option that would have no effect.
    """
    given = {name: getattr(request, name) for name in NAMES}
    own = {name: value for name, value in given.items() if value is not None}
    if "lexical_weight" in own and own.get("fusion", settings.fusion) != "convex":
        raise BadRequest("lexical_weight has an effect in the fusion convex alone", where="lexical_weight")
    return settings.model_copy(update=own) if own else settings


def check_fields(request: Request, scope: Scope) -> None:
    """Check that documents in scope have the fields of the request's rank features.

    Raises:
        BadRequest: there is no such field; names those that there are.
    """
    fields = filterable(scope)
    for one in rank_features.parse(request.rank_features or ""):
        if one.field and one.field not in fields:
            what = f'there is no field "{one.field[:80]}" to rank by; there are: {listing(fields)}'
            raise BadRequest(what, where="rank_features", valid=tuple(fields))
