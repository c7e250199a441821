"""Take requests in OpenAI's form: return chat completions, models, found passages and errors in that form."""
