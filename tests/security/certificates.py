"""Certificates of tests: an authority, a broker's and a client's certificate, in every format a broker may be given."""

from __future__ import annotations

import subprocess
from pathlib import Path

from barnabas.security.authority import Authority, write_private
from tests.clients.foreign import need

PASSWORD = "store-password"


class Certificates:
    """Files in one folder: ca.pem, server-store.pem, client.pem with client-key.pem, stranger.pem, ..."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = Authority.new("Test CA")
        (folder / "ca.pem").write_bytes(self.authority.pem)
        self.issue("server", "127.0.0.1", "localhost")
        self.issue("client")
        self.issue("revoked")
        self.stranger = Authority.new("Somebody else's CA")
        (folder / "stranger-ca.pem").write_bytes(self.stranger.pem)
        self._save("stranger", *self.stranger.issue("stranger"))

    def issue(self, name: str, *hosts: str) -> None:
        self._save(name, *self.authority.issue(name, hosts))

    def _save(self, name: str, key: bytes, certificate: bytes) -> None:
        write_private(self.folder / f"{name}-key.pem", key)
        (self.folder / f"{name}.pem").write_bytes(certificate)
        write_private(self.folder / f"{name}-store.pem", key + certificate)

    def file(self, name: str) -> str:
        return str(self.folder / name)

    def pkcs12(self, name: str) -> str:
        """name.p12 made by openssl, as the books do."""
        path = self.file(f"{name}.p12")
        run(need("openssl"), "pkcs12", "-export", "-in", self.file(f"{name}.pem"), "-inkey",
            self.file(f"{name}-key.pem"), "-name", name, "-out", path, "-passout", f"pass:{PASSWORD}")  # fmt: skip
        return path

    def keytool_trust(self, kind: str) -> str:
        """A truststore with the authority's certificate, made by keytool."""
        path = self.file(f"trust.{kind.lower()}")
        run(need("keytool"), "-importcert", "-noprompt", "-alias", "ca", "-file", self.file("ca.pem"), "-keystore", path,
            "-storetype", kind, "-storepass", PASSWORD)  # fmt: skip
        return path

    def keytool_keys(self, name: str, kind: str) -> str:
        """A keystore that keytool made of the PKCS12 one."""
        source, path = self.pkcs12(name), self.file(f"{name}.{kind.lower()}")
        run(need("keytool"), "-importkeystore", "-noprompt", "-srckeystore", source, "-srcstorepass", PASSWORD,
            "-destkeystore", path, "-deststoretype", kind, "-deststorepass", PASSWORD, "-destkeypass", PASSWORD,
            "-alias", name)  # fmt: skip
        return path


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
