"""Offline evaluation: quality, latency and throughput over labelled questions (`signalbox eval`)."""
