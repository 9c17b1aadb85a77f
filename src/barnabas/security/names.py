"""The principal that a client certificate stands for: its subject, shortened by ssl.principal.mapping.rules.

Source: Kafka's SslPrincipalMapper and DefaultKafkaPrincipalBuilder; Java's X500Principal.getName() (RFC 2253).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.config.option import refused
from barnabas.security.replacing import python_replacement

if TYPE_CHECKING:
    from cryptography import x509

RULES: Final = "ssl.principal.mapping.rules"
DEFAULT: Final = "DEFAULT"
RULE: Final = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
# The attribute types that RFC 2253 names; all others are written as numbers.
NAMES: Final = {
    "2.5.4.3": "CN", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.10": "O", "2.5.4.11": "OU", "2.5.4.6": "C",
    "2.5.4.9": "STREET", "0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID",
}  # fmt: skip
SPECIAL: Final = frozenset(',+"\\<>;')


class Rule(NamedTuple):
    """One rule. pattern: None for DEFAULT, which leaves every subject as it is."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str


def parse_rules(text: str) -> tuple[Rule, ...]:
    """The rules of the option: `RULE:pattern/replacement/[LU]` and DEFAULT, separated by commas. Raises ConfigError."""
    rules: list[Rule] = []
    at, text = 0, text.strip()
    while at < len(text):
        if text.startswith(DEFAULT, at):
            rules.append(Rule(None, "", ""))
            at += len(DEFAULT)
        else:
            match = RULE.match(text, at)
            if match is None:
                raise refused(
                    RULES, text, f"{text[at:]!r} does not begin with a rule; write RULE:pattern/replacement/"
                )
            pattern = match.group(1).replace("\\/", "/")
            try:
                compiled = re.compile(pattern)
            except re.error as error:
                raise refused(RULES, text, f"{pattern!r} is not a regular expression: {error}") from None
            rules.append(Rule(compiled, _replacement(text, compiled, match.group(2)), match.group(3)))
            at = match.end()
        rest = text[at:].lstrip()
        if rest and not rest.startswith(","):
            raise refused(RULES, text, f"there must be a comma before {rest!r}")
        at = len(text) - len(rest[1:].lstrip()) if rest else len(text)
    return tuple(rules) or (Rule(None, "", ""),)


def _replacement(rules: str, pattern: re.Pattern[str], text: str) -> str:
    try:
        return python_replacement(text, pattern.groups, keep_missing=pattern.groups > 0)
    except ValueError as error:
        raise refused(RULES, rules, str(error)) from None


def map_subject(rules: tuple[Rule, ...], subject: str) -> str | None:
    """The user name to which the rules map a subject; None if no rule applies to it."""
    for rule in rules:
        if rule.pattern is None:
            return subject
        if rule.pattern.fullmatch(subject) is not None:
            name = rule.pattern.sub(
                rule.replacement, subject
            )  # as Kafka does, also where the pattern matches twice
            return name.lower() if rule.case == "L" else name.upper() if rule.case == "U" else name
    return None


def subject_of(certificate: bytes) -> str:
    """The subject of a DER certificate as Java writes it: CN=a,OU=b,C=c, the most specific part first."""
    from cryptography import x509

    name = subject_name(x509.load_der_x509_certificate(certificate))
    return ",".join("+".join(_attribute(part) for part in rdn) for rdn in reversed(list(name.rdns)))


def subject_name(certificate: x509.Certificate) -> x509.Name:
    """A certificate's subject. The library warns about names that are not as long as the standard says, like a country of
    three letters; they are the peer's or its authority's affair, and Java takes them silently."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return certificate.subject


def _attribute(attribute: Any) -> str:
    oid = attribute.oid.dotted_string
    if oid in NAMES:
        return f"{NAMES[oid]}={_escaped(attribute.value)}"
    return f"{oid}=#{_value_der(attribute).hex()}"


def _escaped(value: str) -> str:
    """An attribute's value, escaped as in RFC 2253, section 2.4."""
    escaped = "".join(f"\\{char}" if char in SPECIAL else char for char in value)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    return escaped[:-1] + "\\ " if escaped.endswith(" ") and len(value) > 1 else escaped


def _value_der(attribute: Any) -> bytes:
    """The value in DER, cut out of a name with this attribute only: SEQUENCE { SET { SEQUENCE { type, value } } }."""
    from cryptography import x509

    data = x509.Name([attribute]).public_bytes()
    for _ in range(3):
        data = next(_elements(data))[1]
    kept = list(_elements(data))
    return kept[1][0]


def _elements(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(whole element, its contents) of a sequence of DER elements."""
    at = 0
    while at < len(data):
        length, begin = data[at + 1], at + 2
        if length & 0x80:
            count = length & 0x7F
            length, begin = int.from_bytes(data[begin : begin + count], "big"), begin + count
        yield data[at : begin + length], data[begin : begin + length]
        at = begin + length
