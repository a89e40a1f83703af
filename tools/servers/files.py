"""Write what servers and clients read: folders are made, secrets are for their owner only."""

from __future__ import annotations

from pathlib import Path

from kube_sync.certificates import KeyPair

LOOPBACK = ("127.0.0.1", "localhost", "::1")  # the hosts that a server's certificate names


def write_pair(folder: Path, stem: str, pair: KeyPair) -> None:
    """Write a certificate and its key, the key for its owner only."""
    write_file(folder / f"{stem}.crt", pair.cert_pem)
    write_private(folder / f"{stem}.key", pair.key_pem.decode())


def write_private(path: Path, text: str) -> Path:
    """Write a file that its owner alone can read, from its first byte on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
    return path


def write_file(path: Path, content: bytes) -> Path:
    """Write a file and the folders that lead to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
