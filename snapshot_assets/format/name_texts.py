r"""Writes names of tables and columns as a person reads them, and as YAML and a shell take them back. Pure.

A part of a name that holds a dot, a quotation mark, white space or what an option gives a meaning is quoted as in SQL:
`"a.b"."c"`. Where people read a name, a character that they would not see, or take for another one, is written as in
SQL too: `U&"\0430b"`.
"""

from __future__ import annotations

import re
import shlex
import unicodedata

_QUOTED = re.compile(r'\A-|[\s.",=*?]|\A\Z')
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Characters that count as printable, and show nothing."""
_WORD = re.compile(r"[A-Za-z\x80-\U0010ffff]+")
_LIKE_ASCII = frozenset("\u2010\u2012\u2013\u2014\u2212\u2018\u2019\u201a\u201c\u201d\u2044\u2215\u2216\u2217\u2236")
_NEAR_LATIN = ("ARMENIAN", "CHEROKEE", "COPTIC", "CYRILLIC", "GREEK", "LISU")
"""Scripts with letters that look like Latin ones."""
_LIKE_LATIN = frozenset(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u04bb\u051b\u051d\u04cf\u0410\u0412\u0415\u041a\u041c"
    "\u041d\u041e\u0420\u0421\u0422\u0423\u0425\u0406\u0408\u0405\u03bf\u03b1\u03bd\u03b9\u03ba\u03c1\u03c4\u03c5\u03c7\u0391"
    "\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u0585\u057d\u0578"
)
"""Letters of these scripts that make a word which a reader takes for a Latin one."""
_YAML_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*")
_YAML_WORDS = frozenset(("null", "true", "false"))


def written_name(*parts: str) -> str:
    """Return a name as plans and options take it: no part of it is a pattern, and it looks like no option."""
    return ".".join(map(_quote, parts))


def printed_name(*parts: str) -> str:
    """Return a name for people: as `written_name` does, but two different names never look alike."""
    return ".".join(map(_print, parts))


def yaml_key(text: str) -> str:
    """Return a text as a key, or another scalar in which `${` names no variable, of a plan's YAML."""
    if _YAML_PLAIN.fullmatch(text) and text.lower() not in _YAML_WORDS:
        return text
    if set('"\\') & set(text) and "`" not in text and not any(map(_is_unseen, text)):
        return "'" + text.replace("'", "''") + "'"
    return '"' + "".join(map(_in_yaml, text)) + '"'


def yaml_value(text: str) -> str:
    """Return a text as a value of a plan's YAML."""
    return yaml_key(text.replace("${", "$${"))


def shell_word(text: str) -> str:
    """Return a text as one word of a shell; `$'…'`, of bash, zsh and POSIX 2024, where a character is not seen."""
    if not any(map(_is_unseen, text)):
        return shlex.quote(text)
    return "$'" + "".join(map(_in_shell, text)) + "'"


def quoted_name(name: str) -> str:
    """Return one name between quotes, as `repr` does, for people: two different names never look alike."""
    unclear = _unclear_characters(name)
    return repr(name).translate({ord(each): _escape(each) for each in unclear})


def _quote(part: str) -> str:
    return '"' + part.replace('"', '""') + '"' if _QUOTED.search(part) else part


def _print(part: str) -> str:
    unclear = _unclear_characters(part)
    if not unclear:
        return _quote(part)
    codes = {code: f"\\{code:04X}" if code <= 0xFFFF else f"\\+{code:06X}" for code in map(ord, unclear)}
    return 'U&"' + part.replace("\\", "\\\\").replace('"', '""').translate(codes) + '"'


def _unclear_characters(part: str) -> set[str]:
    """Return the characters of a name that a reader does not see, or takes for others."""
    if part.isascii() and part.isprintable():
        return set()
    unclear = {
        each for each in part if _is_unseen(each) or each in _LIKE_ASCII or unicodedata.normalize("NFKC", each) != each
    }
    return unclear.union(*map(_deceptive, _WORD.findall(part)))


def _is_unseen(character: str) -> bool:
    return not character.isprintable() or _BLANK.match(character) is not None


def _deceptive(word: str) -> set[str]:
    """Return the characters of a word that make it look like another: loose accents, and letters like Latin ones."""
    if unicodedata.normalize("NFC", word) != word:
        return {each for each in word if not each.isascii()}
    near = {each for each in word if unicodedata.name(each, "").startswith(_NEAR_LATIN)}
    mixed = any(unicodedata.name(each, "").startswith("LATIN") for each in word)
    return near if mixed or near <= _LIKE_LATIN else set()


def _in_yaml(character: str) -> str:
    """Return a character of a quoted scalar; a backtick, too, is escaped, because messages put YAML between them."""
    if character in '"\\':
        return f"\\{character}"
    if not _is_unseen(character) and character != "`":
        return character
    return f"\\x{ord(character):02x}" if character <= "\xff" else _escape(character)


def _escape(character: str) -> str:
    """Return a character as Python, YAML and JSON write it with digits."""
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _in_shell(character: str) -> str:
    if _is_unseen(character):
        return "".join(f"\\{byte:03o}" for byte in character.encode())
    return f"\\{character}" if character in "'\\" else character
