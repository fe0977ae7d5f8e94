"""Who asks, and what may they: authentication, rules of access, TLS and limits at the edge."""
