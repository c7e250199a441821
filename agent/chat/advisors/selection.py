"""Choose the advisors of a request: the service's, some of them with parameters from the request."""

from collections.abc import Sequence

from pydantic import ValidationError

from agent.chat.advisors.advisor import Advisor, Parametrised, is_parametrised
from agent.errors import to_bad_request
from agent.types import AdvisorChoice
from retrievers.core.errors import BadRequest, join_names


def select_advisors(advisors: Sequence[Advisor], named: Sequence[AdvisorChoice]) -> list[Advisor]:
    """Return the advisors of a request, sorted by `order`.

    A request can add advisors but not remove any: an advisor with `always` takes part whether it is named or not.

    Raises:
        BadRequest: the request names an advisor that does not exist, names one twice, or gives an invalid parameter;
            the error lists the valid ones.
    """
    known = {one.name: one for one in advisors if is_parametrised(one)}
    own: dict[str, Advisor] = {}
    for place, choice in enumerate(named):
        where = f"advisors.{place}"
        if choice.name not in known:
            what = f'there is no advisor "{choice.name}" for a request; there are: {join_names(known)}'
            raise BadRequest(what, where=f"{where}.name", valid=sorted(known))
        if choice.name in own:
            raise BadRequest(f'the advisor "{choice.name}" is named twice', where=f"{where}.name")
        own[choice.name] = _with_parameters(known[choice.name], choice, where)
    taking_part = (
        own.get(one.name, one) if is_parametrised(one) else one
        for one in advisors
        if not is_parametrised(one) or one.always or one.name in own
    )
    return sorted(taking_part, key=lambda one: one.order)


def _with_parameters(advisor: Parametrised, choice: AdvisorChoice, where: str) -> Advisor:
    """Return the advisor with the request's parameters; `where` is the path of `choice`, for errors."""
    shape = advisor.parameters
    if unknown := [name for name in choice.parameters if name not in shape.model_fields]:
        known = join_names(shape.model_fields)
        what = f'the advisor "{choice.name}" has no parameter "{unknown[0][:64]}"; it has: {known}'
        raise BadRequest(what, where=f"{where}.{unknown[0][:64]}", valid=tuple(shape.model_fields))
    try:
        return advisor.with_parameters(shape.model_validate(choice.parameters))
    except ValidationError as error:
        problem = to_bad_request(error, choice.parameters)
        reason = str(problem)
    except BadRequest as error:
        problem, reason = error, f"{error.where}: {error}"
    raise BadRequest(f'the advisor "{choice.name}": {reason}', where=f"{where}.{problem.where}", valid=problem.valid)
