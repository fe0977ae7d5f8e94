"""The HTTP edge: routes, schemas, error map. Everything asynchronous lives here."""
