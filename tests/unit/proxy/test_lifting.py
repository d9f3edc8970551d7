from __future__ import annotations

import json

import pytest

from epd.proxy.identifiers import HashAlgorithm, content_digest
from epd.proxy.lifting import NOTHING, RUN, LiftedBody, Lifter
from unit.proxy.bodytexts import base64_text

FIRST, SECOND = base64_text(0, 2 * RUN), base64_text(1, 3 * RUN)


def lift(*pieces: bytes) -> LiftedBody:
    lifter = Lifter(HashAlgorithm.BLAKE3)
    for piece in pieces:
        lifter.feed(piece)
    return lifter.lifted()


def body(*texts: str) -> bytes:
    return json.dumps(list(texts)).encode()


def joined(spliced: bytes | tuple[bytes | bytearray | memoryview, ...]) -> bytes:
    return spliced if isinstance(spliced, bytes) else b"".join(spliced)


def test_marks_stand_for_payloads_and_give_way_to_them() -> None:
    given = body(f"data:image/png;base64,{FIRST}", "x", SECOND, f"data:a/b;base64,{FIRST}")
    lifted = lift(given)
    assert len(lifted.skeleton) < 300
    url, text, alone, _ = json.loads(lifted.skeleton)
    payloads = lifted.payloads
    assert [payloads.stands_in(each) for each in (url, text, alone)] == [True, False, True]
    assert [payloads.expand(each) for each in (url, text, alone)] == json.loads(given)[:3]
    assert [payloads.alone(each) for each in (url, text)] == [None, None]
    found = payloads.alone(alone)
    assert found is not None
    assert (found.text(), found.digest) == (SECOND, content_digest(HashAlgorithm.BLAKE3, SECOND))
    for each in (url, text, alone):
        expected = content_digest(HashAlgorithm.BLAKE3, payloads.expand(each))
        assert payloads.digest(HashAlgorithm.BLAKE3, each) == expected
    assert joined(payloads.splice(bytes(lifted.skeleton))) == given
    # in another order, and one of them twice, as they may be written
    assert json.loads(joined(payloads.splice(json.dumps([alone, url, alone]).encode()))) == [
        SECOND,
        f"data:image/png;base64,{FIRST}",
        SECOND,
    ]


@pytest.mark.parametrize("size", [1, 7, 1000, RUN, 9000, 100_000])
def test_how_a_body_arrives_does_not_matter(size: int) -> None:
    given = body("a" * 500, f"data:image/png;base64,{FIRST}", 'x"y', SECOND, "z" * 500)
    lifted = lift(*(given[start : start + size] for start in range(0, len(given), size)))
    assert [lifted.payloads.expand(text) for text in json.loads(lifted.skeleton)] == json.loads(given)
    digests = [lifted.payloads.digest(HashAlgorithm.BLAKE3, json.loads(lifted.skeleton)[3])]
    assert digests == [content_digest(HashAlgorithm.BLAKE3, SECOND)]
    assert len(lifted.skeleton) < 2000


KEPT = {
    "short": FIRST[: RUN - 1],
    "prose": "a base64 text is " + FIRST,
    "no comma": f"data:image/png;base64 {FIRST}",
    "no comma near": "data:" + FIRST,
    "space in front": "data:image/png;base64, " + FIRST,
    "escaped head": "data:image\\png;base64," + FIRST,
    "control character": FIRST + "\x01" + FIRST,
    "delete character": FIRST + "\x7f" + FIRST,
    "not ASCII": FIRST + "\u00e9",
    "cut off": "",
}


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT.keys())
def test_other_texts_are_left_in_place(text: str) -> None:
    # as JSON has it raw
    given = body(text).replace(b"\\u007f", b"\x7f") if text else body(FIRST)[:-2]
    for pieces in ([given], [given[: RUN + 9], given[RUN + 9 :]]):
        lifted = lift(*pieces)
        assert (bytes(lifted.skeleton), lifted.payloads) == (given, NOTHING)


@pytest.mark.parametrize("space", [b"", b" ", b"\n\t "])
def test_a_key_is_left_in_place(space: bytes) -> None:
    given = b'{"%b"%b:"%b"}' % (FIRST.encode(), space, SECOND.encode())
    for pieces in ([given], [given[: 2 * RUN + 3], given[2 * RUN + 3 :]]):
        lifted = lift(*pieces)
        [(key, value)] = json.loads(lifted.skeleton).items()
        assert (key, lifted.payloads.expand(value), value != SECOND) == (FIRST, SECOND, True)


def test_without_payloads_nothing_changes() -> None:
    assert (NOTHING.splice(b"x"), NOTHING.expand("x"), NOTHING.alone(""), bool(NOTHING)) == (b"x", "x", None, False)
    assert NOTHING.digest(HashAlgorithm.SHA256, "x") == content_digest(HashAlgorithm.SHA256, "x")
