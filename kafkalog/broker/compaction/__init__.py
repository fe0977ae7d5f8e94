"""The cleaner's logs, requests and history."""
