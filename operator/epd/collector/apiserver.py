"""Reads objects from the API server with the standard library: complete, uncached lists, or an error. Never writes.

Not with the Kubernetes client: importing it costs more memory than the whole collector may use. A list that is not
certainly complete is no list, because what it lacks would be deleted.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from epd.collector.endpoint import ApiError, Endpoint

T = TypeVar("T")
JSONObject = dict[str, Any]

PAGE_SIZE: Final = 50
"""Objects in one answer: a ReplicaSet has some 10 to 30 KB, parsed five times as much, and one page is in memory."""
METADATA_PAGES: Final = 10
"""So many times more objects where only metadata is asked for: it has a tenth of the size."""
MOST_BYTES: Final = 16 << 20
"""Of one answer: parsed, it takes some 4 times as much, which still fits the container's memory."""
REQUEST_SECONDS: Final = 30.0
"""For one answer, from connecting to its last byte: a loaded API server takes seconds for a page."""
LIST_SECONDS: Final = 60.0
"""For all pages of one list with restarts: four of them stay within the 5 min that an answer may be old."""
PAGED_ATTEMPTS: Final = 2
"""A continue token lives as long as etcd's compaction interval (5 min), so a second expiry means a very slow server."""

_METADATA_LIST: Final = "PartialObjectMetadataList"
_METADATA_ONLY: Final = f"application/json;as={_METADATA_LIST};g=meta.k8s.io;v=v1"
_CHUNK_BYTES: Final = 1 << 16


class _ExpiredError(Exception):
    """The pages of a list are no longer of one moment."""


class ApiServer:
    """GET of one object and complete lists. Holds no connection between calls; safe for use by several threads."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        page_size: int = PAGE_SIZE,
        request_seconds: float = REQUEST_SECONDS,
        list_seconds: float = LIST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = endpoint
        self._page_size = page_size
        self._request_seconds = request_seconds
        self._list_seconds = list_seconds
        self._clock = clock

    def get(self, path: str) -> JSONObject:
        """Return one object. Raises ApiError; its status is 404 where the object is not there."""
        connection = self._endpoint.connect()
        try:
            return self._request(connection, path, deadline=self._clock() + self._request_seconds)
        finally:
            connection.close()

    def list_all(self, path: str, keep: Callable[[JSONObject], T], *, metadata_only: bool = False) -> list[T]:
        """Return what `keep` makes of each object at `path`: all objects of one moment, read from etcd's quorum.

        No `resourceVersion` is sent, so no cache that lies behind may answer. Pages whose token expired are thrown
        away and the list begins anew; the last attempt asks for one page with everything, as client-go's pager does.

        Args:
            path: Of the collection, without a query.
            keep: Called once per object and attempt; what it drops is not held in memory.
            metadata_only: Ask for PartialObjectMetadata: enough for labels and uids, a tenth of the size.

        Raises:
            ApiError: any page failed, was cut off, or was no list, or `keep` could not read an object.
        """
        deadline = self._clock() + self._list_seconds
        connection = self._endpoint.connect()
        try:
            for attempt in range(PAGED_ATTEMPTS + 1):
                size = self._page_size * (METADATA_PAGES if metadata_only else 1)
                limit = size if attempt < PAGED_ATTEMPTS else 0
                try:
                    return self._pages(connection, path, keep, limit, metadata_only, deadline)
                except _ExpiredError:
                    continue
        finally:
            connection.close()
        raise ApiError(f"list of {path}: the list changed under every attempt")

    def _pages(
        self,
        connection: http.client.HTTPConnection,
        path: str,
        keep: Callable[[JSONObject], T],
        limit: int,
        metadata_only: bool,
        deadline: float,
    ) -> list[T]:
        kept: list[T] = []
        token, moment = "", ""
        while True:
            query = {"limit": str(limit)} if limit else {}
            if token:
                query["continue"] = token
            address = f"{path}?{urlencode(query)}" if query else path
            accept = _METADATA_ONLY if metadata_only else "application/json"
            within = min(deadline, self._clock() + self._request_seconds)
            page = self._request(connection, address, deadline=within, accept=accept, paged=bool(token))
            items, token, version = _read_page(page, path)
            if moment and version != moment:
                raise _ExpiredError
            moment = version
            try:
                kept += [keep(item) for item in items]
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise ApiError(f"GET {path}: an object can't be read: {_words(error)}") from error
            if not token:
                return kept

    def _request(
        self,
        connection: http.client.HTTPConnection,
        address: str,
        *,
        deadline: float,
        accept: str = "application/json",
        paged: bool = False,
    ) -> JSONObject:
        headers = {"Accept": accept} | self._endpoint.authorization()
        asked = f"GET {address.partition('?')[0]}"  # continue tokens change, and words should not
        try:
            if connection.sock is None:
                connection.timeout = self._left(deadline)
                connection.connect()
            sock = connection.sock
            sock.settimeout(self._left(deadline))
            connection.request("GET", address, headers=headers)
            with connection.getresponse() as response:
                body = self._body(response, sock, deadline)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ApiError(f"{asked}: {_words(error)}") from error
        if response.status == http.HTTPStatus.GONE and paged:
            raise _ExpiredError
        if response.status != http.HTTPStatus.OK:
            raise ApiError(f"{asked}: {_refusal(response.status, body)}", status=response.status)
        try:
            parsed = json.loads(body)
        except ValueError as error:
            raise ApiError(f"{asked}: the answer is no JSON, perhaps cut off ({error})") from error
        if not isinstance(parsed, dict):
            raise ApiError(f"{asked}: the answer is no object")
        return parsed

    def _body(self, response: http.client.HTTPResponse, sock: socket.socket, deadline: float) -> bytes:
        """Read to the end; a body shorter than announced raises IncompleteRead."""
        chunks, size = [], 0
        while True:
            sock.settimeout(self._left(deadline))
            # at most one recv each, so that a trickle cannot outlast the deadline
            chunk = response.read1(_CHUNK_BYTES)
            if not chunk:
                break
            chunks.append(chunk)
            size += len(chunk)
            if size > MOST_BYTES:
                raise http.client.HTTPException(f"the answer is larger than {MOST_BYTES >> 20} MiB")
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        return b"".join(chunks)

    def _left(self, deadline: float) -> float:
        left = deadline - self._clock()
        if left <= 0:
            raise TimeoutError("no whole answer in time")
        return left


def _read_page(page: JSONObject, path: str) -> tuple[list[JSONObject], str, str]:
    """Return items, continue token and resourceVersion of a list. Raises ApiError: it is none."""
    items, metadata = page.get("items"), page.get("metadata")
    if page.get("kind") == _METADATA_LIST and "items" in page and items is None:
        items = []  # so an API server writes an empty list of metadata, and none of any other kind
    if not str(page.get("kind", "")).endswith("List") or not isinstance(items, list) or not isinstance(metadata, dict):
        raise ApiError(f"GET {path}: the answer is no list but {page.get('kind', 'an object without kind')}")
    if not all(isinstance(item, dict) for item in items):
        raise ApiError(f"GET {path}: an item is no object")
    return items, str(metadata.get("continue") or ""), str(metadata.get("resourceVersion") or "")


def _refusal(status: int, body: bytes) -> str:
    """The API server's own words, which name the missing right."""
    try:
        return f"HTTP {status}: {json.loads(body)['message']}"
    except (ValueError, KeyError, TypeError):
        return f"HTTP {status}: {body[:200].decode(errors='replace')}"


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
