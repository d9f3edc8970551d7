"""Random JSON texts of chat requests, as clients may write them: odd numbers, escapes, spaces, keys twice, media."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import strategies as st

Node = tuple[str, Any]
"""`("raw", text)`, `("str", text)`, `("arr", nodes)` or `("obj", pairs)`, where a key may stand twice."""

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

NUMBERS = [
    "0", "-0", "-0.0", "1", "1E5", "1.0e+2", "0.1", "1e-400", "9223372036854775807", "-9223372036854775809",
    "18446744073709551616", "123456789012345678901234567890", "0.12345678901234567890123", "5e-324", "1e22", "1e308",
]  # fmt: skip
NO_NUMBERS = ["1e999", "-1e400", "NaN", "Infinity", "01", "1.", "+1", ".5", "nul", "9" * 5000]


def base64_text(seed: int, length: int) -> str:
    return "".join(random.Random(seed).choices(ALPHABET, k=length))


payloads = st.builds(base64_text, st.integers(0, 3), st.sampled_from([1, 60, 700, 1500, 3000]))
"""Few seeds, so that equal payloads are common."""

spoilers = st.sampled_from(["", "", "", "\n", "\\", '"', " ", "ü", "\ud800", "\x7f", "\0", "/", "="])


@st.composite
def long_texts(draw: st.DrawFn) -> str:
    """A payload, with something in it or before it that may keep it from being lifted."""
    data = draw(payloads)
    place = draw(st.integers(0, len(data)))
    head = draw(
        st.sampled_from(["", "data:image/png;base64,", "DATA:image/png;base64,", "see ;base64,", "data:,", "a,"])
    )
    return head + data[:place] + draw(spoilers) + data[place:]


strings = st.one_of(st.text(max_size=8), st.sampled_from([";base64,", '"', "\\", "\0", "data:"]), long_texts())
keys = st.one_of(st.sampled_from(["a", "b", "uuid", "seed", "model", "vllm_xargs", "priority"]), strings)

scalars = st.one_of(
    st.sampled_from([("raw", text) for text in (*NUMBERS, "true", "false", "null")]),
    strings.map(lambda text: ("str", text)),
)


def _containers(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.one_of(
        st.lists(children, max_size=3).map(lambda nodes: ("arr", nodes)),
        st.lists(st.tuples(keys, children), max_size=3).map(lambda pairs: ("obj", pairs)),
    )


values = st.recursive(scalars, _containers, max_leaves=6)


def obj(**pairs: Node) -> Node:
    return ("obj", list(pairs.items()))


def text(value: str) -> Node:
    return ("str", value)


def _part(kind: str, **fields: Node) -> Node:
    return obj(type=text(kind), **{kind: obj(**fields)})


@st.composite
def parts(draw: st.DrawFn) -> Node:
    """One part of a message: mostly one that is accepted."""
    data = draw(payloads)
    url = draw(st.sampled_from([f"data:image/png;base64,{data}", f"Data:image/PNG; Base64 ,{data}"]))
    choices = [
        obj(type=text("text"), text=text(draw(strings))),
        obj(type=text("text"), text=text(draw(strings)), uuid=text("u"), more=draw(values)),
        text(draw(strings)),
        _part("image_url", url=text(url)),
        _part("image_url", url=text(url), detail=text(draw(strings))),
        _part("video_url", url=text(f"data:video/jpeg;base64,{data},{data}")),
        _part("input_audio", data=text(data), format=text("wav")),
        _part("input_audio", data=text(draw(long_texts())), format=text(draw(st.sampled_from(["wav", data])))),
        _part("image_url", url=text("https://a.example/" + draw(st.sampled_from(["x.png", data])))),
        _part("image_url", url=text(draw(long_texts()))),
        _part("image_url", url=draw(values)),
        obj(type=text("image_url"), image_url=draw(values), uuid=draw(values)),
        draw(values),
    ]
    return draw(st.sampled_from(choices[:7] * 8 + choices))


@st.composite
def requests(draw: st.DrawFn) -> Node:
    """The body of a chat request."""
    listed = st.lists(parts(), min_size=1, max_size=4).map(lambda nodes: ("arr", nodes))
    content = st.one_of(listed, listed, listed, listed, strings.map(text), values if draw(st.booleans()) else listed)
    messages = draw(st.lists(content.map(lambda node: obj(role=text("user"), content=node)), min_size=1, max_size=3))
    pairs = [("messages", ("arr", messages)), *draw(st.lists(st.tuples(keys, values), max_size=4))]
    if draw(st.integers(0, 19)) == 7:
        pairs.append(("bad", ("raw", draw(st.sampled_from(NO_NUMBERS)))))
    return ("obj", draw(st.permutations(pairs)))


def _quote(value: str, style: random.Random) -> str:
    if style.random() < 0.7 or (not value.isprintable() and style.random() < 0.9):
        return json.dumps(value, ensure_ascii=not value.isascii() or style.random() < 0.5)
    return '"' + "".join(_escape(character, style) for character in value) + '"'


def _escape(character: str, style: random.Random) -> str:
    if character == "/" and style.random() < 0.5:
        return "\\/"
    if character in '"\\' or ord(character) < 0x20 or style.random() < 0.002:
        return "".join(f"\\u{unit:04x}" for unit in _units(character))
    return character


def _units(character: str) -> list[int]:
    data = character.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[place : place + 2], "big") for place in range(0, len(data), 2)]


def render(node: Node, style: random.Random) -> str:
    """Write a node with spaces and escapes as `style` has it."""

    def space() -> str:
        return style.choice(["", "", "", " ", "\n\t"])

    kind, value = node
    if kind == "raw":
        return str(value)
    if kind == "str":
        return _quote(value, style)
    if kind == "arr":
        inner = [render(child, style) for child in value]
    else:
        inner = [f"{_quote(key, style)}{space()}:{space()}{render(child, style)}" for key, child in value]
    begin, end = "[]" if kind == "arr" else "{}"
    return begin + space() + f"{space()},{space()}".join(inner) + space() + end


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """The bytes of a request; lone surrogates that were not escaped make them no UTF-8."""
    written = render(draw(requests()), random.Random(draw(st.integers(0, 2**32))))
    return written.encode("utf-8", "surrogatepass")


@st.composite
def slices(draw: st.DrawFn, body: bytes) -> list[bytes]:
    """The bytes in pieces, as a network may bring them."""
    cuts = sorted(draw(st.lists(st.integers(0, len(body)), max_size=6)))
    return [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
