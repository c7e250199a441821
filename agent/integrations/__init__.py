"""Adapters that offer the service as a framework's retriever, or to synchronous code (`blocking`).

from agent.integrations.langchain import SignalboxRetriever     # langchain-core
from agent.integrations.llamaindex import SignalboxRetriever    # llama-index-core
from agent.integrations.haystack import SignalboxRetriever      # haystack-ai
from agent.integrations.blocking import open_blocking           # no framework
"""
