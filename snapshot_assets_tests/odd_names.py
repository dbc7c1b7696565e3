"""Names of schemas, tables and columns that YAML, shells, terminals or patterns read as something else."""

from __future__ import annotations

from hypothesis import strategies as st

_SPACED = "my table| a|a |a\tb|a\nb|a b=c|a: b|a #b"
_VISIBLE = """a.b a,b a=b a"b it's a`b a\\b a:b #a {a} [a] ${HOME} $${a $HOME $(a) !a &a * a* a? %a @a | > ~
-a --a null NULL true yes 1 1e3 0x1 2024-01-01 << = : A größe 用户 U&"a" """
_ESCAPED = "t\u0430ble a\u200bb \u202eb a\x1b[31mb cafe\u0301 caf\u00e9 \U0001f600 a\x7f a\ufeffb \ufb01 \u3164"
ODD = (*_SPACED.split("|"), "a\u00a0b", "a\x85b", "\u2028", *_VISIBLE.split(), *_ESCAPED.split())
_CHARACTERS = st.characters(exclude_characters="\x00", exclude_categories=["Cs"])
names = st.one_of(
    st.sampled_from(ODD),
    st.text("ab.\"'`\\ ,:=#{}[]$*?-&!%@|>~\n\t\u0430\u200bé", min_size=1, max_size=6),
    st.text(_CHARACTERS, min_size=1, max_size=6),
)
"""Any name that a database has: not empty, without NUL and without half a surrogate pair."""
