"""An Ollama that is no unit of systemd: what a person has to type to change a setting there, and to take it back.

`apply` changes nothing on such a host; it says exactly what to do. Each way in which Ollama runs is one function.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

import msgspec

from ollamactl.core.compose import argv, escaped, override_file
from ollamactl.core.facts import Compose, Container, Facts, Install, Service, System
from ollamactl.core.plan import Request

# What Ollama's own image sets: no one gave it to a container.
OF_THE_IMAGE = ("PATH", "LD_LIBRARY_PATH", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_VISIBLE_DEVICES", "HOME", "container")
# The snap's launcher exports these from its own configuration, over whatever a drop-in says.
SNAP_KEYS = {
    "OLLAMA_HOST": "host",
    "OLLAMA_MODELS": "models",
    "OLLAMA_ORIGINS": "origins",
    "OLLAMA_DEBUG": "debug",
    "CUDA_VISIBLE_DEVICES": "cuda-visible-devices",
    "OLLAMA_CONTEXT_LENGTH": "context-length",
}


class Step(msgspec.Struct, frozen=True):
    """`what` in words, then lines to type (or, with `file`, to put into it)."""

    what: str
    lines: tuple[str, ...] = ()
    file: str = ""


class Advice(msgspec.Struct, frozen=True):
    """`said` is why ollamactl does not do it itself; `undo` are lines that take it back."""

    way: str
    name: str
    said: str
    steps: tuple[Step, ...]
    undo: tuple[str, ...] = ()


def advice(request: Request, facts: Facts) -> Advice | None:
    """What to do for the install that is judged; None where ollamactl changes it itself, or nothing is known."""
    found = facts.install
    rule = RULES.get(found.way) if found is not None else None
    if found is None or rule is None:
        return None
    boxes = facts.containers or ()
    box = next((b for b in boxes if b.name == found.name or (b.pid and b.pid == found.pid)), None)
    return rule(found, box, request, facts)


def _assignments(request: Request) -> list[str]:
    return [f"{n}={_shown(n, v, request)}" for n, v in request.set.items()]


def _shown(name: str, value: str, request: Request) -> str:
    return "SECRET" if name in request.secret else value


def _quoted(request: Request) -> list[str]:
    return [shlex.quote(a) for a in _assignments(request)]


def _gone(request: Request) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*request.unset, *request.release)))


# -- containers --


def _container(found: Install, box: Container | None, request: Request, facts: Facts) -> Advice | None:
    if box is None:
        where = f"docker ps --filter id={found.name}" if found.name else "docker ps"
        step = Step("As its owner (rootless engines belong to a user), or as root:", (where, "ollamactl apply …"))
        return Advice(found.way, found.name, f"{found.why}; its engine does not answer us", (step,))
    old = f"{box.name}-before"
    engine, name = box.engine, shlex.quote(box.name)
    lines = [f"{engine} stop {name}", f"{engine} rename {name} {shlex.quote(old)}", run_line(box, request)]
    undo = (f"{engine} rm -f {name}", f"{engine} rename {shlex.quote(old)} {name}", f"{engine} start {name}")
    said = f"{box.name} is a container of {engine}: its variables are fixed when it is made, so it has to be made anew"
    check = Step("Then prove it, and remove the old one:", ("ollamactl verify", f"{engine} rm {shlex.quote(old)}"))
    step = Step("The line is made of what the container has now; compare it with your own:", tuple(lines))
    return Advice(found.way, box.name, said, (step, check), undo)


def run_line(box: Container, request: Request) -> str:
    """`docker run` of a container with a request's variables: what `inspect` shows that people give."""
    words = [box.engine, "run", "-d", "--name", box.name]
    if box.restart_policy not in ("", "no"):
        words += ["--restart", box.restart_policy]
    for asked in box.gpu_requests:
        words += _gpu_words(asked)
    if box.network and box.network not in ("bridge", "default", "podman"):
        words += ["--network", box.network]
    for volume, inside in box.mounts:
        words += ["-v", f"{volume}:{inside}"]
    for port in dict.fromkeys((p.address, p.host, p.inside) for p in box.ports if p.host):
        address, host, inside_port = port
        if address == "::" and any(p.address in ("0.0.0.0", "") and p.host == host for p in box.ports):
            continue  # the same publication, seen twice
        where = "" if address in ("", "0.0.0.0", "::") else f"[{address}]:" if ":" in address else f"{address}:"
        words += ["-p", f"{where}{host}:{inside_port}"]
    if box.memory_max:
        words += ["--memory", str(box.memory_max)]
    environment = dict(e.split("=", 1) for e in box.environment)
    environment = {n: v for n, v in environment.items() if n not in OF_THE_IMAGE and n not in _gone(request)}
    if environment.get("OLLAMA_HOST", "").startswith(("0.0.0.0", "http://0.0.0.0")):
        del environment["OLLAMA_HOST"]  # the image's own
    environment |= {n: _shown(n, v, request) for n, v in request.set.items()}
    for variable, value in environment.items():
        words += ["-e", f"{variable}={value}"]
    program, *arguments = box.command or ("/bin/ollama", "serve")
    words += [] if program.endswith("ollama") else ["--entrypoint", program]
    return shlex.join([*words, box.image, *(arguments if program != "/bin/ollama" or arguments != ["serve"] else ())])


def _gpu_words(asked: str) -> list[str]:
    if asked == "runtime nvidia":
        return ["--runtime", "nvidia"]
    if asked.startswith("/dev/") or ("=" in asked and not asked.startswith("device=")):
        return ["--device", asked]
    return ["--gpus", f'"{asked}"' if "," in asked else asked]


def _compose(found: Install, box: Container | None, request: Request, facts: Facts) -> Advice | None:
    if box is None or box.compose is None:
        return _container(found, box, request, facts)
    project = box.compose
    lines = ["services:", f"  {project.service}:", "    environment:"]
    lines += [f"      {n}: {escaped(_shown(n, v, request))}" for n, v in request.set.items()]
    lines += [f"      {n}: !reset null" for n in _gone(request)]
    said = f"{box.name} belongs to the compose project {project.project}: its variables stand in the project's files"
    where = override_file(project)
    files = (*project.files, *(() if where in project.files else (where,)))
    what = f"Add to {where}:" if where in project.files else f"Put into {where} (merged over the others, key by key):"
    steps = (
        Step(what, tuple(lines), where),
        Step("Make the container anew, which cuts running requests, then prove it:",
             (up(project, files), "ollamactl verify")),
    )  # fmt: skip
    undo = f"take those lines out of {where}" if where in project.files else f"rm {shlex.quote(where)}"
    return Advice(found.way, box.name, said, steps, (undo, up(project, project.files)))


def up(project: Compose, files: tuple[str, ...]) -> str:
    return shlex.join(argv(project, files, "up", "-d", project.service))


def _quadlet(found: Install, box: Container | None, request: Request, facts: Facts) -> Advice | None:
    unit = box.unit if box is not None and box.unit else found.name
    name = unit.removesuffix(".service")
    user = " --user" if found.uid else ""
    folder = "~/.config/containers/systemd" if found.uid else "/etc/containers/systemd"
    where = f"{folder}/{name}.container"
    sudo = "" if found.uid else "sudo "
    lines = tuple(f'Environment="{a}"' for a in _assignments(request))
    lines += tuple(f"UnsetEnvironment={n}" for n in _gone(request))
    again = (f"{sudo}systemctl{user} daemon-reload", f"{sudo}systemctl{user} restart {unit}")
    steps = (
        Step(f"Put into the [Container] section of {where}:", lines, where),
        Step("Then:", (*again, "ollamactl verify")),
    )
    said = f"{unit} is made by podman from a .container file (quadlet): a drop-in for the unit does not get inside"
    return Advice(found.way, unit, said, steps, ("take those lines out again", *again))


def _kubernetes(found: Install, box: Container | None, request: Request, facts: Facts) -> Advice | None:
    said = f"{found.why}: its variables stand in the workload's manifest"
    minus = [f"{n}-" for n in _gone(request)]
    step = Step("With the workload's name and namespace:", (
        " ".join(["kubectl set env deployment/ollama", *_quoted(request), *minus]),
        "kubectl rollout status deployment/ollama",
        "kubectl logs deployment/ollama | ollamactl verify --from -",
    ))  # fmt: skip
    return Advice(found.way, found.name, said, (step,), ("kubectl rollout undo deployment/ollama",))


def _lxc(found: Install, box: Container | None, request: Request, facts: Facts) -> Advice | None:
    said = f"{found.why}; what is inside has a systemd and files of its own"
    inside = shlex.join(["ollamactl", "apply", *(w for a in _assignments(request) for w in ("--set", a))])
    lines = (f"pct exec {found.name} -- {inside}", f"lxc-attach -n {found.name} -- {inside}")
    return Advice(found.way, found.name, said, (Step("Run ollamactl inside (Proxmox, or plain LXC):", lines),))


# -- other managers, and none --


def _user_unit(found: Install, box: Container | None, request: Request, facts: Facts) -> Advice | None:
    where = f"~/.config/systemd/user/{found.name}.d/zz-ollamactl.conf"
    lines = ["[Service]", *(f'Environment="{a}"' for a in _assignments(request))]
    lines += [f"UnsetEnvironment={n}" for n in request.unset]
    again = ("systemctl --user daemon-reload", f"systemctl --user restart {found.name}")
    said = f"{found.name} is a unit of a user's own systemd, which ollamactl does not change"
    steps = (
        Step(f"As that user, put into {where}:", tuple(lines), where),
        Step("Then, as that user (loginctl enable-linger keeps it running after the logout):",
             (*again, "ollamactl verify")),
    )  # fmt: skip
    return Advice(found.way, found.name, said, steps, (f"rm {where}", *again))


def _hand(found: Install, box: Container | None, request: Request, facts: Facts) -> Advice | None:
    said = f"{found.why}: no service manager holds its settings"
    env = " ".join([*(f"env -u {n}" for n in _gone(request)[:1]), *_quoted(request)])
    stop = f"kill {found.pid}" if found.pid else "stop it"
    command = shlex.join(shlex.split(found.name)) if found.name else "ollama serve"
    steps = [Step("For this time, in the shell that starts it:", (stop, f"{env} {command}".strip()))]
    if facts.system is not None and facts.system.container == "wsl" and facts.system.init != "systemd":
        lines = ("[boot]", "systemd=true")
        steps.append(Step("For good: let WSL run systemd, by /etc/wsl.conf:", lines, "/etc/wsl.conf"))
        steps.append(Step("then, in PowerShell, and install Ollama as a service after that:", ("wsl --shutdown",)))
    elif facts.system is not None and facts.system.init == "systemd":
        lines = ("curl -fsSL https://ollama.com/install.sh | sh", _again(request))
        steps.append(Step("For good: as a service, which ollamactl then changes and proves:", lines))
    return Advice(found.way, found.name, said, tuple(steps))


def _again(request: Request) -> str:
    return "sudo " + shlex.join(["ollamactl", "apply", *(w for a in _assignments(request) for w in ("--set", a))])


def _openrc(found: Install, box: Container | None, request: Request, facts: Facts) -> Advice | None:
    lines = [f"export {a}" for a in _quoted(request)] + [f"unset {n}" for n in _gone(request)]
    steps = (
        Step("Put into /etc/conf.d/ollama (read by the init script as shell):", tuple(lines), "/etc/conf.d/ollama"),
        Step("Then:", ("sudo rc-service ollama restart", "sudo ollamactl verify")),
    )
    return Advice(found.way, found.name, "OpenRC runs Ollama here, which ollamactl does not change", steps)


def _runit(found: Install, box: Container | None, request: Request, facts: Facts) -> Advice | None:
    lines = [f"export {a}" for a in _quoted(request)] + [f"unset {n}" for n in _gone(request)]
    steps = (
        Step("Put before the exec line of /etc/sv/ollama/run:", tuple(lines), "/etc/sv/ollama/run"),
        Step("Then:", ("sudo sv restart ollama", "sudo ollamactl verify")),
    )
    return Advice(found.way, found.name, "runit runs Ollama here, which ollamactl does not change", steps)


Rule = Callable[[Install, Container | None, Request, Facts], Advice | None]
RULES: dict[str, Rule] = {
    "docker": _container,
    "podman": _container,
    "compose": _compose,
    "quadlet": _quadlet,
    "kubernetes": _kubernetes,
    "lxc": _lxc,
    "user-unit": _user_unit,
    "hand": _hand,
    "openrc": _openrc,
    "runit": _runit,
}


# -- units of systemd whose settings stand elsewhere --


def of_unit(request: Request, service: Service, system: System | None) -> Advice | None:
    """What to do for a unit of systemd that a drop-in would not change; None for all others."""
    if service.id.startswith("snap."):
        return _snap(request, service)
    built = service.fragment_path.startswith("/nix/store/")  # elsewhere /etc/systemd/system is a link to the store
    if built or (system is not None and system.distribution.startswith("NixOS")):
        return _nixos(request, service)
    return None


def _snap(request: Request, service: Service) -> Advice | None:
    mine = {n: v for n, v in request.set.items() if n in SNAP_KEYS}
    gone = [SNAP_KEYS[n] for n in _gone(request) if n in SNAP_KEYS]
    if not mine and not gone:
        return None  # the launcher passes what it does not set itself
    sets = [shlex.quote(f"{SNAP_KEYS[n]}={_shown(n, v, request)}") for n, v in mine.items()]
    lines = [f"sudo snap set ollama {' '.join(sets)}"] if sets else []
    lines += [f"sudo snap unset ollama {' '.join(gone)}"] if gone else []
    said = f"the snap's launcher sets {', '.join(mine) or 'these'} from the snap's configuration, over any drop-in"
    step = Step("A restart is needed, `snap set` makes none:", (*lines, "sudo snap restart ollama",
                                                                "sudo ollamactl verify"))  # fmt: skip
    others = [n for n in request.set if n not in SNAP_KEYS]
    more = (Step(f"{', '.join(others)} can be applied by itself, in a second call."),) if others else ()
    return Advice("snap", service.id, said, (step, *more), ("snap get ollama    # what stands there now",))


def _nixos(request: Request, service: Service) -> Advice | None:
    options = {"OLLAMA_HOST": "host"}
    plain = {n: v for n, v in request.set.items() if n not in options}
    lines = []
    if (address := request.set.get("OLLAMA_HOST")) is not None:
        host, _, port = address.removeprefix("http://").rpartition(":")
        lines.append(f"services.ollama.host = {_nix(host or address)};")
        lines += [f"services.ollama.port = {port};"] if host and port.isdigit() else []
    if plain:
        lines.append("services.ollama.environmentVariables = {")
        lines += [f"  {n} = {_nix(_shown(n, v, request))};" for n, v in plain.items()]
        lines.append("};")
    said = f"{service.id} is built by NixOS: its files are read-only, and the next rebuild makes them anew"
    steps = [Step("Put into your configuration.nix:", tuple(lines), "configuration.nix")] if lines else []
    if gone := _gone(request):
        steps.append(Step(f"Remove {', '.join(gone)} from services.ollama.environmentVariables."))
    steps.append(Step("Then:", ("sudo nixos-rebuild switch", "sudo ollamactl verify")))
    return Advice("nixos", service.id, said, tuple(steps), ("sudo nixos-rebuild switch --rollback",))


def _nix(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${") + '"'
