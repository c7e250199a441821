"""What a caller says of a request leads it to sources and to advisors of the host's own."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from agent.chat.advisors.advisor import AdvisedRequest, RequestOutcome
from agent.options.routes import parse_route
from agent.service.factory import open_service
from agent.settings import load_settings
from agent.types import ApiModel
from retrievers.core.errors import BadRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED = "When does the rotor stop?"


def sources(result: Any) -> set[str]:
    return {step.source for step in result.plan}


async def test_the_first_route_that_fits_decides_which_sources_are_asked(chatting):
    routes = ("app=support:fulltext", "user=ada:vector", "beta=true:vector", "app=news:web")
    settings = chatting.service.settings.model_copy(update={"routes": routes, "llm": None})
    async with open_service(settings) as service:
        usual = sources(await service.retrieve(ASKED))
        assert usual == {"fulltext", "vector"}
        support = await service.retrieve(ASKED, user="ada", metadata={"app": "support"})
        assert sources(support) == {"fulltext"}
        assert sources(await service.augment(ASKED, user="ada")) == {"vector"}
        assert sources(await service.ask(ASKED, metadata={"beta": True})) == {"vector"}
        assert sources(await service.retrieve(ASKED, metadata={"app": "Support"})) == usual
        assert sources(await service.retrieve(ASKED, metadata={"app": "news"})) == usual  # there is no web here
        named = await service.retrieve(ASKED, metadata={"app": "support"}, sources=["vector"])
        assert sources(named) == {"vector"}
        assert (await service.explain(support.trace_id))["request"]["sources"] == ["fulltext"]
        assert sources(await service.replay(support.trace_id)) == {"fulltext"}


@pytest.mark.parametrize(
    "rule", ["app", "app=x", "=x:vector", "app=:vector", "app=x:", "app=x:vector+", "app=x:nowhere"]
)
async def test_a_rule_that_cannot_be_is_a_bad_setting(rule):
    with pytest.raises(BadRequest, match="ROUTES"):
        load_settings({"routes": rule})


async def test_rules_are_between_commas_and_a_value_may_hold_a_colon():
    assert load_settings({"routes": "a=b:fulltext+vector, c=urn:x:vector"}).routes == (
        "a=b:fulltext+vector",
        "c=urn:x:vector",
    )
    assert parse_route("c=urn:x:vector") == ("c", "urn:x", ("vector",))


class ToneParameters(ApiModel):
    style: str


@dataclass
class Tone:
    """An advisor of a host's own that a request names; it reads who asks."""

    name: ClassVar[str] = "tone"
    parameters: ClassVar[type[ApiModel]] = ToneParameters
    always: ClassVar[bool] = False
    style: str = ""
    order: int = 350

    def with_parameters(self, parameters: ToneParameters) -> "Tone":
        if parameters.style not in ("short", "long"):
            raise BadRequest("there is no such style", where="style", valid=("long", "short"))
        return replace(self, style=parameters.style)

    async def before(self, call: AdvisedRequest) -> AdvisedRequest:
        request = call.request
        call.context["tone.for"] = f"{self.style} for {request.user} of {request.metadata.get('app')}"
        return replace(call, request=request.model_copy(update={"sources": ("fulltext",)}))

    async def after(self, end: RequestOutcome) -> RequestOutcome:
        return end


async def test_an_advisor_of_the_hosts_own_is_named_with_parameters_and_reads_who_asks(chatting):
    settings = chatting.service.settings.model_copy(update={"llm": None})
    async with open_service(settings, advisors=[Tone()]) as service:
        named: dict[str, Any] = {"advisors": [{"name": "tone", "style": "short"}], "user": "ada"}
        answer = await service.chat(ASKED, **named, metadata={"app": "support"})
        assert answer.context["tone.for"] == "short for ada of support"
        assert sources(await service.retrieve(ASKED, **named)) == {"fulltext"}
        assert sources(await service.retrieve(ASKED)) == {"fulltext", "vector"}
        assert "tone.for" not in (await service.chat(ASKED)).context
        with pytest.raises(BadRequest, match="no such style") as raised:
            await service.retrieve(ASKED, advisors=[{"name": "tone", "style": "odd"}])
        assert (raised.value.where, raised.value.valid) == ("advisors.0.style", ("long", "short"))
        with pytest.raises(BadRequest) as raised:
            await service.retrieve(ASKED, advisors=[{"name": "toner"}])
        assert raised.value.valid == ("guard", "memory", "record", "tone")


async def test_without_days_nothing_is_remembered_that_could_be_named(chatting):
    settings = chatting.service.settings.model_copy(update={"chat_days": 0})
    async with open_service(settings) as service:
        with pytest.raises(BadRequest) as raised:
            await service.retrieve(ASKED, advisors=[{"name": "memory", "window": 2}])
        assert raised.value.valid == ("guard",)
