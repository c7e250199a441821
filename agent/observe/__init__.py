"""Metrics, health, spans and log lines, made from traces and the state of the service."""
