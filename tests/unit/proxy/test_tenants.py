from __future__ import annotations

import gc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.proxy.tenants import KEY_LEAST, KEY_MOST, Refused, Table, presented, read_table

A, B, C = "sk-aaaaaaaaaaaaaaaa", "sk-bbbbbbbbbbbbbbbb", "sk-cccccccccccccccc"
SHORT = f"a key has {KEY_LEAST} characters at least"
VISIBLE = "a key is visible ASCII without blanks"


def test_each_file_is_a_tenant_and_each_line_a_key() -> None:
    table = read_table({"acme": f"{A}\n{B}".encode(), "Team-1.b_c": f"{C}\n".encode(), "nobody": b""})
    assert [table.owner(key) for key in (A, B, C)] == ["acme", "acme", "Team-1.b_c"]
    assert (len(table), table.tenants, table.refused) == (3, {"acme", "Team-1.b_c"}, ())


@pytest.mark.parametrize("key", ["", A[:-1], A + "a", A.upper(), f" {A}", f"{A}\n", "ü" * 20, "\xff", "x" * 100_000])
def test_what_is_no_key_is_nobodys(key: str) -> None:
    assert read_table({"acme": A.encode()}).owner(key) is None
    assert read_table({}).owner(key) is None


def test_blanks_comments_and_line_ends_of_other_systems_mean_nothing() -> None:
    table = read_table({"acme": f"# made in November\r\n\r\n \t{A}\t \r\n  # {B}\n\n{C}\r\n".encode()})
    assert [table.owner(key) for key in (A, B, C, f"# {B}")] == ["acme", None, "acme", None]
    assert table.refused == ()


def test_a_key_twice_in_a_file_is_one_key() -> None:
    table = read_table({"acme": f"{A}\n{A}\n".encode()})
    assert (table.owner(A), len(table), table.refused) == ("acme", 1, ())


def test_a_key_of_several_tenants_is_nobodys() -> None:
    table = read_table({"acme": f"{A}\n{B}".encode(), "beta": f"{C}\n{A}".encode(), "zeta": A.encode()})
    assert [table.owner(key) for key in (A, B, C)] == [None, "acme", "beta"]
    assert table.refused == (
        Refused("acme", 1, "the key is one of 'beta', 'zeta' too, so it is nobody's"),
        Refused("beta", 2, "the key is one of 'acme', 'zeta' too, so it is nobody's"),
        Refused("zeta", 1, "the key is one of 'acme', 'beta' too, so it is nobody's"),
    )
    assert table.tenants == {"acme", "beta"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("k" * (KEY_LEAST - 1), SHORT),
        ("k" * (KEY_MOST + 1), f"a key has {KEY_MOST} characters at most"),
        (f"{A} {B}", VISIBLE),
        (f"{A}\x00", VISIBLE),
        (f"{A}\x7f", VISIBLE),
        ("ключключключключ", VISIBLE),
        (f"\ufeff{A}", VISIBLE),
    ],
)
def test_a_line_that_is_no_key_leaves_the_rest_valid(line: str, reason: str) -> None:
    table = read_table({"acme": f"{line}\n{B}".encode(), "beta": C.encode()})
    assert [table.owner(key) for key in (B, C)] == ["acme", "beta"]
    assert (len(table), table.refused) == (2, (Refused("acme", 1, reason),))


@pytest.mark.parametrize("length", [KEY_LEAST, KEY_MOST])
def test_the_shortest_and_the_longest_key(length: int) -> None:
    assert read_table({"acme": b"k" * length}).owner("k" * length) == "acme"


@pytest.mark.parametrize("name", ["a b", "a/b", "ü", "a\nb", "", "x" * 254])
def test_a_name_that_no_secret_has_is_no_tenants(name: str) -> None:
    table = read_table({name: A.encode(), "beta": B.encode()})
    assert (table.owner(A), table.owner(B)) == (None, "beta")
    assert [(refused.tenant, refused.line) for refused in table.refused] == [(name, 0)]


def test_a_refusal_reads_where_and_why() -> None:
    assert str(Refused("acme", 3, "too short")) == "'acme' line 3: too short"
    assert str(Refused("a\nb", 0, "no")) == r"'a\nb': no"


def test_files_that_were_left_out_are_told_too() -> None:
    unread = Refused("beta", 0, "too large")
    assert read_table({"acme": b"short"}, unread=[unread]).refused == (Refused("acme", 1, SHORT), unread)


def test_no_table_has_a_key_and_no_two_have_the_same_digests() -> None:
    one, other = (read_table({"acme": A.encode()}) for _ in range(2))
    reached: list[object] = [one]
    seen: set[int] = set()
    while reached:
        thing = reached.pop()
        if id(thing) not in seen and not isinstance(thing, type):
            seen.add(id(thing))
            assert thing not in (A, A.encode())
            reached += gc.get_referents(thing)
    assert set(one._owners).isdisjoint(other._owners)


HEADERS: dict[str, tuple[dict[str, str], str | None]] = {
    "none": ({}, None),
    "token": ({"authorization": f"Bearer {A}"}, A),
    "scheme in other letters": ({"authorization": f"bEARER  {A} "}, A),
    "empty token": ({"authorization": "Bearer"}, ""),
    "another scheme": ({"authorization": f"Basic {A}"}, None),
    "no scheme": ({"authorization": A}, None),
    "Anthropic": ({"x-api-key": A}, A),
    "the token goes first": ({"authorization": f"Bearer {A}", "x-api-key": B}, A),
    "though it be empty": ({"authorization": "Bearer ", "x-api-key": B}, ""),
    "another scheme's is no token": ({"authorization": "Basic eA==", "x-api-key": B}, B),
    "two of Anthropic's, joined": ({"x-api-key": f"{A}, {B}"}, f"{A}, {B}"),
}


@pytest.mark.parametrize(("headers", "key"), HEADERS.values(), ids=HEADERS.keys())
def test_the_key_that_a_request_presents(headers: dict[str, str], key: str | None) -> None:
    assert presented(headers) == key


NAMES = st.sampled_from(["acme", "beta", "c", "not a name"])
GOOD = st.text("abX0-._~+/=!#", min_size=KEY_LEAST, max_size=KEY_LEAST + 2).filter(lambda key: key[0] != "#")
LINES = st.one_of(
    GOOD,
    st.sampled_from([A, B, C]),
    st.text("ab", max_size=KEY_LEAST - 1),
    st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=40),
)
PADDING = st.sampled_from(["", " ", "\t", "\r", " \r"])


@given(st.dictionaries(NAMES, st.lists(st.tuples(PADDING, LINES, PADDING), max_size=6)))
def test_a_line_is_a_key_exactly_if_it_can_be_and_is_one_tenants(
    files: dict[str, list[tuple[str, str, str]]],
) -> None:
    lines = {name: [before + line + after for before, line, after in each] for name, each in files.items()}
    table = read_table({name: "\n".join(each).encode() for name, each in lines.items()})
    wanted: dict[str, set[str]] = {}
    refusals: Counter[str] = Counter()
    for name, each in lines.items():
        if name == "not a name":
            refusals[name] = 1
            continue
        for line in each:
            text = line.strip(" \t\r")
            if not text or text[0] == "#":
                continue
            if len(text) >= KEY_LEAST and all("!" <= letter <= "~" for letter in text):
                wanted.setdefault(text, set()).add(name)
            else:
                refusals[name] += 1
    for owners in wanted.values():
        if len(owners) > 1:
            refusals.update(owners)
    owned = {key: owners for key, owners in wanted.items() if len(owners) == 1}
    assert {key: {table.owner(key)} for key in owned} == owned
    assert [table.owner(key) for key in wanted if key not in owned] == [None] * (len(wanted) - len(owned))
    assert (len(table), table.tenants) == (len(owned), {name for names in owned.values() for name in names})
    assert Counter(refused.tenant for refused in table.refused) == refusals
    told = "".join(map(str, table.refused))
    texts = [line.strip() for each in lines.values() for line in each]
    assert not [text for text in texts if len(text) >= 10 and text in told]


@given(st.dictionaries(st.text(max_size=5), st.binary(max_size=80)))
def test_whatever_is_in_a_directory_there_is_a_table(files: dict[str, bytes]) -> None:
    assert isinstance(read_table(files), Table)
