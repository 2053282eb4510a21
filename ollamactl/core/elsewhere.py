"""An Ollama that is no unit of systemd, or one whose settings stand elsewhere: what a person has to type to change a
setting there, and to take it back.

`apply` changes nothing on such a host; it says exactly what to do. Each way in which Ollama runs is one function;
those of containers are in elsewhere_boxes.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

from ollamactl.core import elsewhere_boxes, settings
from ollamactl.core.advice import Advice, Step, again, assigned, gone, shown, told_of_secrets, without_secrets
from ollamactl.core.facts import Container, Facts, Install, Service, System
from ollamactl.core.parse.quoting import quote_environment
from ollamactl.core.plan import Request

# The snap's launcher exports these from its own configuration, over whatever a drop-in says.
SNAP_KEYS = {
    "OLLAMA_HOST": "host",
    "OLLAMA_MODELS": "models",
    "OLLAMA_ORIGINS": "origins",
    "OLLAMA_DEBUG": "debug",
    "CUDA_VISIBLE_DEVICES": "cuda-visible-devices",
    "OLLAMA_CONTEXT_LENGTH": "context-length",
}
# The NixOS module makes these variables of options of its own, over its environmentVariables.
NIX_OPTIONS = {"OLLAMA_HOST": "host", "OLLAMA_MODELS": "models", "HSA_OVERRIDE_GFX_VERSION": "rocmOverrideGfx"}


def advice(request: Request, facts: Facts) -> Advice | None:
    """What to do for the install that is judged; None where ollamactl changes it itself, or nothing is known. Raises
    ValueError for a value that can't stand where it has to."""
    found = facts.install
    rule = RULES.get(found.way) if found is not None else None
    if found is None or rule is None:
        return None
    boxes = facts.containers or ()
    box = next((b for b in boxes if b.name == found.name or (b.pid and b.pid == found.pid)), None)
    return told_of_secrets(rule(found, box, request, facts))


# -- other managers, and none --


def _user_unit(found: Install, box: Container | None, request: Request, facts: Facts) -> Advice:
    where = f"~/.config/systemd/user/{found.name}.d/zz-ollamactl.conf"
    lines = ["[Service]", *(f"Environment={quote_environment(n, v)}" for n, v in shown(request).items())]
    lines += [f"UnsetEnvironment={n}" for n in request.unset]
    restart = ("systemctl --user daemon-reload", f"systemctl --user restart {found.name}")
    said = f"{found.name} is a unit of a user's own systemd, which ollamactl does not change"
    steps = (
        Step(f"As that user, put into {where}:", tuple(lines), where),
        Step("Then, as that user (loginctl enable-linger keeps it running after the logout):",
             (*restart, "ollamactl verify")),
    )  # fmt: skip
    return Advice(found.way, found.name, said, steps, (f"rm {where}", *restart))


def _hand(found: Install, box: Container | None, request: Request, facts: Facts) -> Advice:
    said = f"{found.why}: no service manager holds its settings"
    stop = f"kill {found.pid}" if found.pid else "stop it"
    command = shlex.join(shlex.split(found.name)) if found.name else "ollama serve"
    now, absent = _given(facts), gone(request)
    words = ["env", *(w for n in absent for w in ("-u", n))] if absent else []
    kept = {n: v for n, v in now.items() if n not in absent}
    before = [*assigned(without_secrets(now)), command]
    words += [*assigned(without_secrets(kept) | shown(request)), command]
    steps = [Step("For this time, in the shell that starts it:", (stop, " ".join(words)))]
    system = facts.system
    if system is not None and system.container == "wsl" and system.init != "systemd":
        lines = ("[boot]", "systemd=true")
        steps.append(Step("For good: let WSL run systemd, by /etc/wsl.conf:", lines, "/etc/wsl.conf"))
        steps.append(Step("then, in PowerShell, and install Ollama as a service after that:", ("wsl --shutdown",)))
    elif system is not None and system.init == "systemd":
        lines = ("curl -fsSL https://ollama.com/install.sh | sh", f"sudo {again(request)}")
        what = "For good: as a service, which ollamactl then changes and proves (it has a user and models of its own):"
        steps.append(Step(what, lines))
    return Advice(found.way, found.name, said, tuple(steps), ("stop it again, then:", " ".join(before)))


def _given(facts: Facts) -> dict[str, str]:
    """The variables of Ollama that a server was started with, which a new one has to be given again."""
    environ = facts.process.environ if facts.process is not None else None
    return {n: v for n, v in sorted((environ or {}).items()) if settings.lookup(n) is not None}


def _openrc(found: Install, box: Container | None, request: Request, facts: Facts) -> Advice:
    where, restart = "/etc/conf.d/ollama", "sudo rc-service ollama restart"
    said = "OpenRC runs Ollama here, which ollamactl does not change"
    return _of_script(found, said, f"Put into {where} (read by the init script as shell):", where, restart, request)


def _runit(found: Install, box: Container | None, request: Request, facts: Facts) -> Advice:
    where, restart = "/etc/sv/ollama/run", "sudo sv restart ollama"
    said = "runit runs Ollama here, which ollamactl does not change"
    return _of_script(found, said, f"Put before the exec line of {where}:", where, restart, request)


def _of_script(found: Install, said: str, what: str, where: str, restart: str, request: Request) -> Advice:
    lines = [f"export {a}" for a in assigned(shown(request))] + [f"unset {n}" for n in gone(request)]
    steps = (Step(what, tuple(lines), where), Step("Then:", (restart, "sudo ollamactl verify")))
    return Advice(found.way, found.name, said, steps, (f"take those lines out of {where} again", restart))


Rule = Callable[[Install, Container | None, Request, Facts], Advice]
RULES: dict[str, Rule] = {
    "docker": elsewhere_boxes.container,
    "podman": elsewhere_boxes.container,
    "compose": elsewhere_boxes.compose,
    "quadlet": elsewhere_boxes.quadlet,
    "kubernetes": elsewhere_boxes.kubernetes,
    "lxc": elsewhere_boxes.lxc,
    "user-unit": _user_unit,
    "hand": _hand,
    "openrc": _openrc,
    "runit": _runit,
}


# -- units of systemd whose settings stand elsewhere --


def of_unit(request: Request, service: Service, system: System | None) -> Advice | None:
    """What to do for a unit of systemd that a drop-in would not change; None for all others."""
    found = None
    built = service.fragment_path.startswith("/nix/store/")  # elsewhere /etc/systemd/system is a link to the store
    if service.id.startswith("snap."):
        found = _snap(request, service)
    elif built or (system is not None and system.distribution.startswith("NixOS")):
        found = _nixos(request, service)
    return told_of_secrets(found) if found is not None else None


def _snap(request: Request, service: Service) -> Advice | None:
    mine = {SNAP_KEYS[n]: v for n, v in shown(request).items() if n in SNAP_KEYS}
    unset = [SNAP_KEYS[n] for n in gone(request) if n in SNAP_KEYS]
    if not mine and not unset:
        return None  # the launcher passes what it does not set itself
    lines = [" ".join(["sudo snap set ollama", *assigned(mine)])] if mine else []
    lines += [f"sudo snap unset ollama {' '.join(unset)}"] if unset else []
    said = f"the snap's launcher sets {', '.join([*mine, *unset])} from the snap's configuration, over any drop-in"
    step = Step("A restart is needed, `snap set` makes none:", (*lines, "sudo snap restart ollama",
                                                                "sudo ollamactl verify"))  # fmt: skip
    others = [n for n in request.set if n not in SNAP_KEYS]
    more = (Step(f"{', '.join(others)} can be applied by itself, in a second call."),) if others else ()
    back = ("snap get ollama    # before: what stands there now", *(f"sudo snap unset ollama {k}" for k in mine))
    return Advice("snap", service.id, said, (step, *more), (*back, "sudo snap restart ollama"))


def _nixos(request: Request, service: Service) -> Advice | None:
    values = shown(request)
    lines = [line for n in NIX_OPTIONS if n in values for line in _nix_option(n, values[n])]
    if plain := {n: v for n, v in values.items() if n not in NIX_OPTIONS}:
        lines.append("services.ollama.environmentVariables = {")
        lines += [f"  {n} = {_nix(v)};" for n, v in plain.items()]
        lines.append("};")
    said = f"{service.id} is built by NixOS: its files are read-only, and the next rebuild makes them anew"
    steps = [Step("Put into your configuration.nix:", tuple(lines), "configuration.nix")] if lines else []
    if absent := gone(request):
        options = [NIX_OPTIONS.get(n, f"environmentVariables.{n}") for n in absent]
        steps.append(Step(f"Remove {', '.join(f'services.ollama.{o}' for o in options)}."))
    steps.append(Step("Then:", ("sudo nixos-rebuild switch", "sudo ollamactl verify")))
    return Advice("nixos", service.id, said, tuple(steps), ("sudo nixos-rebuild switch --rollback",))


def _nix_option(name: str, value: str) -> list[str]:
    if name != "OLLAMA_HOST":
        return [f"services.ollama.{NIX_OPTIONS[name]} = {_nix(value)};"]
    host, _, port = value.removeprefix("http://").rpartition(":")
    whole = not (host and port.isdigit())
    found = [f"services.ollama.host = {_nix(value if whole else host)};"]
    return found if whole else [*found, f"services.ollama.port = {port};"]


def _nix(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${") + '"'
