from __future__ import annotations

from pathlib import Path

import pytest

from epd.api.names import Role
from epd.proxy.affinity import Affinity
from epd.proxy.connectors import Connector
from epd.proxy.identifiers import HashAlgorithm
from epd.proxy.isolation import TenantIsolation
from epd.proxy.main import build_parser, read_settings
from epd.proxy.media import MediaPolicy
from epd.proxy.settings import Drain, EncoderFailurePolicy, EngineTls, Limits, Settings, parse_servers

BOTH = frozenset({Role.ENCODE, Role.PREFILL_DECODE})

TWO = "--decode-servers-urls http://b:1,http://b:2 --encode-servers-urls http://e:1"


def settings(*flags: str) -> Settings:
    parser = build_parser()
    return read_settings(parser, parser.parse_args(flags))


def test_defaults() -> None:
    expected = Settings(host="0.0.0.0", port=8000, admin_port=9090, roles=BOTH, namespace="ai", epd="q")
    assert settings("--namespace", "ai", "--epd", "q") == expected


def test_every_flag_of_the_operator() -> None:
    flags = """--namespace ai --epd q --roles prefill-decode --encoder-failure-policy Fail --request-timeout 1h30m
        --encode-timeout 90s --idle-timeout 30s --max-in-flight 5 --max-fallback-encodes 0 --hash-algorithm SHA256
        --allowed-media-domains a.com,B.com --max-body-size 1Mi --salt s --admin-port 1 --port 2 --host :: --suspended
        --drain-timeout 2m --drain-delay 3s --debug --rewrite"""
    assert settings(*flags.split()) == Settings(
        host="::",
        port=2,
        admin_port=1,
        roles=frozenset({Role.PREFILL_DECODE}),
        namespace="ai",
        epd="q",
        policy=EncoderFailurePolicy.FAIL,
        limits=Limits(
            request_seconds=5400,
            encode_seconds=90,
            idle_seconds=30,
            max_in_flight=5,
            max_fallback_encodes=0,
            max_body_bytes=1 << 20,
        ),
        media=MediaPolicy(allowed_domains=frozenset({"a.com", "b.com"}), hash_algorithm=HashAlgorithm.SHA256, salt="s"),
        drain=Drain(delay_seconds=3, timeout_seconds=120),
        rewrite=True,
        suspended=True,
        debug=True,
    )


def test_prefill_and_decode_as_engines_of_their_own() -> None:
    read = settings("--prefill-servers-urls", "http://p:1", "--decode-servers-urls", "http://d:1,http://d:2")
    assert [(member.name, member.role) for member in read.static_members] == [
        ("p:1", Role.PREFILL),
        ("d:1", Role.DECODE),
        ("d:2", Role.DECODE),
    ]
    assert (read.roles, read.split, read.encodes) == ({Role.PREFILL, Role.DECODE}, True, False)
    assert not settings("--decode-servers-urls", "http://b:1").split


def test_the_flags_of_room_and_sharing() -> None:
    flags = """--max-connections 9 --max-in-flight-per-engine 0 --queue 0 --queue-timeout 3s
        --connector Managed --hint-seconds 90 --affinity Prefix --ignore-priority"""
    read = settings("--namespace", "ai", "--epd", "q", *flags.split())
    limits = read.limits
    assert (limits.max_connections, limits.max_in_flight_per_engine, limits.queue, limits.queue_seconds) == (9, 0, 0, 3)
    assert (read.connector, read.hint_seconds, read.affinity) == (Connector.MANAGED, 90, Affinity.PREFIX)
    default = settings("--namespace", "ai", "--epd", "q")
    assert (default.affinity, default.media.ignores_priority, read.media.ignores_priority) == (
        Affinity.NONE,
        False,
        True,
    )


def test_the_flags_of_engines_that_are_pushed_to() -> None:
    read = settings(*TWO.split(), "--ec-consumer-zmq-addrs", "tcp://b:3, tcp://[::1]:4")
    assert (read.connector, settings(*TWO.split()).connector) == (Connector.MOONCAKE, Connector.EXAMPLE)
    assert [(member.name, member.push_address) for member in read.static_members] == [
        ("e:1", ""),
        ("b:1", "tcp://b:3"),
        ("b:2", "tcp://[::1]:4"),
    ]


@pytest.mark.parametrize("prefill", ["disable", "none", ""])
def test_the_flags_of_vllms_proxy(prefill: str) -> None:
    read = settings(
        *("--encode-servers-urls", "http://a:1,http://a:2", "--prefill-servers-urls", prefill),
        *("--decode-servers-urls", "http://b:1"),
    )
    encoders = parse_servers("http://a:1,http://a:2", role=Role.ENCODE)
    assert read.static_members == encoders + parse_servers("http://b:1", role=Role.PREFILL_DECODE)
    assert read.roles == BOTH
    assert read.encodes


def test_the_command_line_of_vllms_proxy_stays_as_it_is() -> None:
    flags = "--host h --port 1 --log-requests --no-rewrite --decode-retries 1 --encode-servers-urls http://a:1"
    read = settings(*flags.split(), "--prefill-servers-urls", "disable", "--decode-servers-urls", "http://b:1")
    assert (read.host, read.port, read.debug, read.rewrite) == ("h", 1, True, False)


@pytest.mark.parametrize("engines", ["--namespace ai --epd q", "--decode-servers-urls http://b:1"])
def test_media_are_left_out_only_when_asked(engines: str) -> None:
    flags = engines.split()
    switches = [settings(*flags, *more).rewrite for more in ([], ["--no-rewrite"], ["--rewrite"])]
    assert switches == [False, False, True]


def test_how_the_data_port_listens() -> None:
    flags = """--namespace ai --epd q --uds /run/epd.sock --tls-cert /tls/tls.crt --tls-key /tls/tls.key
        --allowed-origins https://a.example,http://b:1 --open-route /invocations --open-route /inference/v1/generate"""
    assert settings(*flags.split()) == Settings(
        host="0.0.0.0",
        port=8000,
        admin_port=9090,
        roles=BOTH,
        namespace="ai",
        epd="q",
        uds=Path("/run/epd.sock"),
        tls_certificate=Path("/tls/tls.crt"),
        tls_key=Path("/tls/tls.key"),
        allowed_origins=frozenset({"https://a.example", "http://b:1"}),
        opened_routes=frozenset({"/invocations", "/inference/v1/generate"}),
    )


def test_tls_to_engines() -> None:
    files = "--engine-ca /ca.crt --engine-cert /c.crt --engine-key /c.key --engine-server-name engine.ai"
    given = {"ca": Path("/ca.crt"), "certificate": Path("/c.crt"), "key": Path("/c.key"), "server_name": "engine.ai"}
    pods = settings(*["--namespace", "ai", "--epd", "q", "--engine-tls"], *files.split())
    assert pods.engine_tls == EngineTls(pods=True, **given)  # type: ignore[arg-type] # paths and a name
    by_url = settings("--decode-servers-urls", "https://b:1", *files.split())
    assert by_url.engine_tls == EngineTls(**given)  # type: ignore[arg-type] # paths and a name
    assert (
        settings("--encode-servers-urls", "https://a:1", "--decode-servers-urls", "http://b:1").engine_tls
        == EngineTls()
    )
    assert settings("--decode-servers-urls", "unix:/run/b.sock").engine_tls is None
    assert settings("--namespace", "ai", "--epd", "q").engine_tls is None


def test_the_flags_of_tenants() -> None:
    flags = "--namespace ai --epd q --api-keys /keys --tenant-isolation Salted --max-in-flight-per-tenant 7"
    read = settings(*flags.split())
    assert (read.api_keys, read.tenant_isolation) == (Path("/keys"), TenantIsolation.SALTED)
    assert read.limits == Limits(max_in_flight_per_tenant=7)
    shared = "--namespace ai --epd q --tenant-isolation Shared --max-in-flight-per-tenant 0"
    assert settings(*shared.split()) == settings("--namespace", "ai", "--epd", "q")


def test_without_encoders_it_is_the_aggregated_topology() -> None:
    assert not settings("--decode-servers-urls", "http://b:1").encodes


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("", "give either"),
        ("--namespace a", "give either"),
        ("--namespace a --epd b --decode-servers-urls http://b:1", "give either"),
        ("--encode-servers-urls http://b:1", "--decode-servers-urls is missing"),
        ("--encode-servers-urls http://b:1 --prefill-servers-urls http://c:1", "--decode-servers-urls is missing"),
        ("--prefill-servers-urls http://c:1", "--decode-servers-urls is missing"),
        ("--decode-servers-urls http://b:1 --prefill-servers-urls http://b:1", "given twice"),
        ("--decode-servers-urls b:1", "is no base URL"),
        ("--decode-servers-urls http://b:1 --decode-retries 2", "--decode-retries"),
        ("--decode-servers-urls http://b:1,http://b:1", "given twice"),
        ("--encode-servers-urls http://b:1 --decode-servers-urls http://b:1", "given twice"),
        ("--namespace a --epd b --roles encode,prefill", "must be among"),
        ("--namespace a --epd b --request-timeout 10", "is no duration"),
        ("--namespace a --epd b --max-in-flight 0", "must be at least 1"),
        ("--namespace a --epd b --max-in-flight x", "invalid literal"),
        ("--namespace a --epd b --max-connections 0", "must be at least 1"),
        ("--namespace a --epd b --max-body-size 1X", "is no quantity"),
        ("--namespace a --epd b --encoder-failure-policy Retry", "Retry"),
        ("--namespace a --epd b --drain", "unrecognized arguments"),
        ("--namespace a --epd b --rewrite --no-rewrite", "not allowed with"),
        ("--namespace a --epd b --tls-cert a", "belong together"),
        ("--namespace a --epd b --engine-ca a", "no engine is reached by TLS"),
        ("--decode-servers-urls http://b:1 --engine-server-name a", "no engine is reached by TLS"),
        ("--decode-servers-urls https://b:1 --engine-tls", "is for watched pods"),
        ("--namespace a --epd b --engine-tls --engine-key a", "belong together"),
        ("--namespace a --epd b --allowed-origins a.example", "is no origin"),
        ("--namespace a --epd b --open-route /sleep", "invalid choice"),
        ("--namespace a --epd b --queue -1", "must be at least 0"),
        ("--namespace a --epd b --connector Moon", "Mooncake"),
        ("--namespace a --epd b --connector Mooncake", "one for each decode server"),
        (f"{TWO} --connector Mooncake", "one for each decode server"),
        (f"{TWO} --connector Mooncake --ec-consumer-zmq-addrs tcp://b:3", "one for each decode server"),
        (f"{TWO} --connector Mooncake --ec-consumer-zmq-addrs b:3,b:4", "is no address such as tcp://"),
        (f"{TWO} --connector Example --ec-consumer-zmq-addrs tcp://b:3,tcp://b:4", "nothing is pushed"),
        (
            f"{TWO} --connector Mooncake --ec-consumer-zmq-addrs tcp://b:3,tcp://b:4 --prefill-servers-urls http://c:1",
            "engines that prefill and decode",
        ),
        ("--namespace a --epd b --tenant-isolation Salted", "need --api-keys"),
        ("--namespace a --epd b --max-in-flight-per-tenant 1", "need --api-keys"),
        ("--namespace a --epd b --tenant-isolation None --api-keys k", "None"),
        ("--namespace a --epd b --hint-seconds 60", "every item is encoded"),
        ("--namespace a --epd b --connector Managed --hint-seconds -1", "must not be negative"),
        ("--namespace a --epd b --connector Managed --hint-seconds nan", "must not be negative"),
    ],
)
def test_nonsense_exits_2_and_says_why(flags: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        settings(*flags.split())
    assert stop.value.code == 2
    assert words in capsys.readouterr().err
