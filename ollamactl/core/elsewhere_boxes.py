"""An Ollama in a container: what to type there. One function for each kind of engine."""

from __future__ import annotations

import shlex

from ollamactl.core.advice import Advice, Step, again, assigned, gone, shown, without_secrets
from ollamactl.core.compose import argv, escaped, override_file
from ollamactl.core.facts import Compose, Container, Facts, Install
from ollamactl.core.parse.quoting import quote_environment
from ollamactl.core.plan import Request

# What Ollama's own image, or podman, sets: no one gave it to a container.
OF_THE_IMAGE = (
    "PATH", "LD_LIBRARY_PATH", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_VISIBLE_DEVICES", "HOME", "HOSTNAME", "TERM",
    "container",
)  # fmt: skip
# Networks that an engine takes by itself.
USUAL_NETWORKS = ("", "bridge", "default", "podman", "slirp4netns", "pasta")


def container(found: Install, box: Container | None, request: Request, facts: Facts) -> Advice:
    if box is None:
        return _unanswered(found, request)
    old = f"{box.name}-before"
    engine, name = box.engine, shlex.quote(box.name)
    if "--rm" in box.options:  # it goes away when it is stopped
        lines = [f"{engine} rm -f {name}", *run_lines(box, request)]
        undo = (f"{engine} rm -f {name}", *run_lines(box, Request()))
        after = Step("Then prove it:", ("ollamactl verify",))
    else:
        lines = [f"{engine} stop {name}", f"{engine} rename {name} {shlex.quote(old)}", *run_lines(box, request)]
        undo = (f"{engine} rm -f {name}", f"{engine} rename {shlex.quote(old)} {name}", f"{engine} start {name}")
        after = Step("Then prove it, and remove the old one:", ("ollamactl verify", f"{engine} rm {shlex.quote(old)}"))
    said = f"{box.name} is a container of {engine}: its variables are fixed when it is made, so it has to be made anew"
    step = Step("The line is made of what the container has now; compare it with your own:", tuple(lines))
    return Advice(found.way, box.name, said, (step, after), undo)


def _unanswered(found: Install, request: Request) -> Advice:
    said = f"{found.why}; its engine does not answer us"
    engine = "podman" if found.way in ("podman", "quadlet") else "docker"
    asked = f"{engine} ps --no-trunc" + (f" --filter id={found.name}" if found.name else "")
    if found.uid:
        lines, who = (asked, again(request)), f"As the user {found.uid}, whose engine it is (a rootless one):"
    else:
        lines, who = (f"sudo {asked}", f"sudo {again(request)}"), "As root:"
    return Advice(found.way, found.name, said, (Step(who, lines),))


def run_lines(box: Container, request: Request) -> list[str]:
    """`docker run` of a container with a request's variables, from what `inspect` shows; then its further networks."""
    words = [box.engine, "run", "-d", "--name", box.name]
    if box.restart_policy not in ("", "no"):
        words += ["--restart", box.restart_policy]
    for asked in box.gpu_requests:
        words += _gpu_words(asked)
    if box.network not in USUAL_NETWORKS:
        words += ["--network", box.network]
    words += [w for volume in box.mounts for w in ("-v", volume)]
    words += _ports(box) + list(box.options)
    words += [w for n, v in _environment(box, request).items() for w in ("-e", f"{n}={v}")]
    program, *arguments = box.command or ("/bin/ollama", "serve")
    words += [] if program.endswith("ollama") else ["--entrypoint", program]
    words += [box.image, *(arguments if program != "/bin/ollama" or arguments != ["serve"] else ())]
    joins = [shlex.join([box.engine, "network", "connect", network, box.name]) for network in box.networks]
    return [shlex.join(words), *joins]


def _ports(box: Container) -> list[str]:
    words: list[str] = []
    for address, host, inside in dict.fromkeys((p.address, p.host, p.inside) for p in box.ports if p.host):
        if address == "::" and any(p.address in ("0.0.0.0", "") and p.host == host for p in box.ports):
            continue  # the same publication, seen twice
        where = "" if address in ("", "0.0.0.0", "::") else f"[{address}]:" if ":" in address else f"{address}:"
        words += ["-p", f"{where}{host}:{inside}"]
    return words


def _environment(box: Container, request: Request) -> dict[str, str]:
    now = dict(e.split("=", 1) for e in box.environment)
    kept = {n: v for n, v in now.items() if n not in OF_THE_IMAGE and n not in gone(request)}
    if kept.get("OLLAMA_HOST", "").startswith(("0.0.0.0", "http://0.0.0.0")):
        del kept["OLLAMA_HOST"]  # the image's own
    return without_secrets(kept) | shown(request)


def _gpu_words(asked: str) -> list[str]:
    if asked == "runtime nvidia":
        return ["--runtime", "nvidia"]
    if asked.startswith("/dev/") or ("=" in asked and not asked.startswith("device=")):
        return ["--device", asked]
    return ["--gpus", f'"{asked}"' if "," in asked else asked]


def compose(found: Install, box: Container | None, request: Request, facts: Facts) -> Advice:
    if box is None or box.compose is None:
        return container(found, box, request, facts)
    project = box.compose
    where = override_file(project)
    named = where in project.files  # else it is one that compose reads by itself
    lines = ["services:", f"  {project.service}:", "    environment:"]
    lines += [f"      {n}: {escaped(v)}" for n, v in shown(request).items()]
    lines += [f"      {n}: !reset null" for n in gone(request)]
    what = f"Add to {where}:" if named else f"Put into {where} (merged over the other, key by key; it may be there):"
    files = project.files if named else () if _found_alone(project) else (*project.files, where)
    steps = (
        Step(what, tuple(lines), where),
        Step("Make the container anew, which cuts running requests, then prove it:",
             (up(box, project, files), "ollamactl verify")),
    )  # fmt: skip
    undo = f"take those lines out of {where} again" + ("" if named else ", or remove it if it has no others")
    said = f"{box.name} belongs to the compose project {project.project}: its variables stand in the project's files"
    return Advice(found.way, box.name, said, steps, (undo, up(box, project, files)))


def _found_alone(project: Compose) -> bool:
    """Whether compose finds the project's file and the one that goes over it by itself."""
    return bool(project.folder) and all(f.rpartition("/")[0] == project.folder for f in project.files)


def up(box: Container, project: Compose, files: tuple[str, ...]) -> str:
    """The command that makes the container anew where its variables have changed. No `files`: compose finds them."""
    if box.engine == "docker":
        return shlex.join(argv(project, files, "up", "-d", project.service))
    named = [w for f in files for w in ("-f", f)]
    words = ["podman-compose", "-p", project.project, *named, "up", "-d", "--force-recreate", project.service]
    return (f"cd {shlex.quote(project.folder)} && " if project.folder else "") + shlex.join(words)


def quadlet(found: Install, box: Container | None, request: Request, facts: Facts) -> Advice:
    unit = box.unit if box is not None and box.unit else found.name
    user = " --user" if found.uid else ""
    sudo = "" if found.uid else "sudo "
    folder = "~/.config/containers/systemd" if found.uid else "/etc/containers/systemd"
    where = found.source or f"{folder}/{unit.removesuffix('.service')}.container"
    restart = (f"{sudo}systemctl{user} daemon-reload", f"{sudo}systemctl{user} restart {unit}")
    steps = []
    if values := shown(request):
        lines = tuple(f"Environment={quote_environment(n, v).replace('$', '$$')}" for n, v in values.items())
        steps.append(Step(f"Put at the end of the [Container] section of {where}:", lines, where))
    if absent := gone(request):
        lines = tuple(f"PodmanArgs=--unsetenv={n}" for n in absent)
        what = f"Take the Environment= of {', '.join(absent)} out of {where}; what the image sets goes by:"
        steps.append(Step(what, lines, where))
    steps.append(Step("Then:", (*restart, "ollamactl verify")))
    said = f"{unit} is made by podman from a .container file (quadlet): a drop-in for the unit does not get inside"
    return Advice(found.way, unit, said, tuple(steps), (f"take those lines out of {where} again", *restart))


def kubernetes(found: Install, box: Container | None, request: Request, facts: Facts) -> Advice:
    said = f"{found.why}: its variables stand in the workload's manifest"
    words = [*assigned(shown(request)), *(f"{n}-" for n in gone(request))]
    step = Step("With the workload's name and namespace:", (
        " ".join(["kubectl set env deployment/ollama", *words]),
        "kubectl rollout status deployment/ollama",
        "kubectl logs deployment/ollama | ollamactl verify --from -",
    ))  # fmt: skip
    return Advice(found.way, found.name, said, (step,), ("kubectl rollout undo deployment/ollama",))


def lxc(found: Install, box: Container | None, request: Request, facts: Facts) -> Advice:
    said = f"{found.why}; what is inside has a systemd and files of its own"
    inside = again(request)
    lines = (f"sudo pct exec {found.name} -- {inside}", f"sudo lxc-attach -n {found.name} -- {inside}")
    back = tuple(f"{line.partition(' -- ')[0]} -- ollamactl rollback" for line in lines)
    return Advice(found.way, found.name, said, (Step("Run ollamactl inside (Proxmox, or plain LXC):", lines),), back)


