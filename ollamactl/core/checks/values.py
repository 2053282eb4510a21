"""Values that Ollama reads otherwise than meant, and names that it does not know."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core import govalues, settings
from ollamactl.core.checks.base import Finding, check, configured
from ollamactl.core.facts import Facts, Start
from ollamactl.core.needs import NO_SIGNS, Given, Signs

# Names of other programs, of the client library, of Docker images and of builds: not the server's, and no fault.
FOREIGN = re.compile(
    r"OLLAMA_(?:API|BASE|URL|URI|ENDPOINT|SERVER|CLIENT|IMAGE|VERSION|CONTAINER|VOLUME|DATA|USER|HOME|BIN|INSTALL|"
    r"AUTH|PROXY|MODEL$|DEFAULT_MODEL|EMBED|CHAT|TIMEOUT|ADDRESS|WEBUI|SKIP|NO_START|BUILD|DOCKER|LIBRARY_PATH)"
)
# Retired or undocumented names that some release reads.
OTHERS = {
    "OLLAMA_LLM_LIBRARY",
    "OLLAMA_SKIP_CPU_GENERATE",
    "OLLAMA_LIBRARY_PATH",
    "OLLAMA_NEW_ESTIMATES",
    "OLLAMA_EXPERIMENT",
    "OLLAMA_CONTEXT_SHIFT",
    "OLLAMA_INTEL_GPU",
    "OLLAMA_FORCE_MMAP",
    "OLLAMA_UI",
}
# what a context of the default's length may bring about, where the one that was meant did not arrive
OF_CONTEXT = ("oom_killed", "load_oom", "vram_tiered_default_context", "kv_cache_exceeds_vram", "partial_offload")


@check(weight=72)
def unknown_ollama_variable(
    given: tuple[Given, ...], signs: Signs = NO_SIGNS, release: tuple[int, ...] = ()
) -> Iterator[Finding]:
    """A variable is named that Ollama does not know.

    Why: Ollama ignores unknown and mistyped names without a word; only `server config` shows which it has read.
    Seen: the name, where it is set, and the known name that it most resembles.
    Do: correct the name.
    """
    seen = set()
    for one in given:
        if not one.name.upper().startswith(("OLLAMA_", "OLAMA_", "OLLAM_")) or one.name in seen:
            continue
        seen.add(one.name)
        setting = settings.lookup(one.name)
        if setting is None and one.name in OTHERS:
            continue
        if setting is None:
            near = settings.nearest(one.name)
            typo = bool(near) and near not in settings.MISTAKEN.values()
            if FOREIGN.match(one.name) and (one.scope != "service" or not typo):
                continue
            said = f"Ollama knows no variable {one.name} and ignores it"
            said += f"; {near} is meant" if near else ""
            fix = f"sudo ollamactl apply --set {near}={one.value}" if near else f"take {one.name} out of {one.place}"
            file, _, line = one.place.rpartition(":")
            if near == "OLLAMA_HOST" and one.value.isdigit():  # a port alone would be taken for a host's name
                fix = f"sudo ollamactl apply --host 127.0.0.1:{one.value} --unset {one.name}"
            elif one.scope == "service" and file.startswith("/") and line.isdigit():
                edit = f"sudo sed -i '{line}s/{one.name}/{near}/'" if near else "sudoedit"
                fix = f"{edit} {file} && sudo systemctl daemon-reload && sudo systemctl restart ollama"
                fix += "" if near else f"    # without {one.name}, line {line}"
            explains: tuple[str, ...] = ("config_newer_than_process",) if signs.has("config_only_future") else ()
            explains += OF_CONTEXT if near == "OLLAMA_CONTEXT_LENGTH" else ()  # the default context runs in its place
            yield Finding("warning", said, (f"{one.place}: {one.name}={one.value}",), fix, explains=explains)
        elif not release and setting.until and one.scope == "told":
            said = f"{one.name} is known until {setting.until} only; later releases ignore it"
            yield Finding("info", said, (one.place,), f"take {one.name} out", weight=50)
        elif release and not settings.known_in(setting, ".".join(map(str, release))):
            span = f"until {setting.until}" if setting.until else f"since {setting.since}"
            if (setting.until and release >= settings.version(setting.until)) or not setting.until:
                said = f"this release ({'.'.join(map(str, release))}) does not know {one.name}: known {span}"
                weight = 50 if setting.name.startswith("OLLAMA_") else 20
                yield Finding(
                    "warning", said, (one.place,), f"take {one.name} out, or change the release", weight=weight
                )
    if signs.has("unknown_name_told"):
        said = "a name is set that Ollama does not know"
        fix = "ollama serve --help    # the names that it knows"
        yield Finding("warning", said, signs.lines("unknown_name_told"), fix)


@check(weight=70)
def boolean_counts_as_true(given: tuple[Given, ...]) -> Iterator[Finding]:
    """A boolean holds a word that Ollama takes for true.

    Why: what Go's ParseBool refuses (off, no, disabled) counts as true, silently.
    Seen: the value as given.
    Do: write 1 or 0.
    """
    for one in given:
        setting = settings.lookup(one.name)
        if setting is not None and setting.kind == "bool" and one.value and setting.read(one.value).problem:
            said = f"{one.name}={one.value} counts as true: only 0, f, false, 1, t and true are read as booleans"
            no = re.fullmatch(r"(?i)\W*(no|off|disabled?|none|never)\W*", one.value) is not None
            yield Finding("warning", said, (one.place,), f"sudo ollamactl apply --set {one.name}={0 if no else 1}")


@check(weight=70)
def invalid_value(
    signs: Signs = NO_SIGNS, given: tuple[Given, ...] = (), start: Start | None = None
) -> Iterator[Finding]:
    """A value that Ollama cannot read, so that the default runs.

    Why: a number, duration or port that does not parse falls back to the default, some with a WARN, some silently.
    Seen: the WARN of this start, or the value as given.
    Do: write a value of the right kind.
    """
    told = set()
    for event in signs.of("invalid_environment"):
        name = event.fields.get("key", "") or (re.search(r"(OLLAMA_\w+)", event.text) or [""])[0]
        name = name or ("OLLAMA_HOST" if "port" in event.text else "")
        if name in told:
            continue
        told.add(name)
        setting = settings.lookup(name)
        value, port = event.fields.get("value", ""), event.fields.get("port", "")
        said = f"{name or 'a variable'}={value} is not readable, the default runs"
        if not value and port:
            said = f"{name}: {port} is no port, {event.fields.get('default') or 'the default'} runs"
        fix = (
            f"sudo ollamactl apply {settings.option(setting)} {setting.example}".replace("= ", "=") if setting else ""
        )
        if name == "OLLAMA_LLM_LIBRARY":
            said = f"this release has no library {value}: {name} is ignored"
            fix = f"sudo ollamactl apply --unset {name}"
        of_it = ("server_not_reachable", "client_server_version_mismatch") if name == "OLLAMA_HOST" else ()
        yield Finding("warning", said, signs.quotes([event]), fix, explains=of_it)
    for one in given:
        setting = settings.lookup(one.name)
        if setting is None or one.name in told or setting.kind in ("bool", "text", "items", "origins"):
            continue
        if setting.kind == "path":
            if one.scope == "service" and re.match(r"[~$]|\.{1,2}/|\w[\w.-]*(?:/|$)", one.value.strip("\"' ")):
                said = f"{one.name}={one.value} is no absolute path: it is taken as it stands, no shell expands it"
                fix = f"sudo ollamactl apply --set {one.name}=/ABSOLUTE/PATH"
                so = ("service_restart_loop", "models_dir_missing", "models_dir_no_access", "service_home_missing")
                yield Finding("warning", said, (one.place,), fix, explains=so)
            continue
        problem = setting.read(one.value).problem if one.value else ""
        if problem:
            told.add(one.name)
            fix = f"sudo ollamactl apply {settings.option(setting)} {setting.example}".replace("= ", "=")
            why = ("bind_refused",) if one.name == "OLLAMA_HOST" else ()
            yield Finding("warning", f"{one.name}={one.value}: {problem}", (one.place,), fix, explains=why)
        elif one.scope == "told" and not (start and start.version):
            continue  # what 0 means depends on the release
        elif one.name == "OLLAMA_NUM_PARALLEL" and govalues.trimmed(one.value) == "0" and _chooses_not(start):
            said = "OLLAMA_NUM_PARALLEL=0 runs with one slot; since 0.10 there is no automatic choice"
            yield Finding("warning", said, (one.place,), "sudo ollamactl apply --parallel 1")
    printed = (start.config or {}).get("OLLAMA_NUM_PARALLEL") if start else None
    zero = printed == "0" and start is not None and settings.version(start.version) >= (0, 10)  # before: the default
    if zero and not any(g.name == "OLLAMA_NUM_PARALLEL" for g in given):
        said = "OLLAMA_NUM_PARALLEL=0 runs with one slot; since 0.10 there is no automatic choice"
        yield Finding(
            "warning", said, (configured(start, "OLLAMA_NUM_PARALLEL"),), "sudo ollamactl apply --parallel 1"
        )
    for event in signs.of("bad_duration"):
        said = "a client sends a keep_alive that is not readable: a duration as text needs a unit"
        yield Finding("warning", said, signs.quotes([event]), 'send "keep_alive": -1 (a number) or "-1m"')
        return


def _chooses_not(start: Start | None) -> bool:
    release = settings.version(start.version) if start else ()
    return not release or release >= (0, 10)


@check(
    weight=75,
    explains=(
        "proxy_not_in_service",
        "proxy_misconfigured",
        "bind_refused",
        "models_dir_no_access",
        "models_dir_missing",
    ),
)
def placeholder_value_in_config(
    facts: Facts, given: tuple[Given, ...], signs: Signs = NO_SIGNS
) -> Iterator[Finding]:
    """A value was copied from an example and never replaced.

    Why: names such as proxy.example.com do not exist; what depends on them fails.
    Seen: the value as given, or the name that could not be looked up.
    Do: put the real value there.
    """
    words = re.compile(
        r"example\.(?:com|org|net)\b|your[-_. ]?(?:proxy|host|server|domain|ip|key)|<[A-Za-z][^>]{1,40}>|"
        r"/path/to/|\bCHANGE_?ME\b|\bxxx+\b",
        re.I,
    )
    masked = re.compile(r"xx|REDACTED|\*\*\*", re.I)  # by who shows it to others: no value of the host
    for one in given:
        if facts.told is not None and masked.search(one.value):
            continue
        if words.search(one.value) and (settings.lookup(one.name) or one.name.startswith("OLLAMA_")):
            if one.name in ("OLLAMA_ORIGINS", "OLLAMA_REMOTES", "NO_PROXY", "no_proxy"):
                continue
            fix = f"put the real value there: sudoedit {one.place.split(':')[0]}"
            yield Finding("warning", f"{one.name}={one.value} is a placeholder", (one.place,), fix)
    found = signs.matching("proxy.example.com", "your.proxy", "lookup proxy.example") or signs.of("placeholder_told")
    if found:
        yield Finding(
            "warning",
            "a placeholder of the documentation stands for the proxy",
            signs.quotes(found),
            "sudo systemctl edit ollama    # the real proxy in HTTPS_PROXY",
        )


@check(weight=30)
def client_side_variable_in_service(given: tuple[Given, ...], signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """A variable of the client is set for the server.

    Why: OLLAMA_NOHISTORY and OLLAMA_EDITOR are read by the `ollama` command in a user's shell.
    Seen: the variable in the service's environment.
    Do: export it in the user's shell.
    """
    told = [e for e in signs.of("stays_unset") if e.fields.get("name") in settings.CLIENT_ONLY]
    if told and signs.has("service_file_told"):
        name = told[0].fields["name"]
        said = f"{name} is read by the client, not by the server"
        yield Finding("info", said, signs.quotes(told), f"export {name}=1    # in the shell that runs ollama")
    for one in given:
        if one.name in settings.CLIENT_ONLY and one.scope in ("service", "process"):
            yield Finding(
                "info",
                f"{one.name} is read by the client, not by the server",
                (one.place,),
                f"echo 'export {one.name}={one.value}' >> ~/.profile",
            )


@check(weight=20)
def llama_arg_without_effect(signs: Signs) -> Iterator[Finding]:
    """A LLAMA_ARG_… variable that Ollama overrides with an argument.

    Why: what Ollama passes on the runner's command line beats the runner's environment.
    Seen: llama-server's own line.
    Do: use the setting of Ollama.
    """
    found = signs.of("llama_arg_overridden")
    names = sorted({e.fields.get("name", "") for e in found} - {"", "LLAMA_ARG_HOST", "LLAMA_ARG_PORT"})
    if names:
        said = f"{', '.join(names)} has no effect: Ollama passes that option itself"
        yield Finding("info", said, signs.lines("llama_arg_overridden"), "sudo ollamactl apply --parallel …")
