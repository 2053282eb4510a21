"""Takes out of texts what identifies people and machines, and what opens doors: the same thing always becomes the
same placeholder, of the same shape, so that parsers go on reading.

    alice → user1 (also in /home/alice)   gpubox → host1      192.168.1.7 → 198.18.0.1    fd00::7 → 2001:db8::1
    de:ad:be:ef:00:01 → 02:00:00:00:00:01   a@b.org → mail1@example.com   keys, passwords → secret1
    prompts and answers → <12 characters removed>

Loopback and unspecified addresses, the names that a distribution gives everybody (root, ollama, ubuntu, localhost)
and public model registries stay. First `learn` every text, then `text` or `body` each: a name seen in one place is
taken out of all. Redacting twice changes nothing.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from ollamactl.core import documents, redact_lines
from ollamactl.core import redact_patterns as patterns
from ollamactl.core import redact_words as words


class Redactor:
    """`users` and `hosts` are names known beforehand. `taken` counts what was taken out, by kind."""

    def __init__(self, users: Iterable[str] = (), hosts: Iterable[str] = ()) -> None:
        self.taken: Counter[str] = Counter()
        self._known: dict[str, dict[str, str]] = {kind: {} for kind in patterns.KINDS}
        self._words: tuple[re.Pattern[str], list[str]] | None = None  # what is known, to be replaced everywhere
        self._seen: set[str] = set()
        self._done: dict[str, tuple[str, Counter[str]]] = {}
        self._NAMES: dict[str, Callable[[re.Match[str]], str]] = {
            "secret": self._keyed,
            "user": lambda m: self._replace("user", m["value"]),
            "host": self._host,
        }
        for name in users:
            self._learn("user", name)
        for name in hosts:
            self._learn_host(name)

    # -- learning --

    def learn(self, body: bytes) -> None:
        """Notes names and secrets of a text, so that they are taken out of every other text too."""
        for part in documents.parts(body):
            if isinstance(part, str):
                self._learn_text(part)
            else:
                documents.walk(part[0], self._learn_member, self._learn_text)

    def _learn_text(self, text: str) -> str:
        if text in self._seen or text.isdigit():
            return text
        self._seen.add(text)
        lines, places = redact_lines.cut(text)
        for kind, pattern, cue in patterns.NAMED if places else ():
            for at in places.get(cue, ()):
                for match in pattern.finditer(lines[at]):
                    self._learn_match(kind, match)
        for at in places.get("token", ()):
            for match in patterns.TOKENS.finditer(lines[at]):
                self._learn("secret", match[0])
        return text

    def _learn_match(self, kind: str, match: re.Match[str]) -> None:
        if kind == "secret":
            self._learn_secret(match["value"], match["head"])
        elif kind == "host":
            self._learn_host(match["value"])
        else:
            self._learn(kind, match["value"])

    def _learn_member(self, owner: dict[str, Any], key: str, value: Any) -> Any:
        if isinstance(value, str):
            if key in patterns.HOST_KEYS:
                self._learn_host(value)
            elif key == "user" and words.person(owner.get("uid")):
                self._learn("user", value)
            elif words.sensitive(key):
                self._learn_secret(value, key)
        elif isinstance(value, list):
            for secret in words.after_options(value):
                self._learn_secret(value[secret], "")
        return value

    def _learn_secret(self, value: str, head: str) -> None:
        value = value.strip().strip("\"'\\")
        if value and not words.harmless(head, value):
            self._learn("secret", value)
            _, _, password = value.partition(":")
            if password and re.search(r"(?i)(?://|_proxy[=:][\"']?)$", head):  # of a URL's user:password
                self._learn("secret", password)

    def _learn_host(self, name: str) -> None:
        if name.replace(".", "").isdigit() or patterns.PUBLIC_HOSTS.fullmatch(name):
            return
        self._learn("host", name)
        short = name.partition(".")[0]
        if short != name:
            self._learn("host", short)

    def _learn(self, kind: str, name: str) -> str:
        """The placeholder of a name; the name itself where it stays."""
        if kind in ("user", "host") and (
            name.lower() in patterns.GENERIC or name.startswith("systemd-") or name.isdigit()
        ):
            return name
        if not name or patterns.PLACEHOLDER.fullmatch(name):
            return name
        known = self._known[kind]
        if name not in known:
            known[name] = f"{kind}{len(known) + 1}"
            self._words = None
        return known[name]

    # -- redacting --

    def body(self, body: bytes) -> bytes:
        """A text, a JSON document or lines of JSON, redacted; what was JSON is JSON after."""
        done = [part if isinstance(part, str) else self._document(*part) for part in documents.parts(body, self.text)]
        return documents.encoded("\n".join(done))

    def _document(self, parsed: Any, text: str) -> str:
        done = documents.walk(parsed, self._member, self.text)
        if done == parsed:
            return text
        dumped = _DUMP.encode(done)
        try:
            documents.encoded(dumped)
        except UnicodeEncodeError:  # half a surrogate pair, as JSON may hold it, can only be written as its escape
            return json.dumps(done, separators=(",", ":"))
        return dumped

    def _member(self, owner: dict[str, Any], key: str, value: Any) -> Any:
        if isinstance(value, str):
            if key in patterns.HOST_KEYS:
                return self._replace("host", value)
            if key in patterns.MACHINE_KEYS:
                return self._machine(value)
            if key == "user" and words.person(owner.get("uid")):
                return self._replace("user", value)
            if words.sensitive(key) and not words.harmless(key, value):
                return self._replace("secret", value)
            if key in patterns.TALK_KEYS:
                return self._removed(value)
        if isinstance(value, list) and value:
            if key == "MESSAGE" and all(isinstance(b, int) and 0 <= b < 256 for b in value):
                # journalctl's form of a message that is not UTF-8
                return list(documents.encoded(self.text(documents.decoded(bytes(value)))))
            if hidden := words.after_options(value):
                return [
                    self._replace("secret", each) if at in hidden else documents.walk(each, self._member, self.text)
                    for at, each in enumerate(value)
                ]
        return value

    def text(self, text: str) -> str:
        """A text, redacted."""
        if not text or text.isdigit():
            return text
        if self._words is None:
            self._remember()
        if len(text) > 2000:
            return self._redacted(text)
        if text not in self._done:  # lines of a journal repeat most of their fields
            in_all, self.taken = self.taken, Counter()
            self._done[text] = self._redacted(text), self.taken
            self.taken = in_all
        done, counts = self._done[text]
        if counts:
            self.taken += counts
        return done

    def _redacted(self, text: str) -> str:
        """Each pattern over all lines that it can match in, so that placeholders are numbered as they were learned."""
        lines, places = redact_lines.cut(text)
        for at in places.get("level", ()):
            lines[at] = "\n".join(self._said(line) for line in lines[at].split("\n"))
        for at in places.get("talk", ()):
            lines[at] = patterns.ENGINE_SAID.sub(self._group(lambda m: self._removed(m["value"])), lines[at])
        for kind, pattern, cue in patterns.NAMED if places else ():
            for at in places.get(cue, ()):
                lines[at] = pattern.sub(self._group(self._NAMES[kind]), lines[at])
        for at in places.get("token", ()):
            lines[at] = patterns.TOKENS.sub(lambda m: self._replace("secret", m[0]), lines[at])
        return "\n".join(self._addressed(self._without_words(lines)))

    def _without_words(self, lines: list[str]) -> list[str]:
        """The lines without what is known by now, wherever it stands."""
        pattern, names = self._words or self._remember()  # a pattern may just have found another name
        if any("\n" in name for name in names):
            lines = ["\n".join(lines)]
        return [
            pattern.sub(lambda m: self._word(m[0]), line) if any(name in line for name in names) else line
            for line in lines
        ]

    def _addressed(self, lines: list[str]) -> list[str]:
        lines = [patterns.MAIL.sub(lambda m: self._mail(m[0]), one) if "@" in one else one for one in lines]
        lines = [patterns.URL_HOST.sub(self._group(self._host), one) if "://" in one else one for one in lines]
        lines = [patterns.IPV4.sub(lambda m: self._ip(m[0]), one) if one.count(".") >= 3 else one for one in lines]
        lines = [patterns.MAC.sub(lambda m: self._mac(m[0]), one) if one.count(":") >= 5 else one for one in lines]
        return [
            patterns.IPV6.sub(lambda m: self._ip(m[0]), one) if "::" in one or one.count(":") >= 7 else one
            for one in lines
        ]

    @staticmethod
    def _group(change: Callable[[re.Match[str]], str]) -> Callable[[re.Match[str]], str]:
        return lambda match: match["head"] + change(match)

    def _said(self, line: str) -> str:
        if not patterns.SAID_LINE.search(line):
            return line
        return patterns.SAID.sub(self._group(self._spoken), line)

    def _spoken(self, match: re.Match[str]) -> str:
        value = match["value"]
        if not value.startswith('"'):
            return value if re.fullmatch(r"[\d.]+\w{0,2}|true|false", value) else self._removed(value)
        return f'"{self._removed(value[1:-1])}"'

    def _keyed(self, match: re.Match[str]) -> str:
        value = match["value"]
        bare = value.strip().strip("\"'\\")
        if not bare or words.harmless(match["head"], bare):
            return value
        start = value.find(bare)
        return value[:start] + self._replace("secret", bare) + value[start + len(bare) :]

    def _host(self, match: re.Match[str]) -> str:
        name = match["value"]
        dotted = name.replace(".", "")
        if patterns.PUBLIC_HOSTS.fullmatch(name) or dotted.isdigit() or ("://" in match["head"] and "." not in name):
            return self._known["host"].get(name, name) if not dotted.isdigit() else name
        return self._replace("host", name)

    def _remember(self) -> tuple[re.Pattern[str], list[str]]:
        names = [name for kind in _WORD_KINDS for name in self._known[kind] if words.safe(kind, name)]
        joined = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        # A name within a longer word stays, but not next to - or _, which names are joined by.
        self._words = re.compile(rf"(?<![A-Za-z0-9])(?:{joined})(?![A-Za-z0-9])"), names
        self._done.clear()
        return self._words

    def _word(self, name: str) -> str:
        for kind in _WORD_KINDS:
            if name in self._known[kind]:
                return self._replace(kind, name)
        return name

    def _replace(self, kind: str, name: str) -> str:
        placeholder = self._learn(kind, name)
        self.taken[kind] += placeholder != name
        return placeholder

    def _removed(self, said: str) -> str:
        if not said or patterns.REMOVED.fullmatch(said):
            return said
        self.taken["prompt"] += 1
        return f"<{len(said)} characters removed>"

    def _machine(self, value: str) -> str:
        known = self._known["machine id"]
        if value in known.values():
            return value
        placeholder = known.setdefault(value, f"{len(known) + 1:032x}")
        self.taken["machine id"] += 1
        return placeholder

    def _mail(self, address: str) -> str:
        local, _, domain = address.partition("@")
        if patterns.PLACEHOLDER.fullmatch(address):
            return address
        if patterns.PLACEHOLDER.fullmatch(local):  # what was a proxy's password@host
            return f"{local}@{self._replace('host', domain)}"
        known = self._known["mail address"]
        self.taken["mail address"] += 1
        return known.setdefault(address, f"mail{len(known) + 1}@example.com")

    def _mac(self, address: str) -> str:
        plain = address.lower()
        if plain in ("00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff") or plain.startswith("02:00:00:00:"):
            return address
        known = self._known["mac address"]
        self.taken["mac address"] += 1
        number = known.setdefault(plain, str(len(known) + 1))
        return "02:00:00:00:{:02x}:{:02x}".format(*divmod(int(number), 256))

    def _ip(self, written: str) -> str:
        try:
            address = ipaddress.ip_address(written)
        except ValueError:
            return written
        if address.is_loopback or address.is_unspecified or address in patterns.DOC6 or address in patterns.BENCH4:
            return written
        if address.version == 4 and written in ("255.255.255.255", "255.255.255.0", "255.0.0.0", "255.255.0.0"):
            return written
        known = self._known["ip address"]
        self.taken["ip address"] += 1
        number = int(known.setdefault(str(address), str(len(known) + 1)))
        return str(patterns.BENCH4[number] if address.version == 4 else patterns.DOC6[number])


_DUMP = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_WORD_KINDS = ("secret", "host", "user")
