"""The model client takes messages and a deadline and returns a model's reply with its token usage."""
