"""A scripted model server for tests: real HTTP on 127.0.0.1, in the form of OpenAI's API.

    with ScriptedServer(replies=["Paris."], faults=[Fault(status=503)]) as server:
        client = AsyncOpenAI(base_url=server.base_url, api_key="any", max_retries=0)
        ...
        assert server.requests[0].body["messages"][-1]["content"] == "What is the capital of France?"

It answers POST /v1/chat/completions (plain and streamed), POST /v1/embeddings and GET /v1/models.
"""

import base64
import hashlib
import itertools
import json
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

ScriptedReply = str | Mapping[str, Any]
"""The text of an answer, or a whole assistant message, for example with tool calls."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one response; several fields may be combined.

    Attributes:
        status: status instead of 200, with an error in OpenAI's form.
        headers: extra headers, such as {"Retry-After": "1"}.
        delay_s: seconds before the response.
        pause_s: seconds before each event of a stream except the first; with `parts` or `head`, after each chunk.
        body: body to send unchanged instead of the JSON; "" for an empty body.
        parts: chunks of the body to send instead of the JSON; `itertools.repeat(b"x")` never ends.
        head: byte strings to send instead of the whole response, including the status line and headers; may never end.
        truncated: close the connection after half of the body.
        reset: reset the connection instead of responding.
    """

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    pause_s: float = 0.0
    body: bytes | str | None = None
    parts: Iterable[bytes] | None = None
    head: Iterable[bytes] | None = None
    truncated: bool = False
    reset: bool = False


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """One received request.

    Attributes:
        path: path with the query string, such as "/v1/models?limit=5".
        headers: values by name in lower case.
        body: the parsed JSON; None without a body, bytes if it is not JSON.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


def unit_vector(text: str, dimension: int) -> NDArray[np.float32]:
    """Return the vector that the server sends for a text: a unit vector made from the text's hash, always the same."""
    drawn = np.frombuffer(hashlib.shake_256(text.encode()).digest(4 * dimension), dtype="<u4")
    centred = drawn / 2.0**32 - 0.5
    return np.asarray(centred / np.linalg.norm(centred), dtype=np.float32)


class ScriptedServer:
    """An OpenAI-compatible server that gives scripted responses and records the requests.

    Args:
        replies: answers to the chat requests, in order, or a function from the request body to the answer, called in
            the thread of the request. A chat request beyond the last answer, or a function that raises, gets status
            400.
        faults: one per request, in order; None means no fault, and so does the end of the list.
            `itertools.repeat(Fault(status=503))` fails all requests.
        dimension: number of components of the vectors, > 0, unless a request states `dimensions`. May be changed while
            the server runs.
        models: ids returned by GET /v1/models; requests may name any model.
        other: handles any other request, such as one to a web provider; returns the JSON to send, or (status, JSON).
    Attributes:
        requests: all requests so far, including failed ones.
        base_url: URL for the client, ends in "/v1".
        bytes_sent: number of bytes sent so far from `Fault.parts` and `Fault.head`.
        request_arrived: event, set once a request has arrived.
        client_disconnected: event, set once a client has disconnected during a response.
    """

    def __init__(
        self,
        replies: Sequence[ScriptedReply] | Callable[[dict[str, Any]], ScriptedReply] = (),
        *,
        faults: Iterable[Fault | None] = (),
        dimension: int = 16,
        models: Sequence[str] = ("scripted",),
        other: Callable[[ReceivedRequest], Any] | None = None,
    ) -> None:
        self.dimension = dimension
        self.requests: list[ReceivedRequest] = []
        self.bytes_sent = 0
        self.request_arrived = threading.Event()
        self.client_disconnected = threading.Event()
        self._reply = replies if callable(replies) else _in_turn(replies)
        self._faults = iter(faults)
        self._models = tuple(models)
        self._other = other
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._http = _Server(("127.0.0.1", 0), self)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    @property
    def base_url(self) -> str:
        return f"{self.root_url}/v1"

    @property
    def root_url(self) -> str:
        """The URL without a path."""
        return f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _received(self, request: ReceivedRequest) -> Fault:
        """Record the request, wait for `delay_s` of its fault, and return the fault."""
        with self._lock:
            self.requests.append(request)
            fault = next(self._faults, None) or Fault()
        self.request_arrived.set()
        self._closing.wait(fault.delay_s)
        return fault

    def _answer(self, request: ReceivedRequest) -> "_ScriptedAnswer":
        match request.method, request.path.partition("?")[0], request.body:
            case "GET", "/v1/models", _:
                models = [{"id": name, "object": "model", "created": 0, "owned_by": "test"} for name in self._models]
                return _ScriptedAnswer.json({"object": "list", "data": models})
            case "POST", "/v1/embeddings", dict(body):
                return _embeddings(body, self.dimension)
            case "POST", "/v1/chat/completions", dict(body):
                return self._chat(body)
            case "POST", "/v1/embeddings" | "/v1/chat/completions", _:
                return _ScriptedAnswer.error(400, "the body is not a JSON object")
            case _ if self._other is not None:
                answer = self._other(request)
                status, value = answer if isinstance(answer, tuple) else (200, answer)
                return _ScriptedAnswer.json(value, status)
            case method, path, _:
                return _ScriptedAnswer.error(404, f"there is no {method} {path}")

    def _chat(self, body: dict[str, Any]) -> "_ScriptedAnswer":
        try:
            reply = self._reply(body)
        except Exception as error:  # report it: without a response, the client would only see a closed connection
            return _ScriptedAnswer.error(400, f"the script failed: {error!r}")
        message = {"role": "assistant", "content": reply} if isinstance(reply, str) else {"role": "assistant", **reply}
        return _streamed(body, message) if body.get("stream") else _completed(body, message)


@dataclass(frozen=True, slots=True)
class _ScriptedAnswer:
    status: int
    content_type: str
    parts: tuple[bytes, ...]

    @classmethod
    def json(cls, value: object, status: int = 200) -> Self:
        return cls(status, "application/json", (json.dumps(value, ensure_ascii=False).encode(),))

    @classmethod
    def error(cls, status: int, message: str) -> Self:
        return cls.json({"error": {"message": message, "type": "scripted", "param": None, "code": None}}, status)


def _in_turn(replies: Sequence[ScriptedReply]) -> Callable[[dict[str, Any]], ScriptedReply]:
    numbers = itertools.count()

    def reply(body: dict[str, Any]) -> ScriptedReply:
        number = next(numbers)
        if number >= len(replies):
            raise IndexError(f"it has {len(replies)} replies, and this is chat request {number + 1}")
        return replies[number]

    return reply


def _embeddings(body: dict[str, Any], dimension: int) -> _ScriptedAnswer:
    texts = [body["input"]] if isinstance(body.get("input"), str) else body.get("input")
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        return _ScriptedAnswer.error(400, "input must be a text or a list of texts, none of them empty")
    data = []
    for index, text in enumerate(texts):
        vector = unit_vector(text, body.get("dimensions") or dimension)
        as_text = body.get("encoding_format") == "base64"
        embedding = base64.b64encode(vector.astype("<f4").tobytes()).decode() if as_text else vector.tolist()
        data.append({"object": "embedding", "index": index, "embedding": embedding})
    words = sum(len(text.split()) for text in texts)
    usage = {"prompt_tokens": words, "total_tokens": words}
    return _ScriptedAnswer.json({"object": "list", "model": body.get("model"), "data": data, "usage": usage})


def _completed(body: dict[str, Any], message: dict[str, Any]) -> _ScriptedAnswer:
    choice = {"index": 0, "message": message, "finish_reason": _finish_reason(message), "logprobs": None}
    return _ScriptedAnswer.json(
        _envelope(body, "chat.completion") | {"choices": [choice], "usage": _usage(body, message)}
    )


def _streamed(body: dict[str, Any], message: dict[str, Any]) -> _ScriptedAnswer:
    """Return a message as server-sent events: role, text word by word, all tool calls, finish reason, usage."""
    words = (message.get("content") or "").split(" ")
    pieces = [word if place == 0 else f" {word}" for place, word in enumerate(words)]
    calls = [{"index": place, **called} for place, called in enumerate(message.get("tool_calls") or [])]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in pieces if piece]
    deltas += [{"tool_calls": calls}] if calls else []
    envelope = _envelope(body, "chat.completion.chunk")
    chunks = [envelope | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append(envelope | {"choices": [{"index": 0, "delta": {}, "finish_reason": _finish_reason(message)}]})
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append(envelope | {"choices": [], "usage": _usage(body, message)})
    events = [json.dumps(chunk, ensure_ascii=False) for chunk in chunks] + ["[DONE]"]
    return _ScriptedAnswer(200, "text/event-stream", tuple(f"data: {event}\n\n".encode() for event in events))


def _envelope(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-scripted", "object": kind, "created": 0, "model": body.get("model")}


def _finish_reason(message: dict[str, Any]) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def _usage(body: dict[str, Any], message: dict[str, Any]) -> dict[str, int]:
    """Return the `usage` object of a response; each word counts as one token."""
    asked = sum(len(str(item.get("content") or "").split()) for item in body.get("messages") or [])
    answered = len((message.get("content") or "").split())
    return {"prompt_tokens": asked, "completion_tokens": answered, "total_tokens": asked + answered}


class _Server(ThreadingHTTPServer):
    # The default of 5 would refuse connections when many clients connect at once.
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], script: ScriptedServer) -> None:
        self.script = script
        super().__init__(address, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore connections that were cut on purpose or by the client; report anything else."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    headers: Message

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: tests read `requests`."""

    def _handle(self) -> None:
        try:
            self._serve()
        except ConnectionError:
            # The client disconnected during the response.
            self.server.script.client_disconnected.set()
            self.close_connection = True

    def _serve(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            body = json.loads(content) if content else None
        except ValueError:
            body = content
        request = ReceivedRequest(self.command, self.path, headers, body)
        fault = self.server.script._received(request)
        if fault.reset:
            # With a linger time of zero, closing the socket sends a TCP reset.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            socket.close(self.connection.detach())
            return
        if fault.status is not None:
            answer = _ScriptedAnswer.error(fault.status, "a scripted fault")
        else:
            answer = self.server.script._answer(request)
        parts = answer.parts
        if fault.body is not None:
            parts = (fault.body.encode() if isinstance(fault.body, str) else fault.body,)
        if fault.head is not None:
            self.close_connection = True
            self._send_all(fault.head, fault.pause_s)
            return
        if fault.parts is not None:
            self._send_chunks(answer, fault.parts, fault)
            return
        self._send(answer, parts, fault)

    def _send(self, answer: _ScriptedAnswer, parts: Sequence[bytes], fault: Fault) -> None:
        length = sum(map(len, parts))
        self.send_response(answer.status)
        # One request per connection, so that no client reuses a connection left over from an earlier test.
        sent = {"Content-Type": answer.content_type, "Content-Length": str(length), "Connection": "close"}
        for name, value in (sent | dict(fault.headers)).items():
            self.send_header(name, value)
        self.end_headers()
        if fault.truncated:
            parts = (b"".join(parts)[: length // 2],)
        for number, part in enumerate(parts):
            if number:
                self.server.script._closing.wait(fault.pause_s)
            self.wfile.write(part)

    def _send_chunks(self, answer: _ScriptedAnswer, parts: Iterable[bytes], fault: Fault) -> None:
        self.send_response(answer.status)
        sent = {"Content-Type": answer.content_type, "Transfer-Encoding": "chunked", "Connection": "close"}
        for name, value in (sent | dict(fault.headers)).items():
            self.send_header(name, value)
        self.end_headers()
        self._send_all((b"%x\r\n%s\r\n" % (len(part), part) for part in parts), fault.pause_s)
        self.wfile.write(b"0\r\n\r\n")

    def _send_all(self, parts: Iterable[bytes], pause_s: float) -> None:
        for part in parts:
            self.wfile.write(part)
            self.server.script.bytes_sent += len(part)
            if self.server.script._closing.wait(pause_s):
                return
