"""Azure Blob Storage by Microsoft's emulator Azurite, on the loopback interface.

`AZURITE` names its command `azurite-blob`; else it is looked for on the path, and in `node_modules` of this project
(`npm install --no-save azurite`).
"""

from __future__ import annotations

import base64
import hmac
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from snapshot_assets.storage.options import StoreOptions
from snapshot_assets_tests.servers.ports import free_port, listens
from snapshot_assets_tests.waiting import until

_ACCOUNT = "snapshots"
_KEY = base64.b64encode(b"only for tests, and never for data of anybody").decode()


@dataclass(frozen=True)
class AzureServer:
    """The running server.

    Attributes:
        options: Options of the account's owner.
        container: An existing container.
    """

    options: StoreOptions
    container: str

    def signature(self, rights: str) -> StoreOptions:
        """Return options with a shared access signature of the container, for some of the rights `rcwdl`."""
        version, end = "2021-08-06", f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
        lines = (rights, "", end, f"/blob/{_ACCOUNT}/{self.container}", "", "", "", version, "c", *[""] * 7)
        query = {"sv": version, "sr": "c", "sp": rights, "se": end, "sig": _sign("\n".join(lines))}
        return replace(self.options, account_key=None, sas_token=urlencode(query))


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """A running Azurite with a container; skips the test where Azurite is not installed."""
    local = Path(__file__).parents[2] / "node_modules" / ".bin" / "azurite-blob"
    command = os.environ.get("AZURITE") or shutil.which("azurite-blob") or (str(local) if local.exists() else None)
    if command is None:
        pytest.skip("needs Azurite: npm install --no-save azurite")
    home = tmp_path_factory.mktemp("azurite")
    port = free_port()
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(
            [command, "--location", home, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--skipApiVersionCheck"],
            stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "AZURITE_ACCOUNTS": f"{_ACCOUNT}:{_KEY}"},
        )  # fmt: skip
    try:
        _wait(server, port, home / "log")
        options = StoreOptions(
            endpoint=f"http://127.0.0.1:{port}/{_ACCOUNT}", account_name=_ACCOUNT, account_key=_KEY, allow_http=True,
            retry_timeout="10s",
        )  # fmt: skip
        yield AzureServer(options, _new_container(options))
    finally:
        server.terminate()
        server.wait(20)


@pytest.fixture
def azure_location(azure_server: AzureServer) -> str:
    """The URI of a new prefix on Azurite."""
    return f"azblob://{azure_server.container}/tests/{uuid.uuid4().hex}"


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until(lambda: listens(port), explain=lambda: log.read_text(errors="replace")[-4000:], process=server)


def _new_container(options: StoreOptions) -> str:
    """Create a container: obstore cannot."""
    name = f"tests-{uuid.uuid4().hex}"
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = "".join(f"{header}:{value}\n" for header, value in headers.items())
    resource = f"/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
    headers["Authorization"] = f"SharedKey {_ACCOUNT}:{_sign('PUT' + 12 * chr(10) + signed + resource)}"
    request = Request(f"{options.endpoint}/{name}?restype=container", headers=headers, method="PUT")
    with urlopen(request, timeout=30) as answer:
        assert answer.status == 201
    return name


def _sign(text: str) -> str:
    return base64.b64encode(hmac.digest(base64.b64decode(_KEY), text.encode(), "sha256")).decode()
