"""Take a viewer: return the collections it sees, with their descriptions, fields, values, and values that co-occur."""
