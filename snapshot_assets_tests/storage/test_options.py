"""Every storage option that is accepted has an effect; what real servers on loopback see of it."""

from __future__ import annotations

import os
import pickle
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from snapshot_assets.errors import PlanError, StorageError, StoreDeniedError, TransientError
from snapshot_assets.plan.read_configuration import parse_configuration
from snapshot_assets.storage.cloud import CloudStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import VARIABLES, ObjectLock, StoreOptions, open_store
from snapshot_assets.storage.oss import OpendalStore
from snapshot_assets_tests.servers.certificates import certificates
from snapshot_assets_tests.servers.http import Handler, serving

GOOGLE = '{{"disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": "", "gcs_base_url": "{}"}}'


@dataclass
class Seen:
    """A server that refuses every request, and what it was asked."""

    port: int = 0
    requests: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def server(context: ssl.SSLContext | None = None) -> Iterator[Seen]:
    seen = Seen()

    class Refusing(Handler):
        def do_HEAD(self) -> None:
            seen.requests.append({"path": self.path, **{name.lower(): value for name, value in self.headers.items()}})
            self.answer(503)

    with serving(Refusing, context) as seen.port:
        yield seen


def requests(seen: Seen, scheme: str, options: StoreOptions) -> list[dict[str, str]]:
    """Return what the server sees of a call."""
    seen.requests.clear()
    with pytest.raises(StorageError):
        open_store(parse_location(f"{scheme}://bucket/x"), options).head("a")
    return list(seen.requests)


def outcome(seen: Seen, scheme: str, options: StoreOptions) -> object:
    """Return what is seen of the options: requests, or for OSS, whose bucket is part of the host, settings."""
    store = open_store(parse_location(f"{scheme}://bucket/x"), options)
    if isinstance(store, OpendalStore):
        return store._settings, store.patience
    assert isinstance(store, CloudStore)
    return requests(seen, scheme, options)


CHANGED: dict[str, Any] = {
    "region": "eu-central-1",
    "access_key_id": "another",
    "secret_access_key": "another",
    "session_token": "another",
    "virtual_hosted_style": True,
    "account_name": "another",
    "account_key": "YW5vdGhlcg==",
    "retries": 1,
}
KEYS = ("access_key_id", "secret_access_key", "session_token")
OPTIONS = ["endpoint", "allow_http", "service_account", *CHANGED]


def base(scheme: str, port: int) -> StoreOptions:
    common = StoreOptions(endpoint=f"http://localhost:{port}", allow_http=True, retries=0)
    given: dict[str, dict[str, Any]] = {
        "s3": {"access_key_id": "key", "secret_access_key": "secret", "session_token": "token", "region": "us-east-1"},
        "gs": {"service_account": GOOGLE.format(f"http://localhost:{port}")},
        "azblob": {"account_name": "name", "account_key": "c2VjcmV0"},
        "oss": {"access_key_id": "key", "secret_access_key": "secret", "session_token": "token"},
    }
    return replace(common, **given[scheme])


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("scheme", ["s3", "gs", "azblob", "oss"])
def test_an_option_has_an_effect_or_is_refused(scheme: str, name: str) -> None:
    if scheme == "oss":
        pytest.importorskip("opendal", reason="needs the extra 'oss'")
    with server() as seen:
        here = base(scheme, seen.port)
        other = {
            "endpoint": f"http://127.0.0.1:{seen.port}",
            "service_account": GOOGLE.format("http://localhost:1"),
        } | CHANGED
        if name == "allow_http":
            with pytest.raises(PlanError, match="allow_http"):
                replace(here, allow_http=False)
            return
        if (scheme, name) == ("gs", "service_account"):
            with pytest.raises(PlanError, match=r"Cannot read the Google service account '/no/such/file.json'"):
                outcome(seen, scheme, replace(here, service_account="/no/such/file.json"))
            return
        given = getattr(here, name)
        if (given is None or given is False) and (scheme, name) != ("s3", "virtual_hosted_style"):
            pair = {"access_key_id": "a", "secret_access_key": "b"} if name in KEYS else {}
            with pytest.raises(PlanError, match=f"has no effect on {scheme}://.*; use endpoint") as caught:
                open_store(parse_location(f"{scheme}://bucket/x"), replace(here, **(pair | {name: other[name]})))
            assert name in str(caught.value) or pair
            return
        changed = replace(here, **{name: other[name]})
        for _ in range(20):  # requests are signed with their second: compare two of the same one
            time.sleep(max(0.0, 0.5 - time.time() % 1) if time.time() % 1 > 0.8 else 0)
            start = int(time.time())
            found = outcome(seen, scheme, here), outcome(seen, scheme, changed)
            if int(time.time()) == start:
                break
        assert found[0]
        assert found[0] != found[1]


def test_options_without_an_effect_are_reported_where_they_stand() -> None:
    text = "storage: {gs: {region: eu}, azblob: {access_key_id: a, secret_access_key: b}, s3: {region: eu}}"
    with pytest.raises(PlanError) as caught:
        parse_configuration(text, Path("snapshots.yaml"), {})
    problems = {".".join(problem.path): problem.message for problem in caught.value.attributes["problems"]}
    assert set(problems) == {"storage.gs", "storage.azblob"}
    assert "region has no effect on gs:// locations; use endpoint" in problems["storage.gs"]
    assert "access_key_id has no effect on azblob:// locations" in problems["storage.azblob"]


def test_a_local_location_takes_no_options(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="retries has no effect on file:// locations"):
        open_store(parse_location((tmp_path / "x").as_uri()), StoreOptions(retries=1))


def test_googles_endpoint_is_where_requests_go() -> None:
    with server() as seen:
        options = replace(base("gs", seen.port), service_account=GOOGLE.format("http://localhost:1"))
        [request] = requests(seen, "gs", options)
    assert request["host"] == f"localhost:{seen.port}"
    assert request["path"] == "/bucket/x%2Fa"


OTHERS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "profile": ({"profile": "x"}, {"s3"}),
    "server_side_encryption": ({"server_side_encryption": "AES256"}, {"s3"}),
    "sse_kms_key_id": ({"server_side_encryption": "aws:kms", "sse_kms_key_id": "x"}, {"s3"}),
    "sse_bucket_key": ({"server_side_encryption": "aws:kms", "sse_bucket_key": True}, {"s3"}),
    "sse_customer_key_base64": ({"sse_customer_key_base64": f"{'A' * 43}="}, {"s3"}),
    "storage_class": ({"storage_class": "STANDARD_IA"}, {"s3"}),
    "checksums": ({"checksums": False}, {"s3"}),
    "lock": ({"lock": ObjectLock("governance", "30d")}, {"s3"}),
    "request_payer": ({"request_payer": True}, {"s3"}),
    "sas_token": ({"sas_token": "x"}, {"azblob"}),
    "tenant_id": ({"tenant_id": "x"}, {"azblob"}),
    "client_id": ({"client_id": "x"}, {"azblob"}),
    "client_secret": ({"tenant_id": "x", "client_id": "x", "client_secret": "x"}, {"azblob"}),
    "ca_bundle": ({"ca_bundle": "-----BEGIN"}, {"s3", "gs", "azblob"}),
    "retry_timeout": ({"retry_timeout": "1m"}, {"s3", "gs", "azblob", "oss"}),
    "requests_per_second": ({"requests_per_second": 5.0}, {"s3", "gs", "azblob", "oss"}),
}


def test_every_option_is_tested() -> None:
    assert {option.name for option in fields(StoreOptions)} == {*OPTIONS, *OTHERS}


@pytest.mark.parametrize("name", OTHERS)
def test_an_option_is_refused_where_it_has_no_effect(name: str) -> None:
    given, schemes = OTHERS[name]
    for scheme in ("s3", "gs", "azblob", "oss", "file"):
        if scheme in schemes:
            StoreOptions(**given).check(scheme)
        else:
            with pytest.raises(PlanError, match="has no effect on"):
                StoreOptions(**given).check(scheme)


def test_a_shared_access_signature_is_sent() -> None:
    with server() as seen:
        options = replace(base("azblob", seen.port), account_key=None, sas_token="sv=2024-01-01&sig=abc")
        [request] = requests(seen, "azblob", options)
    assert "sig=abc" in request["path"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"profile": "a", "access_key_id": "b", "secret_access_key": "c"}, "profile and access_key_id"),
        ({"sas_token": "a", "account_key": "b"}, "account_key and sas_token"),
        ({"client_secret": "a"}, "tenant_id and client_id"),
        ({"sse_kms_key_id": "a"}, "server_side_encryption: aws:kms"),
        ({"requests_per_second": 0}, "above 0"),
        ({"retry_timeout": "soon"}, "not a duration"),
        ({"retries": -1}, "from 0 up"),
    ],
)
def test_options_that_contradict_each_other_are_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        StoreOptions(**given)


@pytest.fixture
def aws_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of two profiles, one of which asks a process for its credentials."""
    process = tmp_path / "process.py"
    process.write_text(
        'print(\'{"Version": 1, "AccessKeyId": "from-process", "SecretAccessKey": "x", "SessionToken": "y"}\')'
    )
    (tmp_path / "config").write_text(
        f"[profile plain]\naws_access_key_id = from-profile\naws_secret_access_key = x\n"
        f"[profile process]\ncredential_process = {sys.executable} {process}\n"
    )
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


NO_KEYS = dict.fromkeys(KEYS)


@pytest.mark.parametrize(("profile", "key"), [("plain", "from-profile"), ("process", "from-process")])
@pytest.mark.parametrize("named_by", ["option", "environment"])
def test_a_profile_signs_requests_also_in_another_process(
    aws_home: Path, monkeypatch: pytest.MonkeyPatch, profile: str, key: str, named_by: str
) -> None:
    with server() as seen:
        options = replace(base("s3", seen.port), **NO_KEYS, profile=profile if named_by == "option" else None)
        if named_by == "environment":
            monkeypatch.setenv("AWS_PROFILE", profile)
        store = open_store(parse_location("s3://bucket/x"), options)
        monkeypatch.delenv("AWS_PROFILE", raising=False)
        with pytest.raises(StorageError):
            pickle.loads(pickle.dumps(store)).head("a")
        assert f"Credential={key}/" in seen.requests[0]["authorization"]


@pytest.mark.parametrize(("profile", "problem"), [("missing", "'missing'"), (None, "no credentials were found")])
def test_missing_credentials_are_permanent_and_say_what_to_do(
    aws_home: Path, profile: str | None, problem: str
) -> None:
    options = replace(base("s3", 1), **NO_KEYS, profile=profile)
    with pytest.raises(StoreDeniedError, match=problem):
        open_store(parse_location("s3://bucket/x"), options).head("a")


def test_keys_of_the_environment_come_before_its_profile() -> None:
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "c"}
    assert StoreOptions().resolved("s3", {"AWS_PROFILE": "prod", **keys}).profile is None
    assert StoreOptions(profile="mine").resolved("s3", keys) == StoreOptions(profile="mine")
    given = StoreOptions(access_key_id="a", secret_access_key="b")
    assert given.resolved("s3", {"AWS_PROFILE": "prod"}) == given


def test_files_of_credentials_and_certificates_travel_by_content(tmp_path: Path) -> None:
    account, bundle = tmp_path / "account.json", tmp_path / "ca.pem"
    account.write_text('{"type": "service_account"}')
    bundle.write_text("-----BEGIN CERTIFICATE-----")
    found = StoreOptions().resolved("gs", {"GOOGLE_APPLICATION_CREDENTIALS": str(account)})
    assert found.service_account == account.read_text()
    assert StoreOptions().resolved("s3", {"AWS_CA_BUNDLE": str(bundle)}).ca_bundle == bundle.read_text()
    with pytest.raises(PlanError, match=r"Cannot read.*/no/such.*readable file"):
        StoreOptions(ca_bundle="/no/such").resolved("s3", {})


def test_the_login_of_gcloud_travels_by_content_unless_something_else_is_named(tmp_path: Path) -> None:
    login, account = tmp_path / ".config" / "gcloud" / "application_default_credentials.json", tmp_path / "account.json"
    home = {"HOME": str(tmp_path)}
    assert StoreOptions().resolved("gs", home).service_account is None
    login.parent.mkdir(parents=True)
    login.write_text('{"type": "authorized_user"}')
    account.write_text('{"type": "service_account"}')
    for environment in (home, {"CLOUDSDK_CONFIG": str(login.parent)}):
        assert StoreOptions().resolved("gs", environment).service_account == login.read_text()
    named = home | {"GOOGLE_APPLICATION_CREDENTIALS": str(account)}
    assert StoreOptions().resolved("gs", named).service_account == account.read_text()
    assert StoreOptions(service_account="{}").resolved("gs", home).service_account == "{}"
    assert StoreOptions(region="a").resolved("s3", home).service_account is None


def test_certificates_below_comments_are_certificates() -> None:
    text = "\n# Issuer: CN=Example\n-----BEGIN CERTIFICATE-----\n"
    assert StoreOptions(ca_bundle=text).resolved("s3", {}).ca_bundle == text


@pytest.mark.parametrize("text", ["c2VjcmV0LWtleQ==", "s3cret" * 100, "s3\0cret", "~nobody-here/s3cret\n"])
def test_a_text_that_is_no_path_is_not_shown(text: str) -> None:
    with pytest.raises(PlanError, match=r"Cannot read the Google service account: .*name a readable file") as caught:
        StoreOptions().resolved("gs", {"GOOGLE_SERVICE_ACCOUNT": text})
    assert text not in str(caught.value)
    assert "cret" not in str(caught.value)


def test_every_variable_that_is_read_is_named() -> None:
    class Environment(dict[str, str]):
        read: ClassVar[set[str]] = set()

        def get(self, key: str, default: Any = None) -> Any:
            self.read.add(key)
            return super().get(key, default)

    for scheme in ("s3", "gs", "azblob", "oss"):
        StoreOptions().resolved(scheme, Environment())
    assert Environment.read == VARIABLES
    assert {"AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"} <= VARIABLES


@pytest.mark.parametrize(
    "environment",
    [
        {"AWS_ACCESS_KEY_ID": "a"},
        {"AWS_SECRET_ACCESS_KEY": "b"},
        {"AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "c"},
        {"AWS_SESSION_TOKEN": "c"},
    ],
)
def test_a_part_of_the_credentials_is_refused(environment: dict[str, str]) -> None:
    with pytest.raises(PlanError, match=r"need access_key_id and secret_access_key.*or the environment"):
        StoreOptions().resolved("s3", environment)
    given = StoreOptions(access_key_id="x", secret_access_key="y")
    assert given.resolved("s3", environment) == given
    with pytest.raises(PlanError, match="session_token"):
        StoreOptions(session_token="a")


SCRIPT = """
import sys
from snapshot_assets.storage.{module} import *
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets.storage.options import StoreOptions
options = StoreOptions(endpoint=sys.argv[1], access_key_id="a", secret_access_key="b", region="us-east-1", retries=0)
location = parse_location("s3://bucket/x")
settings = {{"bucket": "bucket", "endpoint": sys.argv[1], "region": "us-east-1"}}
settings |= {{"access_key_id": "a", "secret_access_key": "b"}}
store = {store}
try:
    store.head("a")
except Exception as error:
    print([kind.__name__ for kind in type(error).__mro__], error)
"""


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates")
@pytest.mark.parametrize(
    ("module", "store"),
    [("cloud", "open_store(location, options)"), ("oss", "OpendalStore(location, 's3', settings, options.patience)")],
)
def test_an_unknown_authority_is_permanent_and_says_what_to_do(tmp_path: Path, module: str, store: str) -> None:
    authority = certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "leaf.pem", tmp_path / "leaf.key")
    with server(context) as seen:
        command = [sys.executable, "-c", SCRIPT.format(module=module, store=store), f"https://localhost:{seen.port}"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        assert "StorageError" in shown
        assert TransientError.__name__ not in shown
        assert "s3://bucket/x/a: the TLS certificate of the store is not trusted (UnknownIssuer)" in shown
        assert "SSL_CERT_FILE" in shown
        assert not seen.requests
        for variable in ("SSL_CERT_FILE", "AWS_CA_BUNDLE") if module == "cloud" else ("SSL_CERT_FILE",):
            seen.requests.clear()
            trusting = {**os.environ, variable: str(authority)}
            shown = subprocess.run(command, env=trusting, capture_output=True, text=True, check=True, timeout=60).stdout
            assert TransientError.__name__ in shown  # now it is heard: 503
            assert seen.requests


HEAVY = {"opendal", "dagster", "pyspark", "pyarrow", "duckdb", "boto3", "pydantic"}


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import snapshot_assets.storage.options", HEAVY | {"obstore"}),
        ("from snapshot_assets.storage.options import open_store as o\n"
         "from snapshot_assets.storage.location import parse_location as p\n"
         "o(p('file:///data/x'))", HEAVY | {"obstore"}),
        ("from snapshot_assets.storage.options import open_store as o\n"
         "from snapshot_assets.storage.location import parse_location as p\n"
         "o(p('s3://bucket/x'))", HEAVY),
    ],
)  # fmt: skip
def test_only_what_a_location_needs_is_imported(statement: str, unwanted: set[str]) -> None:
    script = f"{statement}\nimport sys\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert unwanted & set(loaded) == set()
