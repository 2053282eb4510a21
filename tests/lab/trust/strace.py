"""What a process did to files and to systemd, by strace: the calls at which it may be killed, and what a power loss
at each of them may leave on the disk."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

ROOTS = ("/var/lib/ollamactl", "/etc/systemd/system", "/etc/ollamactl")
PARENTS = tuple(root.rsplit("/", 1)[0] for root in ROOTS)
FILES = (
    "openat", "write", "pwrite64", "rename", "renameat", "renameat2", "fsync", "fdatasync", "unlink", "unlinkat",
    "mkdir", "mkdirat", "rmdir", "symlink", "symlinkat", "fchmod", "fchown", "lchown", "chmod", "ftruncate",
    "fsetxattr",
)  # fmt: skip
SYNCS = ("fsync", "fdatasync")
CALLS = (*FILES, "sendmsg")
CHANGING = ("Reload", "ResetFailed", "RestartUnit", "StartUnit", "StopUnit")  # methods of systemd's manager
_LINE = re.compile(r"^(\w+)\((.*)\)\s+= (-?\d+|\?)(.*)$", re.S)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "v": "\v", "f": "\f", '"': '"', "\\": "\\"}


@dataclass(frozen=True)
class Call:
    """One system call. `number`: the how-manyeth call of its name in the process, of an open: of those at `via`."""

    name: str
    number: int
    arguments: str
    result: int | None  # None: the process was killed in it
    path: str  # of the first descriptor or path, absolute
    other: str = ""  # the second one, of a rename or link
    data: bytes = b""
    via: str = ""  # of an open: the folder's descriptor, or the path itself where there is none; `strace -P` takes it

    @property
    def text(self) -> str:
        what = next((m for m in CHANGING if self.name == "sendmsg" and m in self.arguments), "")
        return f"{self.name} {plain(self.path)} {plain(self.other)}{what}".strip()

    @property
    def ours(self) -> bool:
        if self.name in SYNCS and self.path in PARENTS:
            return True  # what keeps a root's own name
        return any(p.startswith(ROOTS) for p in (self.path, self.other) if p)

    @property
    def writes(self) -> bool:
        """Whether it can change the host, or begins to."""
        if self.name == "openat":
            return self.ours and ("O_WRONLY" in self.arguments or "O_CREAT" in self.arguments)
        if self.name == "sendmsg":
            return any(f"\\0{m}\\0" in self.arguments for m in CHANGING)
        return self.ours


def arguments(out: str, *more: str, calls: Sequence[str] = CALLS) -> list[str]:
    """The command line of strace before the traced one."""
    return [
        "strace",
        "-qq",
        "-y",
        "-s",
        "65536",
        "-o",
        out,
        "-e",
        f"trace={','.join(calls)}",
        "-e",
        "signal=none",
        *more,
    ]


def plain(path: str) -> str:
    """A path without what differs from run to run: a temporary file's random part, the number of a change."""
    return re.sub(r"/history/[0-9]{6}", "/history/N", re.sub(r"\.[0-9a-f]{12}\.ollamactl", ".TMP", path))


def decoded(text: str) -> bytes:
    def one(found: re.Match[str]) -> str:
        word = found.group(1)
        return chr(int(word, 8)) if word[0] in "01234567" else _ESCAPES.get(word, word)

    return re.sub(r"\\([0-7]{1,3}|.)", one, text, flags=re.S).encode("latin-1")


def calls(text: str) -> Iterator[Call]:
    """The calls of a trace in their order."""
    counts: dict[str, int] = {}
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        name, args, result = found.group(1), found.group(2), found.group(3)
        path, other = _paths(name, args)
        # How many files a process opens depends on what else runs (it looks through /proc); how often at one place
        # does not.
        via = (_folder(args) or path) if name == "openat" else ""
        counts[name + via] = counts.get(name + via, 0) + 1
        strings = _STRING.findall(args)
        data = decoded(strings[0]) if name in ("write", "pwrite64") and strings else b""
        done = None if result == "?" else int(result)
        yield Call(name, counts[name + via], args, done, path, other, data, via)


def _folder(args: str) -> str:
    """The folder that a path is relative to."""
    found = re.match(r'\d+<([^>]*)>, "(?!/)', args)
    return found.group(1) if found else ""


def _paths(name: str, args: str) -> tuple[str, str]:
    if name in ("write", "pwrite64", "fsync", "fdatasync", "fchmod", "fchown", "ftruncate", "fsetxattr"):
        found = re.match(r"\d+<([^>]*)>", args)
        return (found.group(1) if found else ""), ""
    if name == "sendmsg":
        return "", ""
    paths = []
    for at, quoted in re.findall(r'(?:(?:AT_FDCWD|\d+)(?:<([^>]*)>)?, )?"((?:[^"\\]|\\.)*)"', args):
        path = decoded(quoted).decode("utf-8", "replace")
        paths.append(path if path.startswith("/") else f"{at}/{path}")
    if name.startswith("symlink"):
        return paths[-1] if paths else "", ""
    return (paths[0] if paths else ""), (paths[1] if len(paths) > 1 else "")


def points(found: list[Call]) -> list[Call]:
    """Where a process is to be killed: before each call that changes something, and before the first question to
    systemd after each order, while the order is carried out. A kill leaves what the kernel has, so a sync changes
    nothing of it: being killed before a sync and before the call after it is the same, and done once."""
    chosen: list[Call] = []
    ordered = False
    for call in found:
        if call.writes or (ordered and call.name == "sendmsg"):
            if not (chosen and chosen[-1].name in SYNCS):
                chosen.append(call)
            else:
                chosen[-1] = call
            ordered = call.name == "sendmsg" and call.writes
    return chosen


# -- what a power loss leaves --


@dataclass
class Node:
    """A file, folder or link, as the kernel has it (`now`) and as the disk has it (`kept`)."""

    kind: str  # file, folder, link
    mode: int = 0o644
    now: bytes = b""
    kept: bytes = b""
    entries: dict[str, Node] = field(default_factory=dict)
    entries_kept: dict[str, Node] = field(default_factory=dict)


Tree = dict[str, tuple[str, int, bytes]]  # path below / -> kind, mode, content or target


class Disk:
    """The folders of ROOTS while a trace is replayed over them."""

    def __init__(self, tree: Tree) -> None:
        self.root = Node("folder", 0o755)
        for path, (kind, mode, data) in sorted(tree.items()):
            parent, name = self._parent(path, make=True)
            parent.entries[name] = Node(kind, mode, data, data)
        self._keep(self.root)

    def _keep(self, node: Node) -> None:
        node.entries_kept = dict(node.entries)
        node.kept = node.now
        for child in node.entries.values():
            self._keep(child)

    def _parent(self, path: str, make: bool = False) -> tuple[Node, str]:
        *folders, name = path.strip("/").split("/")
        node = self.root
        for folder in folders:
            if make and folder not in node.entries:
                node.entries[folder] = Node("folder", 0o755)
            node = node.entries[folder]
        return node, name

    def _find(self, path: str) -> Node | None:
        try:
            parent, name = self._parent(path)
            return parent.entries.get(name)
        except KeyError:
            return None

    def do(self, call: Call) -> None:
        """One call that succeeded, done to `now`, or for a sync to `kept`."""
        if call.result is None or call.result < 0 or not call.ours:
            return
        if call.name == "openat":
            if "O_CREAT" in call.arguments and self._find(call.path) is None:
                parent, name = self._parent(call.path)
                parent.entries[name] = Node("file", 0o600)
            return
        if call.name in ("mkdir", "mkdirat"):
            parent, name = self._parent(call.path)
            parent.entries[name] = Node("folder", 0o755)
        elif call.name in ("symlink", "symlinkat"):
            parent, name = self._parent(call.path)
            target = decoded(_STRING.findall(call.arguments)[0])
            parent.entries[name] = Node("link", 0o777, target, target)
        elif call.name in ("unlink", "unlinkat", "rmdir"):
            parent, name = self._parent(call.path)
            del parent.entries[name]
        elif call.name.startswith("rename"):
            parent, name = self._parent(call.path)
            node = parent.entries.pop(name)
            parent, name = self._parent(call.other)
            parent.entries[name] = node
        else:
            node = self._find(call.path)
            if node is None:
                return
            if call.name in ("write", "pwrite64"):
                node.now = call.data if call.name == "pwrite64" else node.now + call.data
            elif call.name == "ftruncate":
                node.now = b""
            elif call.name == "fchmod":
                node.mode = int(call.arguments.rsplit(",", 1)[1].strip(), 8)
            elif call.name in SYNCS:
                node.kept = node.now
                node.entries_kept = dict(node.entries)

    def losses(self) -> Iterator[Tree]:
        """What may stand on the disk if the power fails now: none of what was not synced; all names but no
        content; and the names of one folder only."""
        yield self._tree(lambda node: False)
        yield self._tree(lambda node: True)
        for folder in self._folders(self.root):
            if folder.entries != folder.entries_kept:
                yield self._tree(lambda node, folder=folder: node is folder)  # type: ignore[misc]

    def whole(self) -> Tree:
        """What stands there without a loss."""
        return self._tree(lambda node: True, content=True)

    def _folders(self, node: Node) -> Iterator[Node]:
        if node.kind == "folder":
            yield node
            for child in {id(c): c for c in (*node.entries.values(), *node.entries_kept.values())}.values():
                yield from self._folders(child)

    def _tree(self, names: object, content: bool = False) -> Tree:
        tree: Tree = {}

        def walk(node: Node, path: str) -> None:
            entries = node.entries if names(node) else node.entries_kept  # type: ignore[operator]
            for name, child in entries.items():
                at = f"{path}/{name}"
                tree[at] = (child.kind, child.mode, child.now if content or child.kind == "link" else child.kept)
                walk(child, at)

        walk(self.root, "")
        return tree


def normal(tree: Tree) -> tuple[tuple[str, str, bytes], ...]:
    """What tells two states apart."""
    return tuple(sorted((plain(p), kind, data) for p, (kind, _, data) in tree.items()))
