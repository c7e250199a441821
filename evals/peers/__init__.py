"""Adapters to other retrieval libraries; each runs in an interpreter of its own, which `evals.peers.host` serves."""
