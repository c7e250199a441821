"""Rerankers: one file each, with `rerank(question, language, hits)`; `none` keeps the fused order."""
