"""Certificates whose names are longer or shorter than the standard says are read without a warning of Python's."""

from __future__ import annotations

import datetime as dt
import warnings

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from barnabas.security.names import subject_of


def test_a_country_of_three_letters_is_read_silently():
    key = ec.generate_private_key(ec.SECP256R1())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        name = x509.Name([x509.NameAttribute(x509.NameOID.COUNTRY_NAME, "USA", _validate=False)])
    begin = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = (
        builder.serial_number(1).not_valid_before(begin).not_valid_after(begin + dt.timedelta(days=9000))
    )
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert subject_of(certificate) == "C=USA"
