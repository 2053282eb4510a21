"""The front put in place: nginx asked first, the file written, nginx told, and then everything asked through it; or
nothing of it stays."""

from __future__ import annotations

import base64
import http.client
import json
import os
import secrets
import ssl
import time
from collections.abc import Callable

import msgspec

from ollamactl.core.mismatch import Mismatch
from ollamactl.core.parse import api
from ollamactl.core.plan import RUNS
from ollamactl.core.source import command
from ollamactl.errors import Exit, Failure
from ollamactl.host import entryfiles, files, journal, nginxd, undo
from ollamactl.host.context import Context, Lost, Result
from ollamactl.host.files import Image
from ollamactl.host.journal import Entry, FileUndo, Kind, ServiceBefore
from ollamactl.host.written import all_since
from ollamactl.platforms.nginx import Front

# What has no way through: (method, path)
REFUSED = (
    ("POST", "/api/pull"), ("POST", "/api/push"), ("POST", "/api/create"), ("POST", "/api/copy"),
    ("DELETE", "/api/delete"), ("POST", "/api/blobs/sha256:0"), ("GET", "/api/generate"),
)  # fmt: skip
NOBODY = "ollamactl-asks-for-no-model"


class Login(msgspec.Struct, frozen=True):
    """What the front wants of a client, as a header; empty where it wants nothing or we have nothing."""

    header: str = ""
    why: str = ""  # there is none


# -- keys --


def new_keys(path: str) -> str | None:
    """The text of a first file of keys, with one client; None where there is a file. Raises Failure for one that
    others may read."""
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return (
            "# One line a client: KEY NAME;   a new key: openssl rand -hex 16   then: sudo systemctl reload nginx\n"
            f"{secrets.token_hex(16)} first;\n"
        )
    if info.st_mode & 0o077 or info.st_uid != 0:
        raise Failure(
            f"{path} can be read by others than root",
            hint=f"sudo chown root: {path}; sudo chmod 600 {path}",
            code=Exit.REFUSED,
            id="keys_readable",
        )
    return None


def key_login(path: str) -> Login:
    """The first key of the file."""
    try:
        with open(path, encoding="utf-8") as f:
            lines = [line.split("#", 1)[0].split() for line in f]
    except (OSError, UnicodeDecodeError) as error:
        return Login(why=f"{path}: {error}")
    keys = [line[0].strip("\"'") for line in lines if len(line) == 2 and line[1].endswith(";")]
    return Login(f"Bearer {keys[0]}") if keys else Login(why=f"{path} has no line KEY NAME;")


def password_login(path: str | None) -> Login:
    """From a file that holds NAME:PASSWORD."""
    if path is None:
        return Login(why="no password is known (--password-file FILE, a line NAME:PASSWORD)")
    try:
        with open(path, encoding="utf-8") as f:
            text = f.readline().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{path}: {error}", code=Exit.USAGE, id="usage") from None
    if ":" not in text:
        raise Failure(f"{path} holds no NAME:PASSWORD", code=Exit.USAGE, id="usage")
    return Login("Basic " + base64.b64encode(text.encode()).decode())


# -- the change --


def change(
    ctx: Context, conf: str | None, keys: tuple[str, str] | None, kind: Kind, prove: Callable[[], None]
) -> Result:
    """Our file as `conf` (None: gone), `keys` (path, text) beside it where they are new; proven, or all undone. The
    caller holds the lock."""
    nginxd.sweep()
    state = ctx.manager.state(nginxd.UNIT)
    if state.load != "loaded":
        hint = "sudo apt-get install nginx-light"
        raise Failure(f"there is no {nginxd.UNIT} ({state.load})", hint=hint, code=Exit.REFUSED, id="no_nginx")
    before = files.image(nginxd.CONF)
    after = Image("absent") if conf is None else Image("file", conf.encode(), 0o644)
    undos = [] if keys is None else [_undo(keys[0], Image("absent"), Image("file", keys[1].encode(), 0o600))]
    undos.append(_undo(nginxd.CONF, before, after))
    entry = Entry(
        id=ctx.store.next_id(),
        kind=kind,
        command=ctx.command,
        user=ctx.user,
        unit=nginxd.UNIT,
        started=time.time(),
        files=tuple(undos),
        service=ServiceBefore(state.active, state.sub, state.invocation, state.main_pid),
        changes=(("front", _listens(before), _listens(after)),),
    )

    def carried_out() -> Result:
        _forward(ctx, entry, conf, prove)
        return Result(status="applied", entry=entry.id)

    return undo.transact(ctx, undo.UnderWay(entry, f"front {_listens(after) or 'gone'}"), carried_out)


def _undo(path: str, before: Image, after: Image) -> FileUndo:
    return FileUndo(path, before, after, entryfiles.folders_to_make(path))


def _listens(image: Image) -> str:
    """Address of the outer server of a text of ours."""
    for line in image.data.decode("utf-8", "replace").splitlines():
        if line.strip().startswith("listen "):
            return line.split()[1].rstrip(";")
    return ""


def _forward(ctx: Context, entry: Entry, conf: str | None, prove: Callable[[], None]) -> None:
    manager, was = ctx.manager, entry.service
    began = time.monotonic()
    before = entry.files[-1].before
    text = before.data.decode("utf-8", "replace") if before.kind == "file" else None
    for one in entry.files[:-1]:  # keys: a new file, which the test below looks for
        files.restore(one.path, one.after)
        ctx.report.step(f"{one.path} written, with one key (0600)")
    if conf is not None:
        nginxd.would_take(ctx.host, conf)
        ctx.report.step("nginx would take it (nginx -t, before anything is replaced)")
    entryfiles.do_files(entry)
    if was.active in RUNS:
        nginxd.follow(manager, conf, text)
        ctx.report.step(f"{nginxd.CONF} {'written' if conf else 'removed'}, nginx runs with it"
                        if conf else f"{nginxd.CONF} removed, nginx runs without it",
                        seconds=time.monotonic() - began)  # fmt: skip
    elif conf is not None:
        manager.reset_failed(nginxd.UNIT)
        manager.start(nginxd.UNIT, ctx.timeout)
        nginxd.wait_mark(conf, None)
        ctx.report.step(f"{nginxd.CONF} written, nginx started", seconds=time.monotonic() - began)
    prove()
    if conf is not None:
        enabled = ctx.host.read(command("systemctl", "is-enabled", nginxd.UNIT, any_exit=True))
        if enabled.text.strip() == "disabled":
            ctx.report.note(f"{nginxd.UNIT} is not started at boot: sudo systemctl enable {nginxd.UNIT}")


def before_of(entry: Entry, store: journal.Store) -> str | None:
    """Our file as it was before a change of it, to be put back. Raises Failure where somebody else has changed it
    since: it is left alone."""
    changed = [f for f in entry.files if f.path == nginxd.CONF]
    later = [e for e in all_since(store, entry.id) if e.outcome == "applied"]
    last = [f for e in later for f in e.files if f.path == nginxd.CONF]
    if not changed or files.image(nginxd.CONF).digest not in (last[-1].after.digest, changed[0].before.digest):
        raise Failure(
            f"{nginxd.CONF} was changed by someone else since; it is left as it is",
            hint=f"look at it, or start over: sudo rm {nginxd.CONF}; sudo ollamactl front nginx --install",
            code=Exit.REFUSED,
            id="changed_by_others",
        )
    was = changed[0].before
    return was.data.decode("utf-8", "replace") if was.kind == "file" else None


def take_away(ctx: Context) -> None:
    """The front gone, where there is one; keys stay. Raises Failure where that can't be proven: it is back then."""
    if not os.path.lexists(nginxd.CONF):
        return
    result = change(ctx, None, None, "reset", lambda: None)
    if result.status != "applied":
        said = "; ".join(m.text for m in result.mismatches) or "it could not be put back"
        code = Exit.RESTORED if result.status == "restored" else Exit.NOT_RESTORED
        raise Failure(f"the front could not be taken away: {said}", code=code, id="front_stays")


# -- the proof --


class Through:
    """Requests through the front, as a client on this machine."""

    def __init__(self, front: Front, login: Login, timeout: float) -> None:
        self.front, self.login, self.timeout = front, login, timeout
        name, _, port = front.listen.rpartition(":")
        name = name.strip("[]")
        self.host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name)
        self.port = int(port)
        self.tls: ssl.SSLContext | None = None
        if front.certificate:  # just this certificate will do, for whatever name it is made
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self.tls.check_hostname = False
            self.tls.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            self.tls.load_verify_locations(front.certificate)

    def ask(self, method: str, path: str, body: object, value: str) -> tuple[int, bytes]:
        """(status, body), with `value` as the login. Raises Lost where nothing comes."""
        where = f"{self.front.listen}{path}"
        try:
            if self.tls is not None:
                connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                    self.host, self.port, timeout=self.timeout, context=self.tls
                )
            else:
                connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)
            try:
                headers = {"Authorization": value} if value else {}
                connection.request(method, path, None if body is None else json.dumps(body), headers)
                answer = connection.getresponse()
                return answer.status, answer.read(1 << 20)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise Lost(Mismatch("front_unproven", "", "front", f"{where}: {error or type(error).__name__}")) from None

    def must(self, wanted: int, method: str, path: str, body: object = None, login: str | None = None) -> bytes:
        """The body of an answer that has to have that status; `login` in place of the valid one. Who is told to come
        again (others use the front meanwhile, or we are too quick for its rate) comes again."""
        value = self.login.header if login is None else login
        until = time.monotonic() + 30.0
        while True:
            status, found = self.ask(method, path, body, value)
            if status == wanted or status not in (429, 503) or time.monotonic() > until:
                break
            time.sleep(max(0.2, 1.0 / self.front.rate))
        if status != wanted:
            who = "" if login is None else " without a valid login"
            said = found[:200].decode("utf-8", "replace").strip()
            text = f"{method} {path}{who} was answered with {status}, not {wanted}" + (f": {said}" if said else "")
            raise Lost(Mismatch("front_unproven", "", "front", text))
        return found


def prove(ctx: Context, front: Front, login: Login, model: str) -> None:
    """Through the front: nobody without a login, no way to change models, and tokens of `model` (empty: Ollama's own
    word that it has no such model, which shows that the request reached it). Raises Lost."""
    through = Through(front, login, min(60.0, ctx.timeout))
    generate = {"model": model or NOBODY, "prompt": "1", "options": {"num_predict": 1}}
    if front.auth != "none":
        for wrong in ("", "Bearer wrong", "Basic d3Jvbmc6d3Jvbmc="):
            for method, path in (("POST", "/api/generate"), ("GET", "/api/tags")):
                body = generate if method == "POST" else None
                through.must(401, method, path, body, wrong)
        ctx.report.step("without a login, and with a wrong one: 401")
        if not login.header:
            ctx.report.note(f"not tried with a login: {login.why}")
            return
    for method, path in REFUSED:
        through.must(403, method, path, None if method == "GET" else {"model": NOBODY})
    ctx.report.step("pull, push, create, copy, delete and blobs: 403")
    version = api.version(through.must(200, "GET", "/api/version"))
    through.timeout = ctx.timeout
    if not model:
        said = through.must(404, "POST", "/api/generate", generate)
        if NOBODY not in api.error_text(said):
            raise Lost(Mismatch("front_unproven", "", "front", "the inference path does not end at Ollama"))
        ctx.report.step(f"Ollama {version} answers through it (no model is loaded: none was asked for tokens)")
        return
    began = time.monotonic()
    lines = through.must(200, "POST", "/api/generate", generate).strip().splitlines()
    last = msgspec.json.decode(lines[-1]) if lines else {}
    if not (isinstance(last, dict) and last.get("done")):
        said_ = f"{model} gave no whole reply through it: {last.get('error', '') if isinstance(last, dict) else last}"
        raise Lost(Mismatch("front_unproven", "", "front", said_))
    ctx.report.step(f"Ollama {version} answers through it, {model} with tokens", seconds=time.monotonic() - began)
