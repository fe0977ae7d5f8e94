"""What clients of the other REST proxies ask for, and what they get: a table of cases.

Each file has the cases of a part of the API. ``tests/integration/test_http_pairs.py`` asks a daemon
for all of them; ``tools/proxies_page.py`` writes those whose answer differs into
docs/reference/http-proxies.md.
"""
