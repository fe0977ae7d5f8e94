"""What all pages of the web console share: rendering, headers, forms, and errors as pages.

A page is a view (``kafkalog.console``), made on a thread of the console from the operations of the
caller's principal. Its address answers HTML, or JSON where Accept asks for it; with ``.json``
appended, JSON only. A form has each field once and no others.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from aiohttp import hdrs, web

from kafkalog.console.rendering import (
    Frame,
    is_prepared,
    prepare,
    render_error,
    render_html,
    render_json,
)
from kafkalog.errors import KafkalogError
from kafkalog.server.api import api_of
from kafkalog.server.console.notices import notice_cookie, notice_of
from kafkalog.server.protocol.bodies import Body
from kafkalog.server.protocol.endpoint import CONSOLE_PREFIX, Answer, annotated
from kafkalog.server.protocol.errors import ApiError, entry_of, error_of
from kafkalog.server.protocol.media_types import (
    FORM,
    HTML,
    JSON,
    bare_type,
    negotiate,
    parse_accept,
)
from kafkalog.server.protocol.origin import is_of_other_page
from kafkalog.server.protocol.parameters import FlagParameter, partition_of, topic_of
from kafkalog.server.protocol.replies import bytes_reply

if TYPE_CHECKING:
    from kafkalog.broker.operations import Operations
    from kafkalog.console.view import View
    from kafkalog.server.api import Api
    from kafkalog.server.protocol.endpoint import Access, Routes
    from kafkalog.server.protocol.parameters import Parameter

    _Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


M = TypeVar("M", bound="Callable[..., View]")

_HTML_UTF8 = f"{HTML}; charset=utf-8"
_JSON_SUFFIX = ".json"
# places of pages beside the log directories
_MANY_LOGS, _NO_LOG, _LONG = "many logs", "no log", "long"
FORMS = "forms"
"""Place of what a large form takes time for, without a disk."""
_TEXT = {"type": "string"}
REFRESH = FlagParameter("refresh", "The page asks for itself again every ten seconds.")
INTERNAL = FlagParameter("internal", "Kafka's own topics too.")
"""The same on every page of topics."""
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
PAGE_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    hdrs.CACHE_CONTROL: "no-store",
    hdrs.VARY: "Accept",
}
"""Headers of every page: it runs and loads only what has this origin."""


def redirect(address: str, status: int = 303) -> web.Response:
    """To a relative address: a prefix that a proxy takes away in front stays."""
    return web.Response(status=status, headers={hdrs.LOCATION: address, **PAGE_HEADERS})


class _Reader:
    """Of a page that is being made; its thread reads what the event loop writes."""

    has_left = False


_READER: web.RequestKey[_Reader] = web.RequestKey("console_reader", _Reader)


def has_left(request: web.Request) -> bool:
    """Whether nobody waits for the page any more. Any thread."""
    return request[_READER].has_left


def page(  # noqa: PLR0913 - the parts of a page, by name
    routes: Routes,
    path: str,
    operation_id: str,
    access: Access,
    *,
    parameters: tuple[Parameter, ...] = (),
    errors: tuple[int, ...] = (),
    asks_logs: bool = False,
    can_refresh: bool = True,
    is_live: bool = False,
    is_long: bool = False,
    gather: Callable[[web.Request], object] | None = None,
    again: Callable[..., View] | None = None,
) -> Callable[[M], M]:
    """Register a view as a page and as its JSON view; the docstring describes both.

    The model of both is the class that the function's annotation says it returns.

    It runs on a thread. What it raises is answered as everywhere, to people as a page.
    ``asks_logs``: it may read of many logs, though no topic is in its address; ``is_long``: for
    seconds, so that it gets threads apart from other pages.
    A page that the reader confirms must not change while it is read: ``can_refresh`` False. One
    that ``is_live`` renews itself when the daemon has news (``events.py``).
    ``gather`` is called before, on the event loop, for what only that may read; the function gets
    its result as third argument.
    ``again`` makes the page of a question that is answered with a 400, for people: it gets the same
    arguments and why, for the page to say beside what was typed.
    """

    def register(make: M) -> M:
        model = annotated(make, "return")
        assert model is not None, "a page has a view"
        place = _LONG if is_long else _MANY_LOGS if asks_logs else ""
        json_view, page_view = _handlers(
            make, again, gather, place, can_refresh=can_refresh, is_live=is_live
        )
        # The JSON view first: of two patterns aiohttp takes the one that was added first.
        routes.endpoint(
            f"GET {path}{_JSON_SUFFIX}",
            f"{operation_id}Json",
            access,
            Answer("The page's facts.", model),
            parameters=parameters,
            errors=errors,
        )(json_view)
        routes.endpoint(
            f"GET {path}",
            operation_id,
            access,
            Answer("The page.", {HTML: _TEXT, JSON: model}),
            parameters=(*parameters, REFRESH) if can_refresh else parameters,
            errors=(*errors, 406),
        )(page_view)
        return make

    return register


def _handlers(
    make: Callable[..., View],
    again: Callable[..., View] | None,
    gather: Callable[[web.Request], object] | None,
    place: str,
    *,
    can_refresh: bool,
    is_live: bool,
) -> tuple[_Handler, _Handler]:
    """The handlers of the JSON view and of the page."""

    async def rendered(
        request: web.Request,
        view_of: Callable[..., View],
        render: Callable[[View], bytes],
        content_type: str,
        *more: str,
    ) -> web.Response:
        api = api_of(request)
        facts = (*(() if gather is None else (gather(request),)), *more)
        reader = request[_READER] = _Reader()
        try:
            body = await api.pools.console.run(
                place or _place_of(request, api),
                lambda: render(view_of(request, api.operations, *facts)),
            )
        except asyncio.CancelledError:
            reader.has_left = True
            raise
        return bytes_reply(body, content_type=content_type, headers=PAGE_HEADERS)

    async def json_view(request: web.Request) -> web.Response:
        return await rendered(request, make, render_json, JSON)

    async def page_view(request: web.Request) -> web.Response:
        frame = _frame_of(request, can_refresh=can_refresh, is_live=is_live)
        if negotiate(request.headers.get(hdrs.ACCEPT, ""), (HTML, JSON)) == JSON:
            return await json_view(request)
        as_html = functools.partial(render_html, frame=frame)
        try:
            answer = await rendered(request, make, as_html, _HTML_UTF8)
        except (ApiError, KafkalogError) as fault:
            if again is None or entry_of(fault).status != 400 or not wants_page(request):
                raise
            why = error_of(fault).message
            answer = await rendered(request, again, as_html, _HTML_UTF8, why)
            answer.set_status(400)
        if frame.notice:
            answer.headers[hdrs.SET_COOKIE] = notice_cookie(frame.path, "")
        return answer

    json_view.__doc__ = page_view.__doc__ = make.__doc__
    return json_view, page_view


def _frame_of(request: web.Request, *, can_refresh: bool, is_live: bool = False) -> Frame:
    api, url = api_of(request), request.rel_url
    return Frame(
        url.raw_path,
        url.raw_query_string,
        is_refreshing=can_refresh and REFRESH.read(request),
        can_refresh=can_refresh,
        # Otherwise the form's actions are on another port than the pages.
        is_administered=api.config.admin_port is None,
        has_records=api.config.console_records,
        is_live=is_live,
        notice=notice_of(request),
    )


def _place_of(request: web.Request, api: Api) -> str:
    """Whose disk a page waits for: the log directory of its partition, else those of many, none."""
    if "partition" in request.match_info:
        topic, partition = topic_of(request), partition_of(request)
        # What is wrong with the partition, or who asks, the page says itself.
        with contextlib.suppress(KafkalogError):
            return api.operations.partition_log(topic, partition).parent_dir
    return _MANY_LOGS if "topic" in request.match_info else _NO_LOG


_MOST_BYTES = 16 << 10
_MORE_FIELDS = 8  # so many too many are told by name
_DONE = {
    303: Answer("Done; see the page.", headers=(hdrs.LOCATION,)),
    204: Answer("Done, at an admin.port; the page is at the other one.", headers=(hdrs.LOCATION,)),
}


class Done(NamedTuple):
    """What a form did: the address of the page that shows it, and what that page says, if anything.

    The page says it once, and only as an answer to the form.
    """

    address: str
    notice: str = ""


_Action = Callable[[web.Request, dict[str, str]], Awaitable[Done]]
_Again = Callable[["web.Request", "Operations", dict[str, str], str], "View"]


def form(
    routes: Routes,
    path: str,
    operation_id: str,
    access: Access,
    fields: tuple[str, ...],
    *,
    errors: tuple[int, ...] = (),
    most_bytes: int = _MOST_BYTES,
    again: _Again | None = None,
) -> Callable[[_Action], _Action]:
    """Register the action of a form; the docstring describes it.

    It gets the fields as sent, each of them once. The answer is a redirect to the address that it
    returns, where there are pages. ApiError 40301 for another page, whatever
    ``access.control.allow.origin`` names.
    ``again`` makes the page of the form with what was typed and why it was refused, for people.
    """

    def register(act: _Action) -> _Action:
        async def handler(request: web.Request) -> web.Response:
            if is_of_other_page(request):
                raise ApiError(40301, "A page of another origin may not do this.")
            api = api_of(request)
            typed = await _form_fields(request, api, fields, most_bytes)
            try:
                done = await act(request, typed)
            except (ApiError, KafkalogError) as fault:
                if again is None or not wants_page(request):
                    raise
                return await _form_again(request, again, typed, fault)
            status = 303 if api.config.admin_port is None else 204
            headers = {hdrs.LOCATION: done.address, **PAGE_HEADERS}
            if done.notice and status == 303:
                headers[hdrs.SET_COOKIE] = notice_cookie(done.address, done.notice)
            return web.Response(status=status, headers=headers)

        handler.__doc__ = act.__doc__
        schema = {
            "type": "object",
            "properties": {name: {"type": "string"} for name in fields},
            "required": list(fields),
            "additionalProperties": False,
        }
        routes.endpoint(
            f"POST {path}", operation_id, access, _DONE, body={FORM: schema}, errors=errors
        )(handler)
        return act

    return register


async def _form_again(
    request: web.Request, again: _Again, typed: dict[str, str], fault: ApiError | KafkalogError
) -> web.Response:
    """The page of a form that was refused, with the status of its error."""
    api, frame = api_of(request), _frame_of(request, can_refresh=False)
    message = error_of(fault).message
    body = await api.pools.console.run(
        _NO_LOG, lambda: render_html(again(request, api.operations, typed, message), frame)
    )
    return bytes_reply(
        body, content_type=_HTML_UTF8, status=entry_of(fault).status, headers=PAGE_HEADERS
    )


def wants_page(request: web.Request) -> bool:
    """Whether an error is shown as a page: Accept names HTML."""
    path = request.path
    if not path.startswith(CONSOLE_PREFIX) or path.endswith(_JSON_SUFFIX):
        return False
    return HTML in parse_accept(request.headers.get(hdrs.ACCEPT, ""))


async def prepared(api: Api) -> None:
    """Errors and static files can be made on the event loop from here on.

    Loaded where no log directory that hangs holds it up, and later made without any thread: a
    refusal may not wait for what it protects.
    """
    if not is_prepared():
        await api.run_on_debug_pool(prepare)


async def error_page(
    api: Api,
    error: KafkalogError | ApiError,
    plain: web.Response,
    request_id: str,
    *,
    is_form: bool,
) -> web.Response:
    """The answer ``plain`` for people: its status and headers, its facts as a page.

    ``is_form``: something was to be done, not shown.
    """
    entry, message = entry_of(error), error_of(error).message
    await prepared(api)
    body = render_error(entry.status, entry.error_code, message, request_id, is_form=is_form)
    kept = {
        name: value
        for name, value in plain.headers.items()
        if name not in (hdrs.CONTENT_TYPE, hdrs.CONTENT_LENGTH)
    }
    return bytes_reply(
        body, content_type=_HTML_UTF8, status=entry.status, headers=kept | PAGE_HEADERS
    )


async def _form_fields(
    request: web.Request, api: Api, names: tuple[str, ...], most_bytes: int
) -> dict[str, str]:
    """The fields as sent, decoded; ApiError 415, 41302, and 40002 for anything but these fields."""
    if bare_type(request.headers.get("Content-Type", "")) != FORM:
        raise ApiError(415, f"Send {FORM}, as a form does.")
    async with Body(request, api, most_bytes=most_bytes) as data:
        if len(data) <= _MOST_BYTES:
            return decoded_form(data, names)
        return await api.pools.console.run(FORMS, lambda: decoded_form(data, names))


def decoded_form(data: bytes, names: tuple[str, ...]) -> dict[str, str]:
    """The fields of a body; ApiError 40002. Takes a second for each MiB of escapes."""
    try:
        text = data.decode()  # what is not escaped is UTF-8 too
        pairs = parse_qsl(
            text,
            keep_blank_values=True,
            strict_parsing=bool(text),
            errors="strict",
            max_num_fields=len(names) + _MORE_FIELDS,
        )
    except ValueError as error:
        raise ApiError(40002, "The body is no form.") from error
    fields = dict(pairs)
    if len(fields) < len(pairs) or fields.keys() != set(names):
        raise ApiError(40002, f"The form has the fields {', '.join(names)}, each of them once.")
    return fields
