"""Removes credentials from text of foreign origin before it reaches storage, a log, a Dagster tag or an event.

Drivers and stores put whole connection strings into their errors. The scrubber removes known secrets and everything
that looks like a credential; in doubt it removes too much.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import parse_qs, quote, quote_plus, unquote, urlsplit

MASK = "***"
_SHORTEST = 4
"""Least length of a known secret that is looked for."""

_NAMES = (
    r"passw(?:or)?d|passphrase|\bpass(?=\s*=)|pwd|secret|token|credentials?|signature|\bsig(?=\s*=)"
    r"|(?:access|account|api|private|shared)[_.\-]?key|authorization"
)
_ASSIGNED = rf"(?:{_NAMES})[\w.\-]{{0,40}}[\"']?"
_QUOTED = r"'(?:[^'\\]|\\.|'')*(?:'|\\?\Z)" + r'|"(?:[^"\\]|\\.|"")*(?:"|\\?\Z)'
_MASKED = r"\*\*\*(?=[\s,;)\]}]|\Z)"  # scrubbing twice changes nothing
_VALUE = rf"(?:(?:Bearer|Basic)\s{{1,8}})?(?:{_MASKED}|(?:{_QUOTED})[^\s,;)\]}}]*|(?:\\\s|\S)+)"
_NO_VALUE = (
    r"(?!refers to the environment variable )"  # a mistake in a configuration, behind the name of its field
    r"(?!(?:text|null|\.\.\.|<[a-z ]{1,20}>)(?:[\s.,;)}`]|\Z))"  # what a message says to write for a column `token`
)
_QUERY_VALUE = r"(?![\"'])[^&#\s\"<>]*"

# Repetitions are bounded, so a malicious text takes at most linear time.
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    # scheme://user:pass@word@host: with a colon, everything up to the last @, because users forget to encode / and @.
    (
        re.compile(
            r"([a-z][a-z0-9+.\-]{0,30}://)(?:[^\s/?#\"<>:@]{0,128}:[^\s\"<>]{0,512}|[^\s/?#\"<>]{0,512})@",
            re.IGNORECASE,
        ),
        rf"\1{MASK}@",
    ),
    # A value in a query string ends at the next parameter; any other value ends at its quote or at white space.
    (
        re.compile(
            rf"([?&][\w.\-]{{0,40}}?{_ASSIGNED}=)(?:{_QUERY_VALUE})|({_ASSIGNED}\s{{0,8}}[=:]\s{{0,8}}){_NO_VALUE}(?:{_VALUE})",
            re.IGNORECASE | re.DOTALL,
        ),
        rf"\1\2{MASK}",
    ),
    (re.compile(r"\b(Bearer|Basic)\s{1,8}[A-Za-z0-9+/=._~\-]{8,}", re.IGNORECASE), rf"\1 {MASK}"),
    (re.compile(r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"), MASK),
    (re.compile(r"\beyJ[A-Za-z0-9_\-]{8,512}\.[A-Za-z0-9_\-]{1,4096}\.[A-Za-z0-9_\-]*"), MASK),
    (
        re.compile(
            r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)", re.DOTALL
        ),
        MASK,
    ),
)


def secrets_of(uri: str) -> tuple[str, ...]:
    """Return the passwords in a URI, as written and decoded, longest first.

    If a password contains an unencoded `/`, `?`, `#`, `@` or `:`, drivers such as libpq split it there and quote the
    pieces in their errors. The pieces are returned too.
    """
    password = uri.partition("://")[2].rpartition("@")[0].partition(":")[2]
    secrets = {password, *re.split(r"[/?#@:]", password)}
    with suppress(ValueError):
        options = parse_qs(urlsplit(uri).query)
        secrets.update(value for name in ("password", "sslpassword") for value in options.get(name, ()))
    secrets |= {unquote(value) for value in secrets}
    return tuple(sorted(filter(None, secrets), key=len, reverse=True))


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a text with `***` in place of its credentials, and of known secrets, plain and percent-encoded.

    Credentials are user and password of URIs, values assigned to names such as `password` or `sig`, tokens and keys of
    known formats. Known secrets of fewer than 4 characters stay: they are parts of other words, and every `***` in a
    word would show them.
    """
    long = (secret for secret in secrets if len(secret) >= _SHORTEST)
    forms = {form for secret in long for form in (secret, quote(secret, safe=""), quote_plus(secret))}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, MASK)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text
