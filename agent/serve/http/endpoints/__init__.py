"""Take requests for the service's own routes: return JSON, a stream of events, metrics or a page of the console."""
