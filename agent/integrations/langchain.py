"""LangChain: a retriever over an open service.

    retriever = SignalboxRetriever(service=service, collection="peps", top_k=5)
    chain = {"context": retriever, "question": RunnablePassthrough()} | prompt | model

`ainvoke` and other async methods work with `agent.open_service()` and `open_blocking()`; `invoke` only with the latter.
"""

from typing import Any

from pydantic import Field, field_validator

from agent.integrations import base
from agent.types import Result

try:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
except ImportError as error:
    raise base.missing_package_error(__name__, "langchain-core", error) from None


class SignalboxRetriever(BaseRetriever):  # type: ignore[misc]
    """Retrieve documents whose `id` is the passage id, with the metadata of `base.hit_metadata` and the key "score".

    Attributes:
        service: from `agent.open_service()` or `agent.integrations.blocking.open_blocking()`.
        collection, filter, top_k, tenant: sent with every request; None means the service's default.
        options: other keys of `agent.types.Request`, such as sources, intent or reranker.

    `invoke` and `ainvoke` accept any of these keys for one question: `retriever.invoke(question, top_k=3)`.
    """

    service: Any = Field(repr=False, exclude=True)
    collection: str | None = None
    filter: dict[str, Any] | None = None
    top_k: int | None = None
    tenant: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("service")
    @classmethod
    def _open(cls, service: Any) -> Any:
        base.check_service(service)
        return service

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        return _documents(base.retrieve(self.service, query, self._options(options)))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        return _documents(await base.aretrieve(self.service, query, self._options(options)))

    def _options(self, for_this: dict[str, Any]) -> dict[str, Any]:
        own = {"collection": self.collection, "filter": self.filter, "top_k": self.top_k, "tenant": self.tenant}
        return base.merge_options(own, {**self.options, **for_this})


def _documents(result: Result) -> list[Document]:
    return [
        Document(id=hit.id, page_content=hit.text, metadata=base.hit_metadata(result, hit, score=hit.score))
        for hit in result.hits
    ]
