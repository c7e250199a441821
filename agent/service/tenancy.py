"""Tenancy: apply a tenant's settings, allowed sources and quotas to the service's pipeline and answerer."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator

from agent.answering.answer import Answerer
from agent.errors import to_bad_request
from agent.intent.reader import CascadeReader
from agent.llm.model import Model
from agent.options.languages import check_language
from agent.options.time_zones import check_time_zone
from agent.pipeline import Pipeline
from agent.retrieval.rerank.llm import ListwiseReranker
from agent.service.metering import MeteredModel, TokenAccount
from agent.settings import Settings
from agent.types import ApiModel
from retrievers import registry
from retrievers.core.errors import BadRequest, join_names
from retrievers.core.types import Retriever
from retrievers.ingest.collections import check_collection_name
from retrievers.postgres.accounts.tenants import SELF_SERVICE_SETTINGS, SETTING_NAMES, TenantSettings, TenantState

MOST_PER_DAY = 10**15


def allowed_sources(sources: Mapping[str, Retriever], rules: TenantSettings) -> Mapping[str, Retriever]:
    """Return the sources that the tenant may use. No other code decides this."""
    if rules.sources is None:
        return sources
    return {name: source for name, source in sources.items() if name in rules.sources}


def known_sources(settings: Settings) -> tuple[str, ...]:
    """Return all names allowed in a tenant's `sources`, including those of sources that are not configured now."""
    return (*registry.names(), *settings.sources)


def tenant_settings(settings: Settings, rules: TenantSettings) -> Settings:
    """Return the service's settings, overridden by the tenant's."""
    own = {name: getattr(rules, name) for name in SELF_SERVICE_SETTINGS if name in Settings.model_fields}
    own = {name: value for name, value in own.items() if value is not None}
    return settings.model_copy(update=own) if own else settings


class TenantChanges(ApiModel):
    """Changes to a tenant's settings. Settings left out stay unchanged; null resets one to the service's value."""

    sources: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] | None,
        Field(
            min_length=1, max_length=100, description="names of the sources that questions may use, separated by commas"
        ),
    ] = None
    time_zone: Annotated[
        str | None, Field(max_length=100, description="a time zone, such as Asia/Shanghai or Europe/Berlin")
    ] = None
    week_start: Annotated[int | None, Field(ge=0, le=6, description="0 (Monday) to 6 (Sunday)")] = None
    fiscal_year_start: Annotated[
        int | None, Field(ge=1, le=12, description="a month, 1 (January) to 12 (December)")
    ] = None
    collection: Annotated[str | None, Field(min_length=1, max_length=128, description="the name of a collection")] = (
        None
    )
    language: Annotated[str | None, Field(max_length=100, description="a code of ISO 639-1, such as en or zh")] = None
    questions_per_day: Annotated[
        int | None, Field(ge=0, le=MOST_PER_DAY, description=f"a whole number from 0 to {MOST_PER_DAY}")
    ] = None
    tokens_per_day: Annotated[
        int | None, Field(ge=0, le=MOST_PER_DAY, description=f"a whole number from 0 to {MOST_PER_DAY}")
    ] = None

    @field_validator("time_zone")
    @classmethod
    def _zone(cls, value: str | None) -> str | None:
        return value if value is None else check_time_zone(value)

    @field_validator("language")
    @classmethod
    def _language(cls, value: str | None) -> str | None:
        return check_language(value)

    @field_validator("collection")
    @classmethod
    def _collection(cls, value: str | None) -> str | None:
        try:
            if value is not None:
                check_collection_name(value)
        except BadRequest as error:
            raise ValueError(str(error)) from None
        return value

    def checked(self, settings: Settings) -> dict[str, Any]:
        """Return {setting: new value}, without duplicate sources; None resets a setting to the service's value.

        Args:
            settings: the service's settings, which define the sources.
        Raises:
            BadRequest: a source does not exist.
        """
        valid = known_sources(settings)
        if unknown := [name for name in self.sources or () if name not in valid]:
            what = f"sources: there is no source {join_names(unknown)}; there are: {join_names(valid, len(valid))}"
            raise BadRequest(what, where="sources", valid=valid)
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return given if self.sources is None else given | {"sources": list(dict.fromkeys(self.sources))}


def read_changes(pairs: Sequence[str]) -> TenantChanges:
    """Parse KEY=VALUE arguments of the command line; an empty VALUE resets the setting to the service's value.

    Raises:
        BadRequest: a key or value is not valid; the one-line error lists the valid ones.
    """
    given: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or key not in SETTING_NAMES:
            what = f'there is no setting "{key[:80]}" of a tenant' if equals else f'"{pair[:80]}" is not KEY=VALUE'
            raise BadRequest(f"{what}; there are: {join_names(SETTING_NAMES)}", where=key[:80], valid=SETTING_NAMES)
        if key in given:
            raise BadRequest(f"{key} occurs twice; give it once", where=key)
        given[key] = value.strip() or None
    if given.get("sources"):
        given["sources"] = tuple(filter(None, map(str.strip, given["sources"].split(","))))
    try:
        return TenantChanges.model_validate(given)
    except ValidationError as error:
        problem = to_bad_request(error)
        wanted = TenantChanges.model_fields[problem.where.partition(".")[0]].description
        raise BadRequest(f"{problem}; expected: {wanted}", where=problem.where) from None


def tenant_settings_report(
    tenant: str, state: TenantState, settings: Settings, sources: Sequence[str]
) -> dict[str, Any]:
    """Return a tenant's own settings (None: the service's), the settings in force, and today's usage.

    The keys are `tenant`, `settings`, `in_force` and `use`.

    Args:
        settings: the service's settings.
        sources: names of the service's sources.
    """
    own, use = asdict(state.rules), state.use
    holds = tenant_settings(settings, state.rules)
    in_force = own | {name: getattr(holds, name) for name in SELF_SERVICE_SETTINGS if name in Settings.model_fields}
    allowed = state.rules.sources
    in_force["sources"] = [name for name in sources if allowed is None or name in allowed]
    assert use is not None
    return {"tenant": tenant, "settings": own, "in_force": in_force, "use": use._asdict()}


@dataclass(frozen=True, slots=True)
class TenantService:
    """The pipeline and answerer for one request, with the tenant's settings and sources, and its token account."""

    account: TokenAccount
    settings: Settings
    pipeline: Pipeline
    answerer: Answerer


def build_tenant_service(account: TokenAccount, pipeline: Pipeline, answerer: Answerer) -> TenantService:
    """Return pipeline and answerer with the tenant's settings, only its sources, and models that count their tokens.

    Args:
        account: the account of the request, with the tenant's settings.
        pipeline, answerer: those of the service, shared by all tenants.
    """
    state, rules = account.state, account.state.rules
    settings = tenant_settings(pipeline.settings, rules)
    sources = allowed_sources(pipeline.sources, rules)
    # Also withhold names without a configured source: otherwise the reader could choose "web" for a question and report
    # it as missing.
    withheld = frozenset() if rules.sources is None else frozenset({*known_sources(settings), *pipeline.sources})
    withheld -= frozenset(rules.sources or ())

    def metered(model: Model | None) -> Model | None:
        return MeteredModel(model, account) if model is not None else None

    reader, reranker = pipeline.reader, pipeline.reranker
    if isinstance(reader, CascadeReader):
        reader = replace(
            reader,
            settings=settings,
            cards={name: card for name, card in reader.cards.items() if name not in withheld},
            model=metered(reader.model),
            columns=None if "sql" in withheld else reader.columns,
            withheld=withheld,
        )
    if isinstance(reranker, ListwiseReranker):
        reranker = replace(reranker, model=MeteredModel(reranker.model, account))
    chooser = replace(pipeline.chooser, sources=sources) if pipeline.chooser is not None else None
    own = replace(
        pipeline,
        settings=settings,
        sources=sources,
        reader=reader,
        chooser=chooser,
        reranker=reranker,
        model=metered(pipeline.model),
        withheld=withheld,
        changed=state.changed,
        default_collection=rules.collection,
    )
    mine = replace(answerer, settings=tenant_settings(answerer.settings, rules), model=metered(answerer.model))
    return TenantService(account, settings, own, mine)
