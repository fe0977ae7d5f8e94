"""Write every generated file: ``python -m tools.pages``, which is ``make docs``.

configuration.md, metrics.md, cli.md and errors.md of docs/reference, and the dashboards of
deploy/grafana. Each is generated from the tables that the program itself uses; tests keep them
current. The second half of http-proxies.md is generated from the cases of tests/proxies, and what
http-routes.md says of each route from its endpoint.
"""

from __future__ import annotations

from pathlib import Path

from kafkalog.__main__ import root_command
from tools.commands_page import commands_page
from tools.dashboards import FILES, text_of
from tools.errors_page import errors_page
from tools.metrics_page import metrics_page
from tools.proxies_page import proxies_page
from tools.routes_page import routes_page
from tools.settings_page import configuration_page

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Overwrite all of them."""
    pages = {
        "docs/reference/configuration.md": configuration_page(),
        "docs/reference/metrics.md": metrics_page(),
        "docs/reference/cli.md": commands_page(root_command()),
        "docs/reference/errors.md": errors_page(),
        "docs/reference/http-proxies.md": proxies_page(
            (ROOT / "docs/reference/http-proxies.md").read_text("utf-8")
        ),
    }
    path = "docs/reference/http-routes.md"
    pages[path] = routes_page((ROOT / path).read_text("utf-8"))
    pages |= {f"deploy/grafana/{name}": text_of(each) for name, each in FILES.items()}
    for path, text in pages.items():
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
