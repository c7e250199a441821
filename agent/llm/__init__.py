"""Model clients: a call takes messages and a deadline and returns the model's reply with its token usage."""
