"""Adapters for frameworks, one module each, imported by those who use them; `blocking` is for synchronous code.

from agent.integrations.langchain import SignalboxRetriever     # langchain-core
from agent.integrations.llamaindex import SignalboxRetriever    # llama-index-core
from agent.integrations.haystack import SignalboxRetriever      # haystack-ai
from agent.integrations.blocking import open_blocking           # no framework
"""
