"""A knowledge base at a cloud provider, searched through its API: CLOUD=PROVIDER:NAME.

bailian:pipeline/NAME            DashScope's retrieval pipeline; CLOUD_API_KEY is the DashScope key
bailian:WORKSPACE/INDEX_ID       Bailian's Retrieve API; CLOUD_API_KEY is ACCESS_KEY_ID:ACCESS_KEY_SECRET
bedrock:REGION/KB_ID             Amazon Bedrock; CLOUD_API_KEY likewise, or AWS's own places for credentials
azure:KB_NAME                    Azure AI Search at CLOUD_BASE_URL, or azure:https://HOST/KB_NAME; filters need
azure:KB_NAME/SOURCE_NAME        the name of the knowledge source of kind searchIndex
vertex:PROJECT/LOCATION/STORE    Vertex AI Search; CLOUD_API_KEY is a bearer token, or Google's own places
dify:KNOWLEDGE_ID                Dify's external knowledge API at CLOUD_BASE_URL
openai:VECTOR_STORE_ID           OpenAI, or a server that speaks its API at CLOUD_BASE_URL, which ends in /v1
"""

from typing import TYPE_CHECKING

from retrievers.core.types import Card
from retrievers.registry import Resources

if TYPE_CHECKING:
    from retrievers.cloud.retriever import Cloud

CARD = Card(
    name="cloud",
    good_for="documents of a knowledge base kept elsewhere, which the collections here do not hold",
    kind="outside",
    # No example has a subject: otherwise the router would send questions about that subject to the cloud.
    examples=("Search the cloud knowledge base.", "What does the cloud knowledge base say?", "在云端知识库里查一下"),
)


def build(resources: Resources) -> "Cloud | None":
    """Build the knowledge base from CLOUD, CLOUD_API_KEY and CLOUD_BASE_URL; None if CLOUD is not set.

    Raises:
        BadRequest: CLOUD has no known form, or its key or address is missing.
    """
    if not (resources.options.get("cloud") or "").strip():
        return None
    # Imported late: the HTTP client takes 0.1 s to import, and only a knowledge base needs it.
    from retrievers.cloud.retriever import open_cloud

    return open_cloud(resources.options)
