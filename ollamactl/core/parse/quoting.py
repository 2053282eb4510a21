"""Words of systemd: how a unit file's value is cut into words, and how to write one that arrives unchanged.

The rules are those of systemd.syntax(7) and systemd.exec(5) ("Quoting"). Values are text whose bytes that are
not UTF-8 are surrogates (`surrogateescape`); the work is done on bytes, since `\\xc3\\xa9` makes one letter.
"""

from __future__ import annotations

import string
from collections.abc import Iterable

import msgspec

WHITESPACE = b" \t\n\r"
NAME_CHARS = frozenset(string.ascii_letters + string.digits + "_")
LONGEST_STRING = 131072  # MAX_ARG_STRLEN of Linux: `NAME=value` and its NUL must fit, or exec fails

_ESCAPES = {
    ord("a"): 7,
    ord("b"): 8,
    ord("f"): 12,
    ord("n"): 10,
    ord("r"): 13,
    ord("t"): 9,
    ord("v"): 11,
    ord("s"): 32,
    ord("\\"): 92,
    ord('"'): 34,
    ord("'"): 39,
}
_HEX = frozenset(b"0123456789abcdefABCDEF")
_OCTAL = frozenset(b"01234567")


class Words(msgspec.Struct, frozen=True):
    """The words of one value, in order. `error` is empty, or why the rest of the value was given up;
    the words before it stand, as systemd keeps them. `kept` lists unknown escapes that stayed as written."""

    words: tuple[str, ...]
    error: str = ""
    kept: tuple[str, ...] = ()


def encode(text: str) -> bytes:
    """Bytes of text read with surrogateescape; other lone surrogates become what systemd's own encoder
    makes."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def unescape_one(data: bytes, at: int) -> tuple[bytes, int] | None:
    """The bytes that the escape whose letter is at `data[at]` stands for, and its length; None if it is
    none."""
    letter = data[at]
    if letter in _ESCAPES:
        return bytes((_ESCAPES[letter],)), 1
    if letter in (ord("x"), ord("u"), ord("U")):
        size = {ord("x"): 2, ord("u"): 4, ord("U"): 8}[letter]
        digits = data[at + 1 : at + 1 + size]
        if len(digits) != size or not _HEX.issuperset(digits):
            return None
        code = int(digits, 16)
        if code == 0 or (size == 8 and not is_character(code)):
            return None
        made = bytes((code,)) if size == 2 else chr(code).encode("utf-8", "surrogatepass")
        return made, 1 + size
    if letter in _OCTAL:
        digits = data[at : at + 3]
        if len(digits) != 3 or not _OCTAL.issuperset(digits):
            return None
        code = int(digits, 8)
        return (bytes((code,)), 3) if 0 < code <= 255 else None
    return None


def split(value: str, *, escapes: bool = True, relaxed: bool = False) -> Words:
    """Words of a value, quotes removed.

    escapes   C escapes are resolved, in and out of quotes; without, a backslash only makes the next
              character plain.
    relaxed   an unknown escape stays as written (ExecStart=); without, it ends the reading.
    """
    data = encode(value)
    words: list[str] = []
    kept: list[str] = []
    at, size = 0, len(data)
    while True:
        while at < size and data[at] in WHITESPACE:
            at += 1
        if at >= size:
            return Words(tuple(words), "", tuple(kept))
        word = bytearray()
        quote = 0
        while at < size:
            char = data[at]
            if char == 0x5C:
                at += 1
                if at >= size:
                    if relaxed and not quote:
                        word += b"\\"
                        break
                    return Words(tuple(words), "a backslash with nothing after it", tuple(kept))
                made = unescape_one(data, at) if escapes else (data[at : at + 1], 1)
                if made is None:
                    shown = decode(b"\\" + data[at : at + 1])
                    if not relaxed:
                        return Words(tuple(words), f"{shown} is no escape that systemd knows", tuple(kept))
                    kept.append(shown)
                    made = b"\\" + data[at : at + 1], 1
                word += made[0]
                at += made[1]
                continue
            if quote:
                if char == quote:
                    quote = 0
                else:
                    word.append(char)
            elif char in (0x22, 0x27):
                quote = char
            elif char in WHITESPACE:
                break
            else:
                word.append(char)
            at += 1
        if quote:
            return Words(tuple(words), f"a {chr(quote)} that is not closed", tuple(kept))
        words.append(decode(bytes(word)))


def split_environment(value: str) -> list[str]:
    """Words of an `Environment=` value before specifiers are expanded, as systemd keeps them."""
    return list(split(value).words)


def is_character(code: int) -> bool:
    """Whether systemd takes a code point for a character: no surrogates, no noncharacters."""
    if code >= 0x110000 or 0xD800 <= code <= 0xDFFF:
        return False
    return not (0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE)


def is_utf8(text: str) -> bool:
    """Whether systemd takes the text for clean UTF-8."""
    return text.isascii() or all(is_character(ord(char)) for char in text)


def is_env_name(name: str) -> bool:
    return bool(name) and not name[0].isdigit() and NAME_CHARS.issuperset(name)


def is_assignment(text: str) -> bool:
    """Whether systemd accepts `NAME=value` as an assignment."""
    name, equals, value = text.partition("=")
    return bool(equals) and is_env_name(name) and is_utf8(value)


def quote_environment(name: str, value: str) -> str:
    """What to write after `Environment=` so that `value` arrives byte for byte.

    Every character that could be lost or misread is escaped: quotes, backslashes, `%`, and what can't be
    seen. Raises ValueError for what can't arrive, or must not: a bad name, a newline, NUL, noncharacters
    and bytes that are not UTF-8 (systemd drops the assignment), and more than Linux passes in one string.
    """
    if not is_env_name(name):
        raise ValueError(f"{name!r} is no name of a variable: letters, digits and _ only, no digit first")
    for char, what in (("\0", "a NUL byte"), ("\n", "a newline")):
        if char in value:
            raise ValueError(f"the value of {name} holds {what}")
    if not is_utf8(value):
        raise ValueError(f"the value of {name} holds what is not text in UTF-8")
    if len(name) + 1 + len(value.encode()) + 1 > LONGEST_STRING:
        raise ValueError(f"the value of {name} is longer than Linux passes to a process ({LONGEST_STRING} bytes)")
    return f'"{name}={"".join(map(_quoted, value))}"'


def _quoted(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char == "%":
        return "%%"
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def split_shown(text: str) -> list[str]:
    """Strings of a list as `systemctl show` prints it: those with special characters stand in double quotes
    (or `$'…'`), with a backslash before quotes, backslashes, `$` and backquotes, and C escapes."""
    data = encode(text)
    words: list[str] = []
    at, size = 0, len(data)
    while at < size:
        if data[at] == 0x20:
            at += 1
            continue
        word, at = _shown_word(data, at)
        words.append(decode(word))
    return words


def _shown_word(data: bytes, at: int) -> tuple[bytes, int]:
    word = bytearray()
    quote = 0
    while at < len(data):
        char = data[at]
        if char == 0x5C and at + 1 < len(data) and quote:
            made = unescape_one(data, at + 1) or (data[at + 1 : at + 2], 1)
            word += made[0]
            at += 1 + made[1]
            continue
        if quote:
            if char == quote:
                quote = 0
            else:
                word.append(char)
        elif char == 0x20:
            break
        elif char in (0x22, 0x27) and not word:
            quote = char
        elif data[at : at + 2] == b"$'" and not word:
            quote = 0x27
            at += 1
        else:
            word.append(char)
        at += 1
    return bytes(word), at


def unescape_shell(text: str) -> str:
    """A value of `systemctl show-environment`: bare, or in `$'…'`."""
    return decode(_shown_word(encode(text), 0)[0]) if text.startswith("$'") else text


def join(words: Iterable[str]) -> str:
    """Words for a unit file, each quoted where it must be. Raises ValueError for a newline or NUL."""
    made = []
    for word in words:
        if "\n" in word or "\0" in word:
            raise ValueError(f"{word!r} holds a newline or NUL")
        text = "".join(map(_quoted, word))
        made.append(text if word and text == word and not set(word) & set(" '\";") else f'"{text}"')
    return " ".join(made)
