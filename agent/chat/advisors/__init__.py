"""An advisor takes a request before it is answered, and its end after, and returns it unchanged or changed."""
