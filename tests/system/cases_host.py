"""Public cases, rebuilt as unit files, `systemctl` output, shells, containers and what clients print."""

from __future__ import annotations

from tests.system.small import Log, drop_in, journal, on_cpu, ps, served, unit_file

CASES: dict[str, tuple[str, str]] = {}
KEY = "Couldn't find '/var/lib/ollama/.ollama/id_ed25519'. Generating new private key."


def case(name: str, check: str, *texts: str) -> None:
    assert name not in CASES
    CASES[name] = (check, "\n".join(texts))


def died(*lines: str) -> str:
    return journal(*lines, unit="ollama[511]") + journal(
        "ollama.service: Main process exited, code=exited, status=1/FAILURE", "ollama.service: Failed with result 'exit-code'.")  # fmt: skip


# -- exposure and proxies --
case("raw-again-all", "api_exposed_without_auth", served("0.9.1", "[::]:11434", OLLAMA_HOST="http://0.0.0.0:11434").text())
case("opencrust-133", "api_exposed_without_auth", "services:\n  ollama:\n    image: ollama/ollama\n    ports:\n      - \"11434:11434\"\n")
case("vast-185", "api_exposed_without_auth", "OLLAMA_HOST=0.0.0.0:21434\n")
case("rollama-18", "docker_bypasses_ufw", "$ docker run -d -p 11434:11434 ollama/ollama\n$ sudo ufw status\nStatus: active\n")
case("oll-4091", "bind_loopback_only", Log("0.1.32").say("Listening on 127.0.0.1:11434 (version 0.1.32)", source="routes.go:1143").text(), "curl: (7) Failed to connect to 192.168.1.20 port 11434: Connection refused\n")
case("oll-14963", "bind_error_shows_requested_address", "$ OLLAMA_HOST=0.0.0.0 ollama serve\nError: listen tcp 0.0.0.0:11434: bind: address already in use\n",
     'LISTEN 0      4096       127.0.0.1:11434      0.0.0.0:*    users:(("ollama",pid=902,fd=3))\n')  # fmt: skip
case("oll-9960", "http_proxy_hijacks_local_api", "something went wrong\nHTTP_PROXY=http://10.1.1.1:8080\nHTTPS_PROXY=http://10.1.1.1:8080\nOLLAMA_HOST=http://0.0.0.0:11434\nError: listen tcp 0.0.0.0:11434: bind: address already in use\n")
case("oll-15358", "http_proxy_ignored", 'Error: pull model manifest: Get "http://registry.ollama.ai/v2/library/x/manifests/latest": dial tcp 1.2.3.4:80: connect: connection refused\n')
case("oll-7726", "proxy_not_in_service", "export HTTPS_PROXY=http://10.0.0.1:3128\nError: pull model manifest: Get \"https://registry.ollama.ai/v2/library/llama3/manifests/latest\": dial tcp 1.2.3.4:443: i/o timeout\n")
case("oll-6679", "proxy_returns_html", "Error: pull model manifest: invalid character '<' looking for beginning of value\n")
case("oll-6550", "placeholder_value_in_config", 'Environment="HTTPS_PROXY=https://proxy.example.com"\n', "Error: proxyconnect tcp: dial tcp: lookup proxy.example.com on 127.0.0.53:53: no such host\n")
case("oll-465", "proxy_misconfigured", "  location / {\n    proxy_http_version 1.1;\n  }\nHTTP/1.1 504 Gateway Time-out\n")
# -- port and servers --
case("oll-3575", "port_in_use", "Error: listen tcp 127.0.0.1:11434: bind: Only one usage of each socket address (protocol/network address/port) is normally permitted.\n")
case("oll-707", "port_in_use", "$ ollama serve\nError: listen tcp 127.0.0.1:11434: bind: address already in use\n")
case("idx-two-serves-restart-loop", "port_in_use", "".join(died("Error: listen tcp 127.0.0.1:11434: bind: address already in use") + journal(f"ollama.service: Scheduled restart job, restart counter is at {n}.") for n in (19, 20, 21)))
case("oll-5165", "running_server_is_not_the_service", "● ollama.service - Ollama Service\n     Loaded: loaded (/etc/systemd/system/ollama.service; enabled)\n     Active: active (running) since Mon\n$ ollama serve\n")
case("oll-3362", "service_restart_loop", 'time=2024-03-25T10:00:00.000Z level=WARN source=server.go:163 msg="server crash 48 - exit code 1 - respawning"\ntime=2024-03-25T10:00:48.000Z level=ERROR source=server.go:166 msg="failed to restart server exec: already started"\n')
case("oll-9170", "server_panic_restarts", served("0.5.7", OLLAMA_KEEP_ALIVE="2562047h47m16.854775807s", CUDA_VISIBLE_DEVICES="0,1,2").text().replace("time=", "May 04 10:00:00 host ollama[77]: time=") + "May 04 10:00:09 host ollama[77]: panic: runtime error: invalid memory address\n"
     + journal("ollama.service: Main process exited, code=exited, status=2/INVALIDARGUMENT", "ollama.service: Scheduled restart job, restart counter is at 1."))  # fmt: skip
case("idx-overflow-segv", "server_panic_restarts", "May 04 10:00:00 host ollama[77]: SIGSEGV: segmentation violation\nMay 04 10:00:00 host ollama[77]: goroutine 18 [running]:\n" + journal("ollama.service: Main process exited, code=exited, status=2/INVALIDARGUMENT"))
# -- units --
case("oll-3195", "exec_path_missing", journal("ollama.service: Failed to locate executable /usr/bin/ollama: No such file or directory", "ollama.service: Failed at step EXEC spawning /usr/bin/ollama: No such file or directory", "ollama.service: Main process exited, code=exited, status=203/EXEC"))
case("idx-quoted-execstart", "execstart_203_exec", journal("ollama.service: Unable to locate executable '/usr/bin/ollama serve': No such file or directory", "ollama.service: Failed at step EXEC spawning /usr/bin/ollama serve: No such file or directory", "ollama.service: Main process exited, code=exited, status=203/EXEC"))
case("quoted-in-unit", "execstart_203_exec", unit_file('ExecStart="/usr/bin/ollama serve"'))
case("idx-execstartpre-pull", "client_command_in_start_pre", journal("ollama.service: Control process exited, code=exited, status=1/FAILURE", "ollama.service: Failed with result 'exit-code'.", "ollama.service: Start request repeated too quickly."))
case("pre-pull-in-unit", "client_command_in_start_pre", unit_file("ExecStartPre=/usr/local/bin/ollama pull llama3"))
case("idx-ldpreload-missing", "ld_preload_in_unit", drop_in("Environment=LD_PRELOAD=/opt/vgpu/libvgpu.so", name="vgpu.conf"), journal("ollama.service: Main process exited, code=dumped, status=11/SEGV"))
case("oll-7077", "home_not_defined", died("panic: $HOME is not defined", "goroutine 1 [running]:", "github.com/ollama/ollama/envconfig.Models()"))
case("service-masked", "service_masked", "Failed to start ollama.service: Unit ollama.service is masked.\n")
case("oll-11517", "service_not_started_at_boot", journal("multi-user.target: Found ordering cycle on ollama.service/start", "Job ollama.service/start deleted to break ordering cycle starting with multi-user.target/start"))
case("oll-17433", "user_unit_absent", "$ systemctl --user enable ollama\nFailed to enable unit: Unit ollama.service does not exist\n")
case("oll-16191", "no_init_system", ">>> The Ollama API is now available at 127.0.0.1:11434.\nWARNING: systemd is not running\n")
case("oll-4771", "dropin_missing_section_header", drop_in('Environment="OLLAMA_HOST=0.0.0.0"', header=False))
case("oll-4771-status", "dropin_missing_section_header", journal("/etc/systemd/system/ollama.service.d/override.conf:1: Assignment outside of section. Ignoring."))
case("oll-1391", "dropin_missing_section_header", drop_in('Environment="OLLAMA_ORIGINS=192.168.1.*"', 'Environment="OLLAMA_HOST=0.0.0.0"', header=False))
case("oll-5026", "malformed_env_assignment", drop_in('Environment = "OLLAMA_TMPDIR = /apprun/tmp"'))
case("oll-5722", "malformed_env_assignment", "#!/bin/sh\nexport OLLAMA_NUM_PARALLEL:10\nollama serve\n")
case("nemoclaw-3039", "dropin_overridden_by_later_dropin", drop_in("Environment=OLLAMA_HOST=127.0.0.1:11500", name="50-mine.conf"), drop_in("Environment=OLLAMA_HOST=127.0.0.1:11434", name="override.conf"))
case("idx-dropin-zz-debug", "dropin_overridden_by_later_dropin", drop_in("Environment=OLLAMA_DEBUG=1", name="debug.conf"), drop_in("Environment=OLLAMA_DEBUG=0", name="override.conf"))
case("oll-1157", "need_daemon_reload", "Warning: The unit file, source configuration file or drop-ins of ollama.service changed on disk. Run 'systemctl daemon-reload' to reload units.\n")
case("oll-2423", "settings_in_main_unit", unit_file('Environment="OLLAMA_HOST=127.0.0.1:11500"'))
case("oll-11860", "settings_in_main_unit", unit_file('Environment="OLLAMA_NUM_PARALLEL=4"', 'Environment="OLLAMA_KEEP_ALIVE=1h"'))
case("oll-1278", "settings_in_main_unit", unit_file("Environment=OLLAMA_HOST=127.0.0.1:8000", "Environment=OLLAMA_ORIGINS=https://a.example.net"))
case("oll-9648", "client_side_variable_in_service", drop_in("Environment=OLLAMA_NOHISTORY=1"))
case("nix-331069", "unit_sandbox_hides_gpu", unit_file("PrivateDevices=yes"), on_cpu("0.3.0").text())
case("oll-10672", "protecthome_blocks_models_dir", unit_file("ProtectHome=yes", path="/usr/lib/systemd/system/ollama.service"), drop_in("Environment=OLLAMA_MODELS=/home/ollama_models"), journal("ollama.service: Main process exited, code=exited, status=1/FAILURE"))
case("oll-2701", "protecthome_blocks_models_dir", "ProtectHome=yes\nProtectSystem=full\nError: mkdir /home/user/models: permission denied\n")
# -- folders --
case("oll-11558", "service_home_missing", died(KEY, "Error: could not create directory mkdir /var/lib/ollama: permission denied"))
case("oll-9148", "service_home_missing", died(KEY, "Error: could not create directory mkdir /var/lib/ollama: permission denied"))
case("idx-atomic-usr-readonly", "service_home_read_only", died("Couldn't find '/usr/share/ollama/.ollama/id_ed25519'. Generating new private key.", "Error: could not create directory mkdir /usr/share/ollama: read-only file system"))
case("oll-9335", "models_dir_no_access", died("Error: mkdir /mnt/raid_disk/ollama: permission denied"))
case("oll-9337", "models_dir_no_access", died("Error: mkdir /home/user/ollama: permission denied"))
case("oll-4732", "models_dir_no_access", drop_in("Environment=OLLAMA_MODELS=/home/user/models"), died("Error: mkdir /home/user/models: permission denied"))
case("idx-models-path-missing", "models_dir_no_access", died("Error: mkdir /mnt/models2: permission denied"))
case("idx-chown-crash-loop", "models_dir_no_access", died("Error: open /srv/ai/models/blobs: permission denied") + journal("ollama.service: Scheduled restart job, restart counter is at 521."))
case("oll-6301", "models_in_two_dirs", "ollama list is empty, the models are gone\n/usr/share/ollama/.ollama/models\n/home/user/.ollama/models\n")
case("blob-missing", "model_blob_missing", served().say("Load failed", error="open /usr/share/ollama/.ollama/models/blobs/sha256-aaaa: no such file or directory").text())
# -- settings that did not arrive --
case("oll-2940", "env_set_in_shell_not_service", "~/.bashrc:\nexport OLLAMA_MODELS=/data/models\n", served("0.1.48").text())
case("oll-4569", "env_set_in_shell_not_service", "export OLLAMA_NUM_PARALLEL=4\n", served("0.1.38", OLLAMA_NUM_PARALLEL="1").text())
case("oll-5237", "env_wrong_side_of_wsl", "C:\\> setx OLLAMA_NUM_PARALLEL 4\nC:\\> setx OLLAMA_MAX_LOADED_MODELS 2\n$ wsl -d Ubuntu systemctl status ollama    # WSL2\n")
case("rocm-1", "env_not_in_server_config", drop_in('Environment="HSA_OVERRIDE_GFX_VERSION=10.3.0"'), served("0.3.4").text())
case("oll-10011", "env_not_in_server_config", "setx OLLAMA_NUM_PARALLEL 4\n", served("0.5.12").text())
case("oll-14130", "unknown_ollama_variable", drop_in('Environment="OLLAMA_NUM_CTX=6144"', 'Environment="OLLAMA_MAX_CONTEXT=6144"'))
case("idx-igggpu-typo", "unknown_ollama_variable", "docker run -d --device /dev/dri -e OLLAMA_IGGPU_ENABLE=1 ollama/ollama\n")
case("idx-max-vram-removed", "unknown_ollama_variable", "/var/snap/ollama/common/env:\nOLLAMA_MAX_VRAM=40000\n", served("0.20.0").text())
case("bool-off", "boolean_counts_as_true", drop_in('Environment="OLLAMA_FLASH_ATTENTION=off"'))
case("num-abc", "invalid_value", served(OLLAMA_NUM_PARALLEL="1").say("invalid environment variable, using default", "WARN", "config.go:200", key="OLLAMA_NUM_PARALLEL", value="abc", default=1).text())
case("parallel-300", "parallel_above_maximum", served(OLLAMA_NUM_PARALLEL="300").load(4096, 300, ok=False).raw("llama_init_from_model: n_seq_max must be <= 256").text())
# -- macOS, snap, NixOS --
case("oll-3639", "launchctl_setenv_not_persistent", Log("0.1.31").say("Listening on [::]:11434 (version 0.1.31)", source="routes.go:1118").text(),
     "$ launchctl setenv OLLAMA_HOST 0.0.0.0\n", Log("0.1.31").later(9000).say("Listening on 127.0.0.1:11434 (version 0.1.31)", source="routes.go:1118").text())  # fmt: skip
case("oll-11264", "launchctl_setenv_not_persistent", "launchctl setenv OLLAMA_NUM_PARALLEL 4\n", Log("0.9.0").config().listen().gpu("Apple M2", lib="metal").text())
case("oll-3581", "launchctl_wrong_domain", "ssh mac launchctl setenv OLLAMA_HOST 0.0.0.0\n")
case("oll-1501", "brew_plist_rewritten", "brew services restart ollama\nlaunchctl setenv OLLAMA_ORIGINS '*'\n", Log("0.5.1").config().listen().text())
case("idx-brew-cellar-plist", "brew_plist_rewritten", "/opt/homebrew/Cellar/ollama/0.20/homebrew.mxcl.ollama.plist\n<key>OLLAMA_KEEP_ALIVE</key>\n<string>-1</string>\n")
case("oll-2955", "launchagent_needs_login", "~/Library/LaunchAgents/com.ollama.plist\nshould start before login\n")
case("idx-windows-ssh-tray", "gui_app_without_session", "Failed to start: Unable to init instance: Unspecified error\n")
case("memmachine-918", "snap_config_required", "sudo snap install ollama\nexport OLLAMA_HOST=0.0.0.0\n")
case("oll-3062", "snap_confinement_models_path", "sudo snap set ollama models=/data/models\nError: could not connect to ollama app, is it running?\n")
case("nix-291217", "nixos_acceleration_not_set", "services.ollama = {\n  enable = true;\n};\n", on_cpu("0.1.48").text())
case("nix-326913", "nixos_driver_not_configured", 'services.ollama = {\n  enable = true;\n  acceleration = "cuda";\n};\n', on_cpu("0.2.0").text())
_ = ps
case("oll-11613", "wildcard_bind_shown_as_ipv6", 'OLLAMA_HOST=0.0.0.0\nLISTEN 0      4096                *:11434            *:*    users:(("ollama",pid=902,fd=3))\n')
case("oll-8680", "several_instances_expected", "I expected several copies of the same model in VRAM\n")
case("oll-16415", "slow_after_upgrade", "much slower since the update to 0.30.0\n")
case("idx-mlx-parallel", "parallel_reported_but_serial", "the MLX runner reports parallel=4 and behaves like n_slots=1\n")
