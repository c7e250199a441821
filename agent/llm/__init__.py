"""The model room takes messages and a deadline and returns a reply with its usage."""
