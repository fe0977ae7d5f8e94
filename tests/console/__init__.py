"""The web console in a real browser: make console-test."""
