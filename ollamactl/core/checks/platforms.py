"""macOS, snap, NixOS, Windows: where settings go there, and are lost."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core import settings
from ollamactl.core.checks.base import Finding, check, configured, quote
from ollamactl.core.checks.gpu import used
from ollamactl.core.facts import Facts, Start
from ollamactl.core.needs import NO_SIGNS, Given, Signs

AGENT = (
    "launchctl setenv lasts until the next reboot: write a LaunchAgent with EnvironmentVariables in "
    "~/Library/LaunchAgents/org.example.ollama.plist, then: launchctl bootstrap gui/$(id -u) that file"
)


def _apart(given: tuple[Given, ...], start: Start | None, scope: str) -> list[Given]:
    config = (start.config if start else None) or {}
    found = []
    for one in given:
        setting = settings.lookup(one.name)
        if one.scope != scope or setting is None or one.name not in config:
            continue
        if not settings.same(setting, one.value, config[one.name], start.version if start else ""):
            found.append(one)
    return found


@check(weight=56, explains=("env_not_in_server_config", "api_exposed_without_auth", "server_not_reachable"))
def launchctl_setenv_not_persistent(
    given: tuple[Given, ...], facts: Facts, start: Start | None = None, signs: Signs = NO_SIGNS
) -> Iterator[Finding]:
    """launchctl setenv is gone after a reboot, and does not reach a server that runs.

    Why: it changes the session's environment for processes started later, until the reboot.
    Seen: launchctl setenv beside a `server config` without the value, or two starts of which only the older has it.
    Do: a LaunchAgent with EnvironmentVariables.
    """
    mine = [g for g in given if g.scope == "launchctl"]
    lost = _apart(given, start, "launchctl")
    if signs.has("ssh_session", "wrong_domain"):
        return
    if mine and not (signs.has("brew_service")):
        one = (lost or mine)[0]
        said = f"{one.name} is set by launchctl setenv, which the next reboot takes away"
        if lost and start is not None:
            said = f"{one.name}={one.value} of launchctl setenv is not in the running server"
        here = facts.service is not None and facts.service.manager == "launchd"
        fix = f"ollamactl apply --set {one.name}={settings.shown(one.name, one.value)}" if here else AGENT
        yield Finding("warning", said, (one.place, configured(start, one.name)), fix)
        return
    if signs.has("setenv_lost") and not signs.has("brew_service"):
        said = "what launchctl setenv sets is gone after a reboot"
        yield Finding("warning", said, signs.lines("setenv_lost"), AGENT)
        return
    starts = facts.log.starts if facts.log else ()
    mac = any(c.library.lower() == "metal" for s in starts for c in s.computes) or (
        facts.told is not None and facts.told.world == "darwin"
    )
    if (
        len(starts) >= 2
        and mac
        and starts[-2].listening.startswith("[::]")
        and starts[-1].listening.startswith("127.")
    ):
        yield Finding(
            "warning",
            f"the server listened on {starts[-2].listening} before and listens on {starts[-1].listening} "
            "now: launchctl setenv was lost",
            (quote(starts[-2].listening_line), quote(starts[-1].listening_line)),
            AGENT,
        )


@check(weight=58, explains=("launchctl_setenv_not_persistent", "env_not_in_server_config"))
def launchctl_wrong_domain(given: tuple[Given, ...] = (), signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """launchctl setenv was run in another session than the app's.

    Why: it acts on the domain where it runs; from ssh that is not the one of the desktop.
    Seen: setenv over ssh.
    Do: run it in the desktop session, or sudo launchctl asuser UID.
    """
    mine = [g for g in given if g.scope == "launchctl"]
    if signs.has("ssh_session", "wrong_domain") and mine:
        yield Finding(
            "warning",
            "launchctl setenv over ssh does not reach the desktop session's app",
            (mine[0].place, *signs.lines("ssh_session", "wrong_domain")),
            f"sudo launchctl asuser $(id -u) launchctl setenv {mine[0].name} {mine[0].value}",
        )


# what Homebrew's own formula gives its service
OF_THE_FORMULA = {("OLLAMA_FLASH_ATTENTION", "1"), ("OLLAMA_KV_CACHE_TYPE", "q8_0")}


@check(weight=60, explains=("launchctl_setenv_not_persistent", "env_not_in_server_config"))
def brew_plist_rewritten(
    given: tuple[Given, ...] = (), signs: Signs = NO_SIGNS, start: Start | None = None
) -> Iterator[Finding]:
    """`brew services` rewrites its plist: settings in it are lost at upgrades.

    Why: it copies the plist of the formula over the one in LaunchAgents.
    Seen: homebrew.mxcl.ollama.plist with variables, or brew services beside missing values.
    Do: ~/.homebrew/services/ollama.env (recent Homebrew), or a LaunchAgent of one's own.
    """
    edits = [g for g in given if g.scope in ("plist", "launchctl") and (g.name, g.value) not in OF_THE_FORMULA]
    told = signs.has("brew_plist_told", "setenv_fails")
    if signs.has("brew_service") and (edits or told or _apart(given, start, "launchctl")):
        yield Finding(
            "warning",
            "brew services writes its plist anew: settings there do not last, and launchctl setenv does not reach it",
            (*signs.lines("brew_plist_told", "brew_service"), *(g.place for g in edits[:3])),
            "mkdir -p ~/.homebrew/services && echo OLLAMA_NUM_PARALLEL=4 >> "
            "~/.homebrew/services/ollama.env && brew services restart ollama",
        )


@check(weight=54, explains=("server_not_reachable",))
def launchagent_needs_login(signs: Signs) -> Iterator[Finding]:
    """A LaunchAgent starts at login only.

    Why: before anybody logs in only LaunchDaemons run.
    Seen: an agent's plist where the server shall run without a login.
    Do: a LaunchDaemon with UserName and HOME.
    """
    if signs.has("launchagent") and signs.has("before_login"):
        yield Finding(
            "warning",
            "a LaunchAgent starts at login only",
            signs.lines("launchagent", "before_login"),
            "sudo launchctl bootstrap system /Library/LaunchDaemons/org.example.ollama.plist    # with "
            "UserName and HOME",
        )


@check(weight=60)
def gui_app_without_session(signs: Signs) -> Iterator[Finding]:
    """The desktop app cannot start without a session.

    Why: its tray icon needs one; the server itself does not.
    Seen: "Unable to init instance".
    Do: ollama serve as a service.
    """
    said = signs.of("gui_failed") or signs.matching("unable to init instance", kinds=("other_error",))
    if said:
        yield Finding(
            "error",
            "the app's icon needs a desktop session; `ollama serve` runs without one",
            signs.quotes(said),
            "ollama serve",
        )


@check(weight=66, explains=("env_set_in_shell_not_service", "client_host_differs_from_server"))
def snap_config_required(given: tuple[Given, ...] = (), world: str = "", signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """The snap takes its settings from `snap set` only.

    Why: variables of a shell or of a drop-in do not reach the snap's service.
    Seen: a snap, and variables set elsewhere.
    Do: sudo snap set ollama …
    """
    if signs.has("snap_told"):
        said = "the snap takes its settings from snap configuration only"
        fix = "sudo snap set ollama NAME=VALUE && sudo snap restart ollama    # host, models, num-parallel, …"
        yield Finding("warning", said, signs.lines("snap_told"), fix)
        return
    if world != "snap":
        return
    for one in given:
        if one.name.startswith("OLLAMA_") and one.scope in ("shell", "env", "service") and settings.lookup(one.name):
            key = one.name.removeprefix("OLLAMA_").lower().replace("_", "-")
            yield Finding(
                "warning",
                f"{one.name} does not reach the snap: it takes its settings from snap configuration",
                (one.place,),
                f"sudo snap set ollama {key}={one.value} && sudo snap restart ollama",
            )
            return


CONNECT = "sudo snap connect ollama:removable-media && sudo snap restart ollama    # /media and /mnt"


@check(weight=68, explains=("models_dir_no_access", "server_not_reachable", "snap_config_required"))
def snap_confinement_models_path(
    given: tuple[Given, ...] = (), world: str = "", signs: Signs = NO_SIGNS
) -> Iterator[Finding]:
    """The snap may not use that models folder.

    Why: strict confinement allows home, its own folders, and /media or /mnt only with removable-media connected.
    Seen: snap set ollama models=… outside of those.
    Do: sudo snap connect ollama:removable-media, or an allowed path.
    """
    for one in given:
        if (
            one.name == "OLLAMA_MODELS"
            and (one.scope == "snap" or world == "snap")
            and not one.value.startswith(("/var/snap/", "$SNAP"))
        ):
            yield Finding(
                "error",
                f"the snap is confined and may not use {one.value}",
                (one.place, *(signs.lines("client_cannot_connect", "folder_denied"))),
                CONNECT,
            )
            return
    denied = [e for e in signs.of("folder_denied") if e.fields.get("call") == "mkdir"] if world == "snap" else []
    for event in denied:
        path = event.fields.get("path", "")
        if path and not path.startswith(("/var/snap/", "/root/snap/", "/home/")):
            yield Finding("error", f"the snap is confined and may not use {path}", signs.quotes([event]), CONNECT)
            return


@check(weight=64, explains=("no_gpu_found", "package_without_gpu_libs"))
def nixos_acceleration_not_set(signs: Signs, start: Start | None = None) -> Iterator[Finding]:
    """NixOS builds Ollama for the CPU unless told otherwise.

    Why: the package has CUDA or ROCm only with services.ollama.acceleration (later package = pkgs.ollama-cuda).
    Seen: the NixOS module without it, or a store path without cuda.
    Do: set it, rebuild, restart.
    """
    if signs.has("nixos_module") and not signs.has("nixos_acceleration"):
        yield Finding(
            "warning",
            "the NixOS module builds the package without GPU libraries",
            signs.lines("nixos_module"),
            'services.ollama.acceleration = "cuda";    # then: sudo nixos-rebuild switch, restart ollama',
        )


@check(weight=65, explains=("no_gpu_found",))
def nixos_driver_not_configured(signs: Signs, start: Start | None = None) -> Iterator[Finding]:
    """NixOS has no NVIDIA driver configured.

    Why: acceleration needs services.xserver.videoDrivers = [ "nvidia" ] too.
    Seen: acceleration without the driver.
    Do: configure the driver, rebuild, reboot.
    """
    nvidia = [e for e in signs.of("nixos_acceleration") if re.search(r"cuda", e.text)]
    if nvidia and not signs.has("nixos_driver") and not used(signs, start):
        yield Finding(
            "warning",
            "acceleration is set and no NVIDIA driver is configured",
            signs.lines("nixos_acceleration"),
            'services.xserver.videoDrivers = [ "nvidia" ];    # then: sudo nixos-rebuild switch && sudo reboot',
        )
