"""Who signs tokens in tests."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa


class Issuer:
    """Signs tokens, and writes the file with its public keys."""

    def __init__(self, folder: Path) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.curve = ec.generate_private_key(ec.SECP256R1())
        self.file = folder / "jwks.json"
        rows = []
        for kid, algorithm, key in (
            ("rsa", jwt.algorithms.RSAAlgorithm, self.key),
            ("ec", jwt.algorithms.ECAlgorithm, self.curve),
        ):
            rows.append({**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig"})
        self.file.write_text(json.dumps({"keys": rows}))

    def token(
        self, user: str = "alice", *, kid: str = "rsa", key: Any = None, alg: str = "", **claims: Any
    ) -> str:
        alg = alg or ("RS256" if kid == "rsa" else "ES256")
        key = key or (self.key if kid == "rsa" else self.curve)
        values = {"sub": user, "iss": "tests", "aud": "kafka", "exp": time.time() + 3600, **claims}
        values = {name: value for name, value in values.items() if value is not None}
        return jwt.encode(values, key, algorithm=alg, headers={"kid": kid})
