"""Every setting with its description, default and checks."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from agent.options import guard_rules, prompt_fields, rank_features, rerankers, routes
from agent.options.fusion import LEAST_DEPTH, MOST_DEPTH, WEIGHTS, FusionMethod, parse_weights
from agent.options.languages import check_language
from agent.options.named_sources import NamedSource, SourceName, clean_api_key, find_clash
from agent.options.time_zones import check_time_zone
from agent.options.transforms import TransformName
from agent.settings.scheduled_sync import ScheduledSync
from retrievers import registry
from retrievers.core.credentials import find_credentials, mask_credentials
from retrievers.core.errors import join_names
from retrievers.embed.factory import parse_name_value_pairs

SETTINGS_FILE = "signalbox.toml"

ApiKey = Annotated[str | None, AfterValidator(clean_api_key)]
"""A key without surrounding blanks, such as the line break of a file; invalid if an HTTP header cannot contain it."""


class Settings(BaseModel):
    """Every setting with its default. The names are the same in the file, in the environment and after `--set`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    home: Path = Field(Path("~/.signalbox"), description="folder of the embedded PostgreSQL")
    database_url: str | None = Field(None, description="PostgreSQL >= 16 with pgvector >= 0.8; embedded when unset")
    service_url: str | None = Field(
        None, description="login of the service, a member of signalbox_app; created when unset"
    )
    read_urls: tuple[str, ...] = Field(
        (), repr=False, description="addresses of standbys that questions read from, separated by commas"
    )
    max_lag_s: float = Field(
        5.0,
        ge=0.5,
        le=600,
        description="maximum lag of a standby that is read behind the primary, in seconds",
    )
    embedder: str = Field("minilm", description="minilm, onnx:DIR, fastembed:NAME, openai/MODEL or a litellm string")
    embedder_base_url: str | None = Field(None, description="endpoint of an OpenAI-compatible embedder")
    embedder_api_key: ApiKey = Field(None, repr=False, description="key of the embedder")
    embedders: str = Field(
        "",
        max_length=4000,
        description="more embedders that collections may use: NAME or NAME=URL, separated by commas",
    )
    embedder_keys: str = Field("", repr=False, description="API keys of these embedders: NAME=KEY, separated by commas")
    llm: str | None = Field(
        None, description="openai/MODEL, any model at LLM_BASE_URL, a litellm string, replay:FILE or record:FILE=MODEL"
    )
    llm_base_url: str | None = Field(None, description="endpoint of an OpenAI-compatible model")
    llm_api_key: ApiKey = Field(None, repr=False, description="key of the model")
    transforms: tuple[TransformName, ...] = Field(
        (), description="query transformers that a model runs before the search"
    )
    reranker: str = Field("none", max_length=2000, description=rerankers.FORMS)
    reranker_model: str | None = Field(None, description="name of the model at the reranker of http:URL")
    reranker_api_key: ApiKey = Field(None, repr=False, description="key of the reranker")
    rerank_min_score: float | None = Field(
        None,
        ge=0,
        le=1,
        description="minimum score of the reranker: hits with a lower score are left out; no minimum when unset",
    )
    rerank_blend: float = Field(
        0.0, ge=0, le=1, description="share of the word overlap in the score of a reranker that is a model"
    )
    min_relevance: float | None = Field(
        None,
        ge=0,
        le=1,
        description="minimum relevance: hits with a lower relevance are left out; no minimum when unset",
    )
    sources: dict[SourceName, NamedSource] = Field(
        default_factory=dict,
        max_length=32,
        description="named sources: a table [sources.NAME] each, with kind (local, web, cloud or collections), "
        "description and the keys of its kind",
    )
    fusion: FusionMethod = Field("convex", description="method that merges the rankings")
    fusion_weights: str = Field(
        WEIGHTS, description="weights in weighted_sum: SOURCE=WEIGHT, separated by commas; other sources share the rest"
    )
    rank_features: str = Field(
        "", description=f"more signals that rank hits: {rank_features.FORM}, separated by commas; none when unset"
    )
    lexical_weight: float | None = Field(
        None, ge=0, le=1, description="weight of full text in convex, 0 to 1; chosen for each question when unset"
    )
    depth: int = Field(
        100, ge=LEAST_DEPTH, le=MOST_DEPTH, description="hits requested from each source; every page is cut from them"
    )
    per_document: int = Field(
        2, ge=1, le=100, description="maximum passages of one document on a page while others are relevant"
    )
    web_provider: str | None = Field(
        None, description="web search provider: tavily, brave, searxng:URL, exa or ddgs; no web search when unset"
    )
    web_api_key: ApiKey = Field(None, repr=False, description="key of the web provider")
    web_base_url: str | None = Field(
        None, description="address of the web provider's API; the provider's default when unset"
    )
    web_fetch: bool = Field(False, description="read the pages that a web search finds, through the guarded fetcher")
    cloud: str | None = Field(
        None, description="external knowledge base: bailian:…, bedrock:…, azure:…, vertex:…, dify:… or openai:ID"
    )
    cloud_api_key: ApiKey = Field(None, repr=False, description="key of the knowledge base")
    cloud_base_url: str | None = Field(
        None, description="address of the knowledge base's API; the provider's default when unset"
    )
    metered_searches: int = Field(
        1, ge=1, le=8, description="maximum searches per question at a source that charges per search"
    )
    outside_fallback: bool = Field(
        False,
        description="also search the web or the cloud if the documents contain no answer, or only a part of it; the "
        "question is sent to them",
    )
    local: Path | None = Field(
        None, description="folder of documents to search without a database; every tenant may read it"
    )
    context: Literal["passage", "window", "section"] = Field(
        "passage",
        description="text in a prompt: passage: the hits; window: also the passages beside; section: whole sections",
    )
    prompts: Path | None = Field(None, description="folder of prompt templates that replace the packaged templates")
    prompt_fields: str = Field(
        "", max_length=4000, description=f"metadata in a prompt: {prompt_fields.FORM}; all metadata when unset"
    )
    intent: Literal["auto", "rules", "llm", "off"] = Field(
        "auto",
        description="auto: rules, and a model where it can help; rules: no model; llm: a model for every question; off",
    )
    max_rounds: int = Field(
        3, ge=1, le=8, description="maximum rounds of searching for missing parts of an answer; 1 searches once"
    )
    loop_calls: int = Field(2, ge=0, le=8, description="maximum model calls that judge the hits")
    loop_tokens: int = Field(12_000, ge=0, le=1_000_000, description="maximum tokens of these calls, in total")
    loop_share: float = Field(
        0.5, ge=0, le=1, description="share of TIMEOUT_S that the rounds after the first may take"
    )
    time_zone: Annotated[str, AfterValidator(check_time_zone)] = Field(
        "UTC", description="time zone in which a user's day begins, such as Asia/Shanghai"
    )
    week_start: int = Field(0, ge=0, le=6, description="first day of the week, 0 for Monday to 6 for Sunday")
    fiscal_year_start: int = Field(1, ge=1, le=12, description="first month of the fiscal year")
    language: Annotated[str | None, AfterValidator(check_language)] = Field(
        None, description="language of answers, a code such as en or zh; the question's language when unset"
    )
    fallback: Literal["ordered_backoff", "do_not_route", "route_to_all", "fail"] = Field(
        "ordered_backoff", description="strategy if none of the sources chosen for a question exists"
    )
    timeout_s: float = Field(10.0, gt=0, le=120, description="time limit of a request, in seconds")
    answer_timeout_s: float = Field(
        60.0, gt=0, le=600, description="time limit of a model's answer, in seconds; it must begin within TIMEOUT_S"
    )
    judge: Literal["off", "llm"] = Field("off", description="llm: a model also checks each answer against its passages")
    source_timeout_s: float = Field(3.0, gt=0, le=120, description="time limit of one source, in seconds")
    pool_size: int = Field(10, ge=1, le=200, description="maximum database connections of each process")
    processes: int | None = Field(
        None, ge=1, le=64, description="processes of `signalbox serve`; one per core, at most 4, when unset"
    )
    grace_s: float = Field(
        2.0,
        gt=0,
        le=600,
        description="seconds that running requests may continue once `signalbox serve` is told to stop",
    )
    ocr: str | None = Field(
        None,
        pattern=r"^[a-z_]{3,12}(\+[a-z_]{3,12}){0,7}$",
        description="languages of scanned PDFs, which the program ocrmypdf reads, such as eng or eng+chi_sim; scans "
        "are refused when unset",
    )
    workers: int = Field(
        1,
        ge=0,
        le=16,
        description="ingestion jobs that `signalbox serve` runs at once; 0 leaves them to `signalbox worker`",
    )
    tenant_jobs: int | None = Field(
        None,
        ge=1,
        le=1000,
        description="maximum jobs of one tenant that all workers run at once; no maximum when unset",
    )
    sync: Mapping[str, ScheduledSync] = Field(
        default_factory=dict, description="scheduled syncs of collections: a table [sync.NAME] each"
    )
    sync_max_delete: float = Field(
        0.5, ge=0, le=1, description="maximum share of a source's documents that one run deletes; --force deletes more"
    )
    trace_days: int = Field(30, ge=0, le=3650, description="days to keep decision records; 0 keeps none")
    chat_days: int = Field(
        30, ge=0, le=3650, description="days to keep conversations and records of questions; 0 keeps none"
    )
    choose_collections: bool = Field(
        False, description="search only the collections that a question seems to mean, if it names none"
    )
    guard: tuple[str, ...] = Field(
        (), description="words and phrases that a question must not contain, and patterns as re:PATTERN"
    )
    routes: tuple[str, ...] = Field(
        (), description=f"sources by a request's metadata, {routes.FORM}: the first route that matches is used"
    )
    log_format: Literal["text", "json"] = Field("text", description="log lines of `signalbox serve`: text or json")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="minimum level of the lines that `signalbox serve` logs: debug, info, warning or error"
    )
    tenant: str = Field("default", min_length=1, max_length=128, description="tenant of the command line")
    auth: Literal["off", "keys"] | None = Field(
        None, description="keys: HTTP callers need an API key; off: only on loopback; depends on the address when unset"
    )

    jwt_issuer: str | None = Field(None, description="issuer of tokens that identify callers; no tokens when unset")
    jwt_audience: str | None = Field(None, description="audience of these tokens")
    jwt_keys: Path | None = Field(None, description="file of the issuer's public keys, as a JWKS")
    jwt_claim: str = Field("principals", description="claim that holds the caller's users and groups")
    jwt_tenant_claim: str | None = Field(
        None, description="claim that holds the tenant; every caller has TENANT when unset"
    )

    @field_validator("*", mode="before")
    @classmethod
    def _default_when_empty(cls, value: object, info: ValidationInfo) -> object:
        """Return the default instead of "", if the default is None or a path.

        An environment variable or TOML cannot express None. As a path, "" would mean the working folder with all files.
        """
        default = cls.model_fields[str(info.field_name)].default
        return default and str(default) if value == "" and isinstance(default, Path | None) else value

    @field_validator("embedders", "embedder_keys")
    @classmethod
    def _embedder_text_valid(cls, value: str) -> str:
        if any(not (one.isascii() and one.isprintable()) for one in parse_name_value_pairs(value).values() if one):
            raise ValueError("it contains a character that no address and no key has")
        return value

    @field_validator("reranker")
    @classmethod
    def _reranker_valid(cls, value: str) -> str:
        rerankers.parse_reranker(value)
        return value

    @field_validator("rank_features")
    @classmethod
    def _rank_features_valid(cls, value: str) -> str:
        rank_features.parse_rank_features(value)
        return value

    @field_validator("prompt_fields")
    @classmethod
    def _prompt_fields_valid(cls, value: str) -> str:
        prompt_fields.parse_prompt_fields(value)
        return value

    @field_validator("sources", mode="before")
    @classmethod
    def _sources_are_tables(cls, value: object) -> object:
        if isinstance(value, str):
            raise ValueError(f"define named sources as tables [sources.NAME] of {SETTINGS_FILE}")
        return value

    @field_validator("fusion_weights")
    @classmethod
    def _weights_of_known_sources(cls, value: str, info: ValidationInfo) -> str:
        # Named sources of documents have no weights of their own: their scores count as full text or vector scores.
        outside = [name for name, one in info.data.get("sources", {}).items() if one.kind in ("web", "cloud")]
        known = {*registry.names(), *outside}
        if unknown := parse_weights(value).keys() - known:
            raise ValueError(f"there is no source {join_names(unknown)}; there are: {join_names(known)}")
        return value

    @model_validator(mode="after")
    def _sources_defined_once(self) -> Self:
        short = {"local": self.local, "web": self.web_provider, "cloud": self.cloud}
        if wrong := find_clash(self.sources, short):  # type: ignore[arg-type]
            raise ValueError(wrong)
        return self

    @model_validator(mode="after")
    def _jwt_settings_complete(self) -> Self:
        given = (self.jwt_issuer, self.jwt_audience, self.jwt_keys)
        if any(given) and not all(given):
            raise ValueError("set JWT_ISSUER, JWT_AUDIENCE and JWT_KEYS together, or none of them")
        return self

    @property
    def zone(self) -> ZoneInfo:
        """The users' time zone."""
        return ZoneInfo(self.time_zone)

    @property
    def uses_external_services(self) -> bool:
        """Whether a search may wait for an external service: a model, embedder, reranker, the web or the cloud."""
        embedder = not self.embedder.startswith(("minilm", "onnx:", "fastembed:"))
        reranker = rerankers.parse_reranker(self.reranker)[0] in ("http", "litellm")
        outside = any(one.kind in ("web", "cloud") for one in self.sources.values())
        return embedder or reranker or outside or any((self.llm, self.web_provider, self.cloud))

    def __repr__(self) -> str:
        """Return the settings without credentials in addresses, including those in tables."""
        return mask_credentials(super().__repr__())

    __str__ = __repr__

    @property
    def secrets(self) -> tuple[str, ...]:
        """All keys and passwords, including those in addresses; no log, trace or answer may contain them."""
        own = (getattr(self, name) for name in type(self).model_fields if name.endswith("_api_key"))
        others = parse_name_value_pairs(self.embedder_keys).values()
        texts = [str(value) for value in _nested_values(self.model_dump()) if isinstance(value, str)]
        found = (*own, *others, *(one.api_key for one in self.sources.values()), *_credentials_in_addresses(texts))
        return tuple(dict.fromkeys(filter(None, found)))

    @field_validator("guard")
    @classmethod
    def _guard_rules_valid(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for rule in value:
            guard_rules.compile_rule(rule)
        return value

    @field_validator("routes")
    @classmethod
    def _routes_valid(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if "sources" in info.data:  # missing if the sources are invalid; pydantic then reports these
            routes.check_routes(value, info.data["sources"])
        return value

    @field_validator("*")
    @classmethod
    def _has_no_nul(cls, value: object) -> object:
        if isinstance(value, str | Path) and "\0" in str(value):
            raise ValueError("it contains a NUL character")
        return value

    @field_validator("read_urls", mode="before")
    @classmethod
    def _split_addresses(cls, value: object) -> object:
        """Split a text into addresses, since an environment variable cannot hold a list.

        Only a comma before a new address separates two: an address may have commas between its hosts.
        """
        given = re.split(r",\s*(?=postgres(?:ql)?://|\w+\s*=)", value) if isinstance(value, str) else value
        if not isinstance(given, list):
            return given
        stripped = (one.strip() if isinstance(one, str) else one for one in given)
        return tuple(one for one in stripped if one != "")

    @field_validator("transforms", "guard", "routes", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        """Split a text at its commas, since an environment variable cannot hold a list."""
        names = [*filter(None, map(str.strip, value.split(",")))] if isinstance(value, str) else value
        return tuple(names) if isinstance(names, list) else names


def _nested_values(held: object) -> Iterator[object]:
    """Yield all values inside nested mappings, lists and tuples."""
    if isinstance(held, Mapping):
        for value in held.values():
            yield from _nested_values(value)
    elif isinstance(held, list | tuple):
        for value in held:
            yield from _nested_values(value)
    else:
        yield held


def _credentials_in_addresses(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for one in text.split(","):
            yield from find_credentials(one)
