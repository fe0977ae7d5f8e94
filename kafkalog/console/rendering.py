"""Two renderers of one view: HTML by its template, JSON as it is.

Everything that a template prints is escaped. Templates contain no scripts and no styles, because
the content security policy of the pages (``server/console/pages.py``) forbids them. Jinja2 is
loaded at the first page, or by ``prepare``.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from kafkalog import __version__
from kafkalog.console import formatting
from kafkalog.console.assets import all_assets, asset_address
from kafkalog.console.charts import LEAST_SAMPLES
from kafkalog.console.json_tree import json_tree

if TYPE_CHECKING:
    from jinja2 import Environment

    from kafkalog.console.view import View

REFRESH_SECONDS = 10
_ERROR = "error.html"
_SYNTAX = re.compile(r"[\\^$.*+?()\[\]{}|/]")  # of a browser's regular expressions
_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} UTC")


class Frame(NamedTuple):
    """What surrounds a page: its path, and its query as it was sent.

    is_refreshing   the page reloads itself every REFRESH_SECONDS
    can_refresh     the page has the control for that
    is_administered forms that change something are shown
    has_records     links to pages of records are shown
    is_live         the page renews itself when the daemon says that it has news
    notice          what the form did that led here
    """

    path: str
    query: str
    is_refreshing: bool
    can_refresh: bool = True
    is_administered: bool = True
    has_records: bool = True
    is_live: bool = False
    notice: str = ""

    @property
    def json_view(self) -> str:
        """The address of the same view as JSON."""
        return self._with(f"{self.path}.json", self._own_query())

    @property
    def still(self) -> str:
        """The same page without refreshing."""
        return self._with(self.path, self._own_query())

    @property
    def refreshing(self) -> str:
        """The same page that refreshes itself."""
        return self._with(self.path, "&".join(filter(None, (self._own_query(), "refresh=true"))))

    def _own_query(self) -> str:
        """The query without the parameter ``refresh``."""
        parts = self.query.split("&") if self.query else []
        return "&".join(each for each in parts if not each.startswith("refresh="))

    @staticmethod
    def _with(path: str, query: str) -> str:
        return f"{path}?{query}" if query else path


def render_json(view: View) -> bytes:
    """The view as JSON."""
    return view.model_dump_json().encode()


def render_html(view: View, frame: Frame) -> bytes:
    """The view as a page."""
    template = _environment().get_template(view.template)
    return template.render(view=view, frame=frame).encode()


def render_error(
    status: int, error_code: int, message: str, request_id: str, *, is_form: bool = False
) -> bytes:
    """An error as a page of its own; ``is_form``: something was to be done, not shown."""
    template = _environment().get_template(_ERROR)
    return template.render(
        status=status,
        error_code=error_code,
        message=formatting.visible(message),  # it may repeat what was sent
        request_id=request_id,
        is_form=is_form,
    ).encode()


@functools.cache
def prepare() -> None:
    """Load the error template and the static files; the first call reads files for about 0.1 s."""
    _environment().get_template(_ERROR)
    all_assets()


def is_prepared() -> bool:
    """Whether ``prepare`` was called, so that ``render_error`` and ``all_assets`` do not block."""
    return prepare.cache_info().currsize > 0


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape

    environment = Environment(
        loader=PackageLoader("kafkalog.console", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        number=formatting.number,
        size=formatting.size,
        span=formatting.span,
        timestamp=formatting.timestamp,
        iso=formatting.iso,
        field=formatting.field,
        relative=formatting.relative,
        percent=formatting.percent,
        quantity=formatting.quantity,
        duration=formatting.duration,
        visible=formatting.visible,
        hexdump=formatting.hexdump,
        # Browsers break lines at the hyphens of a date.
        dates=lambda text: Markup(_TIMESTAMP.sub(r"<span>\g<0></span>", escape(text))),
        pattern=lambda text: _SYNTAX.sub(r"\\\g<0>", text),
        segment=lambda text: quote(text, safe=""),
    )
    environment.globals.update(
        asset=asset_address,
        plural=formatting.plural,
        offset_range=formatting.offset_range,
        json_tree=json_tree,
        excerpt=formatting.excerpt,
        version=__version__,
        refresh_seconds=REFRESH_SECONDS,
        least_samples=LEAST_SAMPLES,
    )
    return environment
