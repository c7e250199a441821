"""What the service does, seen from outside: metrics, health, spans and logs."""
