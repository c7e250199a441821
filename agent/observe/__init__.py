"""Observe takes traces and the state of the service and returns metrics, health, spans and log lines."""
