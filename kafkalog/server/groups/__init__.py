"""Consumer groups over HTTP: instances, polls, commits, groups; and the sinks."""
