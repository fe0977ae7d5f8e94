"""HTTP itself: connections, bodies, parameters, errors, OpenAPI."""
