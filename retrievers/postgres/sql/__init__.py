"""Take an aggregate or a judged statement over the view of documents: return its SQL or its rows."""
