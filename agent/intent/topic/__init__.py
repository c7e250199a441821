"""Take a parsed question: return what it is about, its parts and identifiers, and how much the documents know of it."""
