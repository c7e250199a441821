"""Web search through a provider: tavily, brave, searxng, exa or ddgs."""

from typing import TYPE_CHECKING

from retrievers.core.types import Card
from retrievers.registry import Resources

if TYPE_CHECKING:
    from retrievers.web.retriever import Web

CARD = Card(
    name="web",
    kind="outside",
    world=True,
    good_for="the world outside the documents: news, prices, weather, people in office, latest releases",
    examples=(
        "What is the latest stable version of PostgreSQL?",
        "Who is the prime minister of Japan now?",
        "What is the weather in Berlin tomorrow?",
        "How much does a ticket for the Louvre cost?",
        "Did the central bank change interest rates this week?",
        "What are the symptoms people report with this year's flu?",
        "Which team won the match last night?",
        "Is there a recall of this car model?",
        "今天北京的天气怎么样？",
        "最新一代手机卖多少钱？",
        "本周有哪些重要新闻？",
        "现在的房贷利率是多少？",
    ),
)


def build(resources: Resources) -> "Web | None":
    """Build the web source from WEB_PROVIDER, WEB_API_KEY, WEB_BASE_URL and WEB_FETCH; None if WEB_PROVIDER is not set.

    Raises:
        BadRequest: the provider is unknown, or a setting that it needs is missing.
    """
    if not (resources.options.get("web_provider") or "").strip():
        return None
    # Imported late: the HTTP client takes 0.1 s to import, and only web searches need it.
    from retrievers.web.factory import open_web

    return open_web(resources.options)
