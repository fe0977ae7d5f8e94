"""The second half of docs/reference/http-proxies.md, from the table of cases in tests/proxies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.proxies.case import PROXIES, SOURCES
from tests.proxies.table import CASES

if TYPE_CHECKING:
    from tests.proxies.case import Case

MARK = "\n## Case by case\n"
_SHOWN = 3


def proxies_page(page: str) -> str:
    """The whole page as Markdown: what a person wrote before the mark stays."""
    told: dict[tuple[str, str, str, str], list[str]] = {}
    for case in CASES:
        if case.there:
            key = (case.differs, PROXIES[case.dialect], case.there, case.answer)
            told.setdefault(key, []).append(_asked(case))
    count = sum(map(len, told.values()))
    lines = [
        "",
        f"`tests/proxies` has {len(CASES)} requests as clients of the proxies send them. How the",
        "proxies answer is taken from:",
        "",
        *(f"- {place}" for place in SOURCES.values()),
        "",
        f"{len(CASES) - count} are answered as there. These are not; the first column is the row",
        "above that says why. `{c}` is the path of the cluster, `{i}` that of an instance; `t`,",
        "`w`, `json` and `small` are topics. With `http.v2.dialect=auto`, as here, the dialect of",
        "a request is known by its media type or by the creation of its instance.",
        "",
        "| row | proxy | requests | there | kafkalog |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row} | {proxy} | {_some(names)} | {there} | {here} |"
        for (row, proxy, there, here), names in sorted(told.items(), key=_by_row)
    ]
    return page.partition(MARK)[0] + MARK + "\n".join(lines) + "\n"


def _asked(case: Case) -> str:
    """In words, and the request unless they have it."""
    path = case.path.removeprefix("{c}/")
    return case.name if path in case.name else f"{case.name} (`{case.request}`)"


def _some(names: list[str]) -> str:
    """The first ones, and how many more."""
    more = [f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return "; ".join(names[:_SHOWN] + more)


def _by_row(item: tuple[tuple[str, str, str, str], list[str]]) -> str:
    return item[0][0].lower().lstrip("`")
