"""What only a Mac has."""

from __future__ import annotations

from typing import Literal

import msgspec

from ollamactl.core.facts.record import Record


class Launch(Record, frozen=True, kw_only=True):
    """One way in which Ollama is started on a Mac. `unit` is the name that it is asked for by."""

    unit: str
    kind: Literal["brew", "agent", "daemon", "app", "hand"]
    domain: str = ""  # gui/501, user/501 or system
    label: str = ""  # its own launchd job; empty for the app and for what was started by hand
    plist: str = ""  # of that job
    own_label: str = ""  # the job that stands in for it once we manage it
    own_file: str = ""  # our file: that job's plist, brew's environment file, or an agent that sets variables at login
    holds: Literal["plist", "brew-file", "session"] = "plist"  # what our file is
    managed: bool = False  # our file is there, with something of ours
    pid: int | None = None  # of `ollama serve`
    app: str = ""  # folder of Ollama.app
    app_pid: int | None = None
    program: tuple[str, ...] = ()  # the server's command
    log: str = ""


class Session(Record, frozen=True, kw_only=True):
    """Who asks on a Mac, and for whom: the user at the screen, whose session starts agents and apps. `uid` is None
    where nobody is logged in there."""

    euid: int
    uid: int | None = None
    user: str = ""
    home: str = ""
    config_home: str = ""  # XDG_CONFIG_HOME, which decides where brew looks for its files


class Brew(Record, frozen=True, kw_only=True):
    program: str
    version: str = ""
    prefix: str = ""
    reads_env_files: bool = False
    env_file: str = ""  # where it looks for variables of the service


class BrewService(Record, frozen=True, kw_only=True):
    """An entry of `brew services info --json`. `command` is made from the formula and the environment file as they are
    now; it is not what a running job has."""

    name: str = ""
    service_name: str = ""
    running: bool | None = None
    loaded: bool | None = None
    pid: int | None = None
    exit_code: int | None = None
    user: str | None = None
    status: str = ""  # started, stopped, none, error, other, …
    file: str | None = None
    registered: bool | None = None
    loaded_file: str | None = None
    command: str | None = None
    log_path: str | None = None


class AppSettings(Record, frozen=True, kw_only=True):
    """What Ollama.app's own settings put into its server's environment, whatever the session has."""

    path: str
    schema: int = 0
    variables: dict[str, str] = msgspec.field(default_factory=dict)


class UnifiedMemory(Record, frozen=True, kw_only=True):
    """Memory that GPU and programs of a Mac share. `working_set` is what Metal lets a program use of it."""

    total: int
    working_set: int
    source: str  # the setting that decides it, or `default`
    pressure: Literal["", "normal", "warning", "critical"] = ""
    swap_used: int = 0
    wired: int | None = None
    compressed: int | None = None
