"""Grok-like patterns: `%{NAME:field}` matches the pattern NAME, and the matched text becomes a field.

The patterns have the names that log tools share. `%{NAME}` makes no field. Everything else is a regular expression.
"""

from __future__ import annotations

import re
from typing import Final

from barnabas.pipelines.plan.errors import suggestion
from barnabas.pipelines.plan.patterns import PatternError

_USE: Final = re.compile(r"%\{([A-Z0-9_]+)(?::([A-Za-z_][A-Za-z0-9_]*))?\}")
DEPTH_MAX: Final = 10

GROK: Final[dict[str, str]] = {
    "WORD": r"\b\w+\b",
    "NOTSPACE": r"\S+",
    "SPACE": r"\s*",
    "DATA": r".*?",
    "GREEDYDATA": r".*",
    "INT": r"[+-]?\d+",
    "POSINT": r"\b[1-9]\d*\b",
    "NONNEGINT": r"\b\d+\b",
    "NUMBER": r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)",
    "BASE16NUM": r"(?:0[xX])?[0-9A-Fa-f]+",
    "BOOL": r"(?:true|false|TRUE|FALSE|True|False)",
    "QUOTEDSTRING": r'"(?:[^"\\]|\\.)*+"' + r"|'(?:[^'\\]|\\.)*+'",
    "QS": r"(?:%{QUOTEDSTRING})",
    "UUID": r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}",
    "MAC": r"(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}",
    "IPV4": r"(?<![0-9])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![0-9])",
    "IPV6": r"(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}|(?:[0-9A-Fa-f]{1,4}:)*:(?:[0-9A-Fa-f]{1,4}:?)*",
    "IP": r"(?:%{IPV4}|%{IPV6})",
    "HOSTNAME": r"\b[0-9A-Za-z](?:[0-9A-Za-z-]{0,62})(?:\.[0-9A-Za-z][0-9A-Za-z-]{0,62})*\.?",
    "IPORHOST": r"(?:%{IP}|%{HOSTNAME})",
    "HOSTPORT": r"%{IPORHOST}:%{POSINT}",
    "USER": r"[a-zA-Z0-9._@-]+",
    "USERNAME": r"[a-zA-Z0-9._-]+",
    "EMAIL": r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~.-]+@%{HOSTNAME}",
    "PATH": r"(?:/[\w.,:;@%+~=!$&'()*-]*)+",
    "URIPATH": r"(?:/[\w.,:;@%+~=!$&'()*#-]*)+",
    "URIPARAM": r"\?[^\s]*",
    "URIPATHPARAM": r"%{URIPATH}(?:%{URIPARAM})?",
    "URI": r"[A-Za-z][A-Za-z0-9+.-]*://[^\s]+",
    "YEAR": r"\d{4}",
    "MONTHNUM": r"(?:0?[1-9]|1[0-2])",
    "MONTHDAY": r"(?:0[1-9]|[12]\d|3[01]|[1-9])",
    "MONTH": r"\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\b",
    "DAY": r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*\b",
    "HOUR": r"(?:2[0-3]|[01]?\d)",
    "MINUTE": r"[0-5]\d",
    "SECOND": r"(?:[0-5]?\d|60)(?:[.,]\d+)?",
    "TIME": r"%{HOUR}:%{MINUTE}(?::%{SECOND})?",
    "TZ": r"(?:[A-Z]{3,4}|Z|[+-]\d\d:?\d\d)",
    "HTTPDATE": r"%{MONTHDAY}/%{MONTH}/%{YEAR}:%{TIME} [+-]\d{4}",
    "SYSLOGTIMESTAMP": r"%{MONTH} +%{MONTHDAY} %{TIME}",
    "TIMESTAMP_ISO8601": r"%{YEAR}-%{MONTHNUM}-%{MONTHDAY}[T ]%{HOUR}:?%{MINUTE}(?::?%{SECOND})?(?:Z|[+-]\d\d:?\d\d)?",
    "LOGLEVEL": r"(?i:trace|debug|info|notice|warn(?:ing)?|err(?:or)?|crit(?:ical)?|alert|fatal|severe|emerg(?:ency)?)",
    "PROG": r"[\w./%-]+",
    "COMMONAPACHELOG": (
        r'%{IPORHOST:clientip} %{NOTSPACE:ident} %{NOTSPACE:auth} \[%{HTTPDATE:timestamp}\] "%{WORD:verb} '
        r'%{NOTSPACE:request}(?: HTTP/%{NUMBER:httpversion})?" %{INT:response} (?:%{INT:bytes}|-)'
    ),
    "COMBINEDAPACHELOG": r"%{COMMONAPACHELOG} %{QS:referrer} %{QS:agent}",
}


def expand(text: str, depth: int = 0) -> str:
    """A regular expression with `(?<field>...)` groups. Raises PatternError for an unknown name."""
    if depth > DEPTH_MAX:
        raise PatternError("refers to itself")

    def replace(use: re.Match[str]) -> str:
        name, field = use[1], use[2]
        if name not in GROK:
            raise PatternError(f"has no pattern called {name!r}; {suggestion(name, GROK)}")
        inner = expand(GROK[name], depth + 1)
        return f"(?<{field}>{inner})" if field else f"(?:{inner})"

    return _USE.sub(replace, text)
