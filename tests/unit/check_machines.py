"""For each check that no public case shows: a machine on which it fires. For each that is not quieted by a later
start: its near miss, the same machine without what makes it wrong. Texts as people paste them, or facts of a live host."""

# ruff: noqa: E501 - lines of logs and shells
from __future__ import annotations

from typing import Any, Literal

import msgspec

from ollamactl.core.facts import (
    Buffer,
    Complaint,
    Connections,
    Effective,
    EnvFile,
    Facts,
    HostMemory,
    InstalledModel,
    Listener,
    Load,
    LoadedModel,
    Origin,
    PathState,
    Process,
    Runner,
    Service,
    Slot,
    Start,
    Stray,
    UnitFile,
    UnitName,
    Variable,
)
from ollamactl.core.parse import unitfile
from ollamactl.core.source import Missing
from tests.system.cases_commands import smi
from tests.system.small import A, Log, drop_in, journal, on_cpu, ps, served, unit_file

Machine = str | Facts
GIB = 1 << 30
UNIT = "/etc/systemd/system/ollama.service"
ACTIVE = "     Loaded: loaded (/etc/systemd/system/ollama.service; enabled)\n     Active: active (running) since Mon\n"


def host(**more: Any) -> Facts:
    service = Service(id="ollama.service", load_state="loaded", active_state="active", sub_state="running", main_pid=900,
                      unit_file_state="enabled", invocation_id="a" * 32, fragment_path=UNIT, user="ollama")  # fmt: skip
    return Facts(**({"service": service, "process": Process(pid=900, environ={})} | more))


def variable(name: str, value: str, layer: str, file: str, *lost: tuple[str, str, str]) -> Effective:
    shadowed = tuple((v, Origin(layer=where, file=at, line=2)) for v, where, at in lost)
    one = Variable(name=name, value=value, origin=Origin(layer=layer, file=file, line=1), shadowed=shadowed)
    return Effective(variables={name: one})


def environment(wanted: str, has: str) -> Facts:
    """A drop-in's value beside the one with which the process was started."""
    name, file = "OLLAMA_NUM_PARALLEL", f"{UNIT}.d/override.conf"
    start = Start(invocation="a" * 32, config={name: has}, listening="127.0.0.1:11434", version="0.33.0")
    return host(effective=variable(name, wanted, "environment", file), process=Process(pid=900, environ={name: has}),
                start=start)  # fmt: skip


def env_file(dropins: str) -> Facts:
    lost = (dropins, "environment", f"{UNIT}.d/override.conf")
    return host(effective=variable("OLLAMA_NUM_PARALLEL", "6", "environment-file", "/etc/default/ollama", lost))


def loaded(held: int, *, expires: str = "") -> Facts:
    """A model that `ollama ps` shows with 1 GiB, and whose runner holds `held` bytes."""
    buffers = (Buffer(kind="model", device="CUDA0", bytes=held // 2, text="model"),
               Buffer(kind="kv", device="CUDA0", bytes=held - held // 2, text="kv"))  # fmt: skip
    start = Start(loads=(Load(model=A, port=40001, outcome="loaded", buffers=buffers, text="starting"),))
    return host(loaded=(LoadedModel(name="a:8b", size=GIB, expires=expires),), start=start, runners=(runner(),))


def runner(**more: Any) -> Runner:
    slots = (Slot(id=0, context=4096, busy=False),)
    return Runner(**({"process": Process(pid=950, argv=("llama-server",), state="S"), "model": A, "name": "a:8b", "port": 40001,
                      "port_owned": True, "slots": 1, "props_slots": 1, "slot_list": slots} | more))  # fmt: skip


def busy(awaiting: int, *slots: bool) -> Facts:
    found = tuple(Slot(id=n, context=4096, busy=b) for n, b in enumerate(slots))
    return host(loaded=(LoadedModel(name="a:8b"),), runners=(runner(slots=len(slots), slot_list=found),),
                connections=Connections(port=11434, established=awaiting, awaiting_reply=awaiting, oldest_wait=90.0))  # fmt: skip


def swapping(free: int) -> Facts:
    memory = HostMemory(total=32 * GIB, available=GIB, swap_total=8 * GIB, swap_free=free)
    return host(memory=memory, loaded=(LoadedModel(name="a:8b"),))


def twins(*digests: str) -> Facts:
    loads = tuple(Load(model=A, context=c, outcome="loaded") for c in (2048, 8192))
    return host(installed=tuple(InstalledModel(name=f"m{n}", digest=d) for n, d in enumerate(digests)), start=Start(loads=loads))


def models_folder(state: PathState) -> Facts:
    value = variable("OLLAMA_MODELS", "/srv/models", "environment", f"{UNIT}.d/override.conf")
    return host(effective=value, paths={"/srv/models": state})


def program(missing: Missing | None) -> Facts:
    return Facts(servers=(), paths={"/usr/local/bin/ollama": PathState(path="/usr/local/bin/ollama", missing=missing)})


def files(line: str) -> Facts:
    return host(unit_files=(unitfile.parse(f"{UNIT}.d/override.conf", drop_in("Environment=OLLAMA_NUM_PARALLEL=2", line)),))


def spread(first: float, second: float) -> str:
    return served().gpu(id=1).load(4096, layers=(33, 33), weights_mib=first,
                                   says=f"load_tensors:        CUDA1 model buffer size =  {second:.2f} MiB").text()  # fmt: skip


def requests(log: Log, count: int, took: str, apart: float, status: int = 200) -> Log:
    for _ in range(count):
        log.later(apart).gin(status, took)
    return log


CERTIFICATE = (
    'Error: pull model manifest: Get "https://registry.ollama.ai/v2/library/a/manifests/8b": tls: failed to verify '
    "certificate: x509: certificate signed by unknown authority\n"
)
XID = "[ 8123.551201] NVRM: Xid (PCI:0000:01:00): 79, pid=4411, GPU has fallen off the bus.\n"
ABSENT = Missing("absent", "No such file or directory")
CACHE = "srv        update:  - cache state: 3 prompts, {mib} MiB (limits: 8192.000 MiB, 16384 tokens, 464770 est)"
OVERRIDDEN = "warn: LLAMA_ARG_{name} environment variable is set, but will be overwritten by command line argument --{option}"
OPTION = {"msg": "invalid option provided", "level": "WARN", "source": "types.go:650"}


def options(count: int) -> str:
    log = served().load(4096, 1, layers=(33, 33))
    for _ in range(count):
        log.say(**OPTION, option="max_tokens")  # type: ignore[arg-type]
    return log.text()


def suppressed(unit: str) -> str:
    return journal(*served().rows, unit="ollama[900]") + journal(
        f"Suppressed 412 messages from {unit}", unit="systemd-journald[30]"
    )


def refused(state: str) -> Facts:
    complaint = Complaint(text="ollama.service: Service has more than one ExecStart= setting, which is only allowed for Type=oneshot services. Refusing.")
    return host(service=Service(id="ollama.service", load_state=state, fragment_path=UNIT), complaints=(complaint,))


def env_file_gone(optional: bool) -> Facts:
    one = EnvFile(path="/etc/default/ollama", declared_in=UNIT, declared_line=9, optional=optional, missing=ABSENT)
    return host(env_files=(one,))


def stray(file: str, kind: str, **service: Any) -> Facts:
    """A file that sets OLLAMA_NUM_PARALLEL=4 beside a service that runs with one slot."""
    one = Stray(name="OLLAMA_NUM_PARALLEL", value="4", path=file, line=2, text="Environment=OLLAMA_NUM_PARALLEL=4", kind=kind)
    start = Start(invocation="a" * 32, config={"OLLAMA_NUM_PARALLEL": "1"}, listening="127.0.0.1:11434", version="0.33.0")
    own = Service(id="ollama.service", load_state="loaded", active_state="active", main_pid=900, fragment_path=UNIT, **service)
    return host(service=own, strays=(one,), effective=Effective(variables={}), start=start)


def set_in(layer: str, file: str) -> Facts:
    """Where the effective value of a variable comes from, over one of a drop-in."""
    lost = ("4", "environment", f"{UNIT}.d/override.conf")
    return host(effective=variable("OLLAMA_NUM_PARALLEL", "1", layer, file, lost))


def dropin_that_is(missing: Literal["absent", "failed"]) -> Facts:
    """A drop-in that systemd lists and nobody can read: gone, or a link to nowhere."""
    return host(unit_files=(UnitFile(path=f"{UNIT}.d/override.conf", missing=Missing(missing, "a link to /srv/x")),))


def silent(pid: int) -> Facts:
    """Nobody answers on the port that a process listens on: the service's has the pid 900."""
    socket = Listener(address="127.0.0.1", port=11434, pid=pid, name="ollama")
    waited = Missing("timeout", "127.0.0.1:11434: no full answer within 5 s")
    return host(listeners=(socket,), address="127.0.0.1:11434", missing={"loaded": waited})


def key_of(owner: int) -> Facts:
    """The service of uid 998, and whose its key is."""
    key = "/usr/share/ollama/.ollama/id_ed25519"
    state = PathState(path=key, type="file", mode=0o600, uid=owner, gid=owner)
    return host(paths={"account": PathState(path="account", uid=998, gid=998), key: state})


def unit_with(*lines: str, start: Start | None = None, **service: Any) -> Facts:
    """A running service whose main file holds these lines."""
    file = unitfile.parse(UNIT, "[Service]\n" + "".join(f"{line}\n" for line in lines), "main")
    state = {"id": "ollama.service", "load_state": "loaded", "active_state": "active", "main_pid": 900}
    own = Service(**(state | service))
    home = Variable(name="HOME", value="/usr/share/ollama", origin=Origin(layer="service"))
    return host(service=own, unit_files=(file,), effective=Effective(variables={"HOME": home}), start=start)


def requiring(load: str, active: str, **service: Any) -> Facts:
    """A service that requires another unit, in that state."""
    text = "[Unit]\nRequires=network.target other.service\n"
    file = unitfile.parse(f"{UNIT}.d/override.conf", text, "dropin")
    known = (UnitName(name="network.target", load="loaded", active="active"),
             UnitName(name="other.service", load=load, active=active))  # fmt: skip
    return msgspec.structs.replace(unit_with(**service), unit_files=(file,), required=known)


FIRES: dict[str, Machine] = {
    "required_unit_missing": requiring("not-found", "inactive"),
    "watchdog_ends_server": journal("ollama.service: Watchdog timeout (limit 2s)!", "ollama.service: Failed with result 'watchdog'."),
    "system_call_filter_forbids_runners": unit_with("SystemCallFilter=~@process"),
    "bind_refused": journal("Error: listen tcp 10.1.1.1:11434: bind: cannot assign requested address", unit="ollama[900]"),
    "runtime_limit_ends_server": unit_with("RuntimeMaxSec=1h"),
    "sandbox_blocks_network": unit_with("IPAddressDeny=any"),
    "unit_type_unfit": unit_with("Type=notify", type="notify", active_state="activating"),
    "cpu_quota_low": unit_with("CPUQuota=5%"),
    "command_sets_own_value": set_in("wrapper", UNIT),
    "config_newer_than_process": environment("3", "2"),
    "dropin_drops_earlier_environment": unit_file() + drop_in("Environment=OLLAMA_NUM_PARALLEL=2", name="10-a.conf")
    + drop_in("Environment=", "Environment=OLLAMA_MAX_QUEUE=64", name="20-b.conf"),
    "environment_file_overrides_dropin": env_file("2"),
    "environment_file_missing": env_file_gone(False),
    "gpu_error_in_kernel": served().text() + XID,
    "gpu_spread_unneeded": spread(2000, 2000),
    "invalid_option_flood": options(1),
    "library_missing": on_cpu().load(2048, ok=False).raw("/usr/local/lib/ollama/llama-server: error while loading shared libraries: libgomp.so.1: cannot open shared object file: No such file or directory").text(),
    "llama_arg_without_effect": served().load(4096, 1).raw(OVERRIDDEN.format(name="N_PARALLEL", option="parallel")).text(),
    "log_not_kept": unit_with("LogLevelMax=warning"),
    "sandbox_makes_models_read_only": unit_with("ProtectSystem=strict", protect_system="strict"),
    "sandbox_hides_models_dir": unit_with("InaccessiblePaths=/usr/share/ollama"),
    "system_call_filter_kills_server": journal("ollama.service: Main process exited, code=killed, status=31/SYS"),
    "resource_limit_low": unit_with("LimitNOFILE=64"),
    "service_key_not_readable": key_of(0),
    "api_answers_nothing": silent(900),
    "execstart_runs_no_server": unit_with(exec_start=("/usr/local/bin/ollama", "server")),
    "dropin_not_readable": dropin_that_is("failed"),
    "pass_environment_passes_nothing": unit_with("PassEnvironment=OLLAMA_NUM_PARALLEL", pass_environment=("OLLAMA_NUM_PARALLEL",)),
    "service_behind_others": unit_with("Nice=19"),
    "log_lines_suppressed": suppressed("ollama.service"),
    "loads_given_up": served().load(4096, 1, ok=False).load(4096, 1, ok=False).load(4096, 1, ok=False).load(4096, 1).text(),
    "max_queue_zero": served(OLLAMA_MAX_QUEUE="0").text(),
    "modelfile_num_ctx_overrides": served(OLLAMA_CONTEXT_LENGTH="16384").load(8192, 1, layers=(33, 33)).text(),
    "models_dir_missing": models_folder(PathState(path="/srv/models", missing=ABSENT)),
    "num_gpu_option_limits_layers": served().load(4096, 1, layers=(1, 33), ngl=1).text(),
    "ollama_not_installed": program(ABSENT),
    "one_blob_under_two_names": twins("x", "x"),
    "origins_open_to_all": served(OLLAMA_ORIGINS="[* http://localhost https://localhost]").text(),
    "overload_512_default_queue": requests(served().load(4096, 1), 25, "1m0s", 60).gin(503, "12µs").text(),
    "parallel_exceeds_useful_concurrency": requests(served(OLLAMA_NUM_PARALLEL="8").load(4096, 8), 45, "2s", 10).text(),
    "prompt_cache_growth": served().load(4096, 1).raw(CACHE.format(mib="2812.000")).text(),
    "ps_says_gpu_but_cpu_busy": "all cores of the CPU are busy while `ollama ps` says 100% GPU\n",
    "queue_building_up": busy(5, True, True),
    "request_bodies_logged": served().say("request debug logging enabled, inference request logs will be stored in /tmp/x", source="routes.go:1800").text(),
    "runner_killed": served().load(4096, 1).say("Load failed", "ERROR", error="llama-server process has terminated: signal: killed").text(),
    "server_not_reachable": "Error: could not connect to ollama app, is it running?\n",
    "server_process_stopped": host(process=Process(pid=900, state="stopped")),
    "service_setup_failed": journal("ollama.service: Failed at step USER spawning /usr/local/bin/ollama: No such process", "ollama.service: Main process exited, code=exited, status=217/USER"),
    "setting_lost_at_reboot": set_in("environment", "/run/systemd/system/ollama.service.d/override.conf"),
    "settings_file_not_read": stray(f"{UNIT}.d/override.conf.bak", "unit"),
    "size_understated_by_ps": loaded(3 * GIB),
    "swap_thrash": swapping(GIB),
    "systemd_does_not_answer": Facts(missing={"units": Missing("failed", "systemd does not answer: No such file or directory")}),
    "unit_file_problem": files("RestartSec 5"),
    "unit_refused": refused("bad-setting"),
    "unset_environment_drops_setting": set_in("unset", f"{UNIT}.d/override.conf"),
    "version_unknown": Log().config().say("Listening on 127.0.0.1:11434 (version unknown)", source="routes.go:1972").text(),
    "model_name_unknown": "$ ollama run qwenn3\nError: pull model manifest: file does not exist\n",
    "model_not_pulled": requests(served(), 6, "120µs", 20, 404).text(),
    "pull_stalled": "$ ollama pull a:8b\nError: max retries exceeded: EOF\n",
    "registry_certificate_not_trusted": CERTIFICATE,
    "bad_request_400": requests(served(), 6, "120µs", 20, 400).text(),
    "cloud_disabled": '{"error":"ollama cloud is disabled: remote model is unavailable"}\n',
    "cloud_sign_in_missing": requests(served(), 6, "120ms", 20, 401).text(),
    "cloud_usage_limit_reached": requests(served(), 6, "120ms", 20, 429).text(),
    "llm_library_forces_cpu": served("0.3.12", OLLAMA_LLM_LIBRARY="cpu").text(),
    "model_lacks_capability": '{"error":"registry.ollama.ai/library/a:1b does not support tools"}\n',
    "registry_access_denied": "$ ollama pull ann/secret\nError: pull model manifest: 401\n",
    "tmp_dir_missing": "Error: stat /tmp/nix-shell-4711-0: no such file or directory\n",
    "unknown_command_flag": unit_file().replace("ollama serve", "ollama serve --host 0.0.0.0"),
    "client_path_unknown": served().gin(404, "4µs", "/v1/api/chat").text(),
}  # fmt: skip

# The same without what makes it wrong: cured, or another value, unit, side or time.
MISSES: dict[str, Machine] = {
    "required_unit_missing": requiring("loaded", "active"),
    "watchdog_ends_server": unit_with("WatchdogSec=30", "WatchdogSec=0"),
    "system_call_filter_forbids_runners": unit_with("SystemCallFilter=@system-service", "SystemCallFilter=~@privileged @resources"),
    "bind_loopback_only": served(listen="[::]:11434").text() + "curl: (7) Failed to connect to 192.168.1.20 port 11434: Connection refused\n",
    "boolean_counts_as_true": drop_in('Environment="OLLAMA_FLASH_ATTENTION=1"'),
    "brew_plist_rewritten": "brew services restart ollama\n~/.homebrew/services/ollama.env: OLLAMA_NUM_PARALLEL=4\n",
    "client_num_ctx_not_sent": served().text() + 'POST /api/chat {"options": {"num_ctx": 32768}}\n',
    "client_server_version_mismatch": "$ ollama --version\nollama version is 0.6.5\n" + served("0.6.5").text(),
    "client_side_variable_in_service": "export OLLAMA_NOHISTORY=1\n",
    "runtime_limit_ends_server": unit_with("RuntimeMaxSec=1h", "RuntimeMaxSec=infinity"),
    "sandbox_blocks_network": unit_with("IPAddressDeny=any", "IPAddressAllow=localhost", "RestrictAddressFamilies=AF_UNIX AF_INET"),
    "unit_type_unfit": unit_with("Type=simple", type="simple", active_state="activating"),
    "cpu_quota_low": unit_with("CPUQuota=5%", "CPUQuota=400%"),
    "command_sets_own_value": set_in("environment", f"{UNIT}.d/zz.conf"),
    "config_newer_than_process": environment("2", "2"),
    "daemon_reload_breaks_gpu_containers": "# systemctl daemon-reload\n# docker exec gpu nvidia-smi\n" + smi(),
    "disk_full": "$ df -h\nFilesystem      Size  Used Avail Use% Mounted on\n/dev/sda2       234G  120G  114G  52% /\n" + served().text(),
    "docker_bypasses_ufw": "$ docker run -d -p 127.0.0.1:11434:11434 ollama/ollama\n$ sudo ufw status\nStatus: active\n",
    "dropin_drops_earlier_environment": unit_file() + drop_in("Environment=", "Environment=OLLAMA_NUM_PARALLEL=2", name="10-a.conf")
    + drop_in("Environment=OLLAMA_MAX_QUEUE=64", name="20-b.conf"),
    "dropin_missing_section_header": drop_in('Environment="OLLAMA_NUM_PARALLEL=4"'),
    "dropin_overridden_by_later_dropin": drop_in("Environment=OLLAMA_HOST=127.0.0.1:11500", name="50-mine.conf")
    + drop_in("Environment=OLLAMA_HOST=127.0.0.1:11500", "Environment=OLLAMA_KEEP_ALIVE=1h"),
    "env_not_in_server_config": drop_in('Environment="HSA_OVERRIDE_GFX_VERSION=10.3.0"') + served("0.3.4", HSA_OVERRIDE_GFX_VERSION="10.3.0").text(),
    "env_set_in_shell_not_service": "export OLLAMA_NUM_PARALLEL=4\n" + served("0.9.0", OLLAMA_NUM_PARALLEL="4").text(),
    "env_wrong_side_of_wsl": "$ wsl -d Ubuntu systemctl status ollama    # WSL2\n" + drop_in("Environment=OLLAMA_NUM_PARALLEL=4"),
    "environment_file_overrides_dropin": env_file("6"),
    "environment_file_missing": env_file_gone(True),
    "execstart_203_exec": unit_file("ExecStart=/usr/local/bin/ollama serve") + journal("Started ollama.service - Ollama Service."),
    "gpu_error_in_kernel": XID + served().text(),
    "gpu_spread_unneeded": spread(14000, 13000),
    "gui_app_without_session": "Failed to start: the port is taken\n" + served().text(),
    "http_proxy_hijacks_local_api": "something went wrong\nHTTP_PROXY=http://10.1.1.1:8080\nNO_PROXY=localhost,127.0.0.1,0.0.0.0\n",
    "http_proxy_ignored": 'Error: pull model manifest: Get "https://registry.ollama.ai/v2/library/x/manifests/latest": dial tcp 1.2.3.4:443: connect: connection refused\n',
    "invalid_option_flood": options(0),
    "launchagent_needs_login": "~/Library/LaunchAgents/com.ollama.plist\nstarts when anna logs in\n" + served().text(),
    "launchctl_setenv_not_persistent": "export OLLAMA_NUM_PARALLEL=4\n" + Log("0.9.0").config(OLLAMA_NUM_PARALLEL="4").listen().gpu("Apple M2", lib="metal").text(),
    "launchctl_wrong_domain": "launchctl setenv OLLAMA_HOST 0.0.0.0\n",
    "ld_preload_in_unit": drop_in("Environment=LD_LIBRARY_PATH=/opt/vgpu", name="vgpu.conf"),
    "llama_arg_without_effect": served().load(4096, 1).raw(OVERRIDDEN.format(name="HOST", option="host")).text(),
    "log_not_kept": unit_with("LogLevelMax=info"),
    "sandbox_makes_models_read_only": unit_with("ProtectSystem=strict", "ReadWritePaths=/usr/share/ollama", protect_system="strict"),
    "sandbox_hides_models_dir": unit_with("InaccessiblePaths=/usr/share/ollama", "InaccessiblePaths="),
    "system_call_filter_kills_server": journal("ollama.service: Main process exited, code=killed, status=15/TERM"),
    "service_key_not_readable": key_of(998),
    "api_answers_nothing": silent(777),
    "resource_limit_low": unit_with("LimitNOFILE=1048576", "TasksMax=infinity", "LimitNPROC=80%"),
    "execstart_runs_no_server": unit_with(exec_start=("/usr/local/bin/ollama", "serve")),
    "dropin_not_readable": dropin_that_is("absent"),
    "pass_environment_passes_nothing": unit_with("PassEnvironment=HOME", pass_environment=("HOME", "LANG")),
    "service_behind_others": unit_with("Nice=-5"),
    "log_lines_suppressed": suppressed("cron.service"),
    "loads_given_up": served().load(4096, 1).load(4096, 1).load(4096, 1).load(4096, 1).text(),
    "malformed_env_assignment": drop_in('Environment="OLLAMA_TMPDIR=/apprun/tmp"'),
    "max_queue_zero": served(OLLAMA_MAX_QUEUE="1").text(),
    "memory_regression_after_upgrade": ps("qwen3-vl:8b     aaaaaaaaaaaa    9.4 GB    100% GPU     16384      4 minutes from now")
    + ps("qwen3-vl:8b     aaaaaaaaaaaa    14 GB     100% GPU     65536      4 minutes from now"),
    "model_stuck_stopping": ps("starcoder2:3b   aaaaaaaaaaaa    3.0 GB    100% GPU     4 minutes from now", context=False),
    "modelfile_num_ctx_overrides": served(OLLAMA_CONTEXT_LENGTH="16384").load(16384, 1, layers=(33, 33)).text(),
    "models_dir_missing": models_folder(PathState(path="/srv/models", type="dir", mode=0o755)),
    "models_in_two_dirs": host(paths={"/usr/share/ollama/.ollama/models/manifests": PathState(path="", type="dir"),
                                      "/root/.ollama/models/manifests": PathState(path="", missing=ABSENT)}),
    "need_daemon_reload": "$ sudo systemctl daemon-reload\n$ systemctl show -p NeedDaemonReload ollama\nNeedDaemonReload=no\n" + served().text(),
    "nixos_acceleration_not_set": 'services.ollama = {\n  enable = true;\n  acceleration = "cuda";\n};\n' + on_cpu("0.1.48").text(),
    "nixos_driver_not_configured": 'services.ollama.acceleration = "cuda";\nservices.xserver.videoDrivers = [ "nvidia" ];\n' + served("0.2.0").text(),
    "no_init_system": ">>> The Ollama API is now available at 127.0.0.1:11434.\n" + ACTIVE + served().text(),
    "num_gpu_option_limits_layers": served().load(4096, 1, layers=(33, 33), ngl=33).text(),
    "ollama_not_installed": program(None),
    "one_blob_under_two_names": twins("x", "y"),
    "origins_open_to_all": served(OLLAMA_ORIGINS="[https://*.example.org http://localhost]").text(),
    "overload_512_default_queue": requests(served(OLLAMA_MAX_QUEUE="16").load(4096, 1), 25, "1m0s", 60).gin(503, "12µs").text(),
    "parallel_exceeds_useful_concurrency": requests(served(OLLAMA_NUM_PARALLEL="8").load(4096, 8), 45, "55s", 10).text(),
    "parallel_is_one": served(OLLAMA_NUM_PARALLEL="4").load(4096, 4, layers=(33, 33)).text(),
    "parallel_reported_but_serial": served(OLLAMA_NUM_PARALLEL="4").load(4096, 4).text() + "llama-server reports parallel=4 and answers four at once\n",
    "placeholder_value_in_config": 'Environment="HTTPS_PROXY=https://proxy.corp.internal:3128"\nOLLAMA_ORIGINS=https://chat.example.com\n',
    "prompt_cache_growth": served().load(4096, 1).raw(CACHE.format(mib="12.000")).text(),
    "proxy_misconfigured": "  location / {\n    proxy_pass http://127.0.0.1:11434;\n    proxy_read_timeout 600s;\n    proxy_buffering off;\n  }\n" + served().text(),
    "proxy_not_in_service": served(HTTPS_PROXY="http://10.0.0.1:3128").text() + 'Error: pull model manifest: Get "https://registry.ollama.ai/v2/library/a/manifests/latest": dial tcp 1.2.3.4:443: i/o timeout\n',
    "proxy_returns_html": "Error: pull model manifest: invalid character 'b' looking for beginning of value\n" + served().text(),
    "ps_says_gpu_but_cpu_busy": served().text() + "the fans are loud while `ollama ps` says 100% GPU\n",
    "queue_building_up": busy(2, True, True, False),
    "rebar_disabled": "Resizable BAR is enabled for this device\n" + served().text(),
    "runner_hung_parent_healthy": ps("qwen3-embedding:4b    aaaaaaaaaaaa    8.7 GB    100% GPU    32768    4 minutes from now") + "curl: (28) Operation timed out after 60001 milliseconds with 4096 bytes received\n",
    "running_server_is_not_the_service": "● ollama.service - Ollama Service\n" + ACTIVE + "$ ollama run a:8b\n",
    "server_not_reachable": "Error: could not connect to ollama app, is it running?\n" + served().text(),
    "service_masked": "me@box:~$ systemctl is-enabled ollama\nenabled\n" + served().text(),
    "server_process_stopped": host(process=Process(pid=900, state="sleeping")),
    "service_restart_loop": journal("ollama.service: Main process exited, code=exited, status=1/FAILURE", "ollama.service: Scheduled restart job, restart counter is at 6.", "Started ollama.service - Ollama Service.")
    + served().load(4096, 1, layers=(33, 33)).gin(200, "1s").text(),
    "settings_in_main_unit": unit_file() + drop_in('Environment="OLLAMA_HOST=127.0.0.1:11500"'),
    "setting_lost_at_reboot": set_in("environment", f"{UNIT}.d/zz.conf"),
    "settings_file_not_read": stray(f"{UNIT}.d/override.conf.bak", "unit", dropin_paths=(f"{UNIT}.d/override.conf",)),
    "several_instances_expected": served().text() + "I expected one copy of each of two models in VRAM\n",
    "size_understated_by_ps": loaded(GIB),
    "slow_after_upgrade": served().text() + "much faster since the update to 0.30.0\n",
    "snap_config_required": "sudo snap install ollama\nsudo snap set ollama host=0.0.0.0\n",
    "snap_confinement_models_path": "sudo snap set ollama models=/var/snap/ollama/common/models\n",
    "swap_thrash": swapping(7 * GIB),
    "unit_refused": refused("loaded"),
    "unset_environment_drops_setting": set_in("environment", f"{UNIT}.d/zz.conf"),
    "systemd_does_not_answer": Facts(missing={"units": Missing("unsupported", "this host is not run by systemd (init: none)")}),
    "unit_file_problem": files("RestartSec=5"),
    "unknown_ollama_variable": "/var/snap/ollama/common/env:\nOLLAMA_MAX_LOADED_MODELS=2\n" + served("0.20.0").text(),
    "user_unit_absent": "$ systemctl --user status ollama\n● ollama.service - Ollama Service\n" + ACTIVE,
    "version_unknown": Log("0.33.0").config().listen().text(),
    "wildcard_bind_shown_as_ipv6": 'OLLAMA_HOST=127.0.0.1\nLISTEN 0      4096        127.0.0.1:11434      0.0.0.0:*    users:(("ollama",pid=902,fd=3))\n',
    "model_name_unknown": "$ ollama run qwenn3\nError: pull model manifest: file does not exist\n$ ollama run qwen3\nsuccess\n",
    "model_not_pulled": requests(requests(served(), 6, "120µs", 20, 404), 1, "2s", 20).text(),
    "pull_stalled": "$ ollama pull a:8b\nError: max retries exceeded: EOF\n$ ollama pull a:8b\nsuccess\n",
    "registry_certificate_not_trusted": CERTIFICATE + "export HTTPS_PROXY=http://10.0.0.1:3128\n",
    "bad_request_400": requests(requests(served(), 6, "120µs", 20, 400), 1, "2s", 20).text(),
    "cloud_disabled": '{"error":"remote model is unavailable"}\n' + served().text(),
    "cloud_sign_in_missing": requests(requests(served(), 6, "120ms", 20, 401), 1, "2s", 20).text(),
    "cloud_usage_limit_reached": requests(requests(served(), 6, "120ms", 20, 429), 1, "2s", 20).text(),
    "llm_library_forces_cpu": served("0.12.6", OLLAMA_LLM_LIBRARY="cpu").text(),
    "model_lacks_capability": "the a:1b model does support tools\n" + served().text(),
    "registry_access_denied": "$ ollama pull ann/secret\nsuccess\n" + served().text(),
    "tmp_dir_missing": "Error: stat /srv/models: no such file or directory\n",
    "unknown_command_flag": unit_file(),
    "client_path_unknown": served().gin(404, "4µs", "/favicon.ico").text(),
}  # fmt: skip
