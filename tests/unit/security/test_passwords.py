"""Dynamic passwords in the tree: Kafka's form, another secret, what was written before there was one."""

from __future__ import annotations

import pytest

from barnabas.config.loader import BrokerConfig
from barnabas.config.option import ConfigError
from barnabas.security.passwords import CannotDecrypt, PasswordEncoder, Passwords


def passwords(**secrets: str) -> Passwords:
    return Passwords(
        BrokerConfig({f"password.encoder.{name.replace('_', '.')}": text for name, text in secrets.items()})
    )


@pytest.mark.parametrize("password", ["", "x", "a b,c:d=e", "pässwörd", "\N{KEY}\N{KEY}key", "p" * 5000])
def test_there_and_back(password: str) -> None:
    encoder = PasswordEncoder("secret")
    text, again = encoder.encode(password), encoder.encode(password)
    assert text != again, "equal passwords do not look equal"
    assert encoder.decode(text) == encoder.decode(again) == password
    assert len(password) < 2 or password not in text
    assert PasswordEncoder("secret", 1024, 256).decode(text) == password, "the text says how it was made"


def test_the_form_is_kafkas() -> None:
    text = PasswordEncoder("secret").encode("pw", lambda count: bytes(count))
    fields = dict(part.split(":", 1) for part in text.split(","))
    assert fields.pop("salt") == "A" * 342 + "=="
    assert fields == {
        "keyFactoryAlgorithm": "PBKDF2WithHmacSHA512", "cipherAlgorithm": "AES/CBC/PKCS5Padding", "keyLength": "128",
        "iterations": "4096", "initializationVector": "AAAAAAAAAAAAAAAAAAAAAA==", "passwordLength": "2",
        "encryptedPassword": fields["encryptedPassword"],
    }  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-8] + "AAAAAAA=",
        lambda text: text.replace("passwordLength:8", "passwordLength:9"),
        lambda text: text.replace("AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"),
        lambda text: text.replace("SHA512", "MD5"),
        lambda text: text.replace("salt:", "salt:!"),
        lambda text: text.replace("keyLength:128", "keyLength:-8"),
        lambda text: text.partition(",")[2],
        lambda text: text.replace("iterations:4096", "iterations:1000001"),
    ],
)
def test_what_cannot_be_decrypted_is_said_and_not_shown(change: object) -> None:
    assert callable(change)
    encoder = PasswordEncoder("secret")
    with pytest.raises(CannotDecrypt) as refused:
        encoder.decode(change(encoder.encode("password")))
    assert "password" not in str(refused.value).replace("password.encoder.secret", "")
    with pytest.raises(CannotDecrypt):
        PasswordEncoder("another").decode(encoder.encode("password"))


def test_a_length_is_javas() -> None:
    """Java counts units of UTF-16; what an earlier version wrote is read too."""
    text = PasswordEncoder("secret").encode("\N{KEY}key")
    assert ",passwordLength:5," in text
    assert PasswordEncoder("secret").decode(text.replace("Length:5", "Length:4")) == "\N{KEY}key"


def test_iterations_are_as_many_as_can_be_read_again() -> None:
    with pytest.raises(ConfigError, match="1000000"):
        passwords(secret="one", iterations="1000001").encode("ssl.key.password", "hidden")
    text = PasswordEncoder("secret", 1024).encode("x").replace("iterations:1024", "iterations:2000000")
    with pytest.raises(CannotDecrypt, match="more than 1000000 iterations"):
        PasswordEncoder("secret").decode(text)


def test_what_cannot_be_decrypted_costs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text, tried = PasswordEncoder("one").encode("hidden"), []
    decode = PasswordEncoder.decode
    monkeypatch.setattr(PasswordEncoder, "decode", lambda *arguments: tried.append(1) or decode(*arguments))
    wrong = passwords(secret="two", old_secret="three")
    for _ in range(3):
        with pytest.raises(CannotDecrypt, match=r"another password\.encoder\.secret"):
            wrong.decode(text)
        assert wrong.is_fresh(text)
    assert len(tried) == 2, "once for each secret"


def test_a_secret_is_changed_in_two_steps() -> None:
    first, changing = passwords(secret="one"), passwords(secret="two", old_secret="one")
    text = first.encode("ssl.key.password", "hidden")
    assert (changing.decode(text), changing.is_fresh(text)) == ("hidden", False)
    renewed = changing.encode("ssl.key.password", "hidden")
    assert changing.is_fresh(renewed)
    assert passwords(secret="two").decode(renewed) == "hidden"
    with pytest.raises(CannotDecrypt, match=r"another password\.encoder\.secret"):
        passwords(secret="two").decode(text)
    with pytest.raises(CannotDecrypt, match=r"has no password\.encoder\.secret"):
        passwords().decode(text)


def test_what_lies_there_in_plain_text_counts_and_is_not_fresh() -> None:
    assert passwords().decode("plain") == "plain"
    assert passwords().is_fresh("plain"), "nothing can be done about it"
    assert not passwords(secret="one").is_fresh("plain")
    with pytest.raises(ConfigError, match=r"set password\.encoder\.secret"):
        passwords().encode("ssl.key.password", "hidden")
    with pytest.raises(ConfigError, match="128, 192 or 256"):
        passwords(secret="one", key_length="200").encode("ssl.key.password", "hidden")
