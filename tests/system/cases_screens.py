"""Commands and what they print, which only together say what is wrong; and the same screens of healthy machines."""


from __future__ import annotations

D = "/etc/systemd/system/ollama.service.d"
LIST = "NAME               ID              SIZE      MODIFIED\nphi4:14b           ac896e5b8b34    9.1 GB    3 days ago\n"
LOOPBACK = "$ ss -ltn | grep 11434\nLISTEN 0 4096 127.0.0.1:11434 0.0.0.0:*\n"
CONFIG = (
    'time=2026-03-02T09:00:00.100Z level=INFO source=routes.go:1600 msg="server config" env="map[HTTPS_PROXY: OLLAMA_HOST:http://127.0.0.1:11434 OLLAMA_NUM_PARALLEL:1 https_proxy:]"\n'
    'time=2026-03-02T09:00:00.200Z level=INFO source=routes.go:1650 msg="Listening on 127.0.0.1:11434 (version 0.15.2)"\n'
)
FAILED = 'time=2026-03-02T09:05:00.000Z level=INFO source=images.go:700 msg="request failed: Get \\"https://registry.ollama.ai/v2/library/phi4/manifests/14b\\": dial tcp 198.51.100.7:443: {}"\n'
DOWNLOADS = 'time=2026-03-02T09:06:00.000Z level=INFO source=download.go:177 msg="downloading abcdef012345 in 16 291 MB part(s)"\n'
OOM = (
    "Mar 02 09:10:00 nuc kernel: oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/system.slice/ollama.service,task=ollama,pid=801,uid=996\n"
    "Mar 02 09:10:00 nuc kernel: Out of memory: Killed process 801 (ollama) total-vm:19000000kB, anon-rss:15000000kB, file-rss:0kB, shmem-rss:0kB, UID:996\n"
    "Mar 02 09:10:00 nuc systemd[1]: ollama.service: Main process exited, code=killed, status=9/KILL\n"
    "Mar 02 09:10:00 nuc systemd[1]: ollama.service: Failed with result 'oom-kill'.\n"
)
AGAIN = (
    "Mar 02 09:10:03 nuc systemd[1]: ollama.service: Scheduled restart job, restart counter is at 1.\n"
    "Mar 02 09:10:03 nuc systemd[1]: Started ollama.service - Ollama Service.\n"
)
LISTENS = 'Mar 02 09:10:03 nuc ollama[901]: time=2026-03-02T09:10:03.200Z level=INFO source=routes.go:1650 msg="Listening on 127.0.0.1:11434 (version 0.15.2)"\n'


def load(at: str, context: int, model: str = "c" * 64) -> str:
    return (
        f'time=2026-03-02T{at}.500Z level=INFO source=server.go:400 msg="starting llama server" cmd="/usr/local/bin/ollama runner '
        f'--model /usr/share/ollama/.ollama/models/blobs/sha256-{model} --ctx-size {context} --parallel 1 --port 40001"\n'
    )


def answered(at: str, took: str) -> str:
    return f'[GIN] 2026/03/02 - {at} | 200 | {took} |       127.0.0.1 | POST     "/api/chat"\n'


CASES: dict[str, tuple[str, str]] = {
    # shells
    "fish-gx": ("env_set_in_shell_not_service", "anna@pc ~> set -gx OLLAMA_NUM_PARALLEL 4\nanna@pc ~> journalctl -u ollama | tail -2\n" + CONFIG),
    "fish-long-options": ("env_set_in_shell_not_service", "set --universal --export OLLAMA_FLASH_ATTENTION 1\n$ systemctl show ollama -p Environment\nEnvironment=PATH=/usr/bin\n"),
    "fish-config": ("env_set_in_shell_not_service", "$ cat ~/.config/fish/config.fish\nset -x OLLAMA_HOST 0.0.0.0\n" + CONFIG),
    "csh": ("env_set_in_shell_not_service", "% cat ~/.cshrc\nsetenv OLLAMA_NUM_PARALLEL 4\n" + CONFIG),
    "nushell": ("env_set_in_shell_not_service", "$env.OLLAMA_NUM_PARALLEL = 4\n" + CONFIG),
    "fish-variables": ("env_set_in_shell_not_service", "$ grep OLLAMA ~/.config/fish/fish_variables\nSETUVAR --export OLLAMA_NUM_PARALLEL:4\n$ systemctl show ollama -p Environment\nEnvironment=PATH=/usr/local/bin\n"),
    "user-manager": ("env_set_in_shell_not_service", "$ systemctl --user show-environment | grep OLLAMA\nOLLAMA_NUM_PARALLEL=4\n$ systemctl show ollama -p Environment\nEnvironment=PATH=/usr/bin\n"),
    "declare-x": ("env_set_in_shell_not_service", "$ declare -x OLLAMA_NUM_PARALLEL=4\n$ journalctl -u ollama\n" + CONFIG),
    # sections
    "install-section": ("dropin_missing_section_header", f"# {D}/override.conf\n[Install]\nEnvironment=\"OLLAMA_HOST=0.0.0.0\"\n"),
    "complaint-lvalue": ("dropin_missing_section_header", f"Mar 02 09:00:00 nuc systemd[1]: {D}/a.conf:2: Unknown lvalue 'Environment' in section 'Unit', ignoring\n"),
    "complaint-bracket": ("dropin_missing_section_header", f"Mar 02 09:00:00 nuc systemd[1]: {D}/a.conf:2: Unknown key 'Environment' in section [Unit], ignoring.\n"),
    # a file newer than the process
    "stat-y": ("config_newer_than_process", f"$ stat -c '%y %n' {D}/10-x.conf\n2026-03-04 10:00:00.120000000 +0100 {D}/10-x.conf\n$ systemctl show ollama -p ActiveEnterTimestamp -p NeedDaemonReload\nActiveEnterTimestamp=Mon 2026-03-02 09:00:00 CET\nNeedDaemonReload=no\n"),
    "stat-n-y": ("config_newer_than_process", f"$ stat -c '%n %y' {D}/10-x.conf\n{D}/10-x.conf 2026-03-04 10:00:00.120000000 +0100\n$ systemctl show ollama -p ExecMainStartTimestamp\nExecMainStartTimestamp=Mon 2026-03-02 09:00:00 CET\n"),
    "stat-whole": ("config_newer_than_process", f"$ stat {D}/10-x.conf\n  File: {D}/10-x.conf\n  Size: 64\nAccess: 2026-03-04 10:00:00.000000000 +0100\nModify: 2026-03-04 10:00:00.000000000 +0100\n$ ps -o pid,lstart,cmd -C ollama\n    PID                  STARTED CMD\n    801 Mon Mar  2 09:00:00 2026 /usr/local/bin/ollama serve\n"),
    "ls-l": ("config_newer_than_process", f"$ ls -l {D}\ntotal 4\n-rw-r--r-- 1 root root 64 Mar  4 10:00 override.conf\n$ ps -o lstart= -p $(pidof ollama)\nMon Mar  2 09:00:00 2026\n"),
    "ls-long-iso": ("config_newer_than_process", f"$ ls -l --time-style=long-iso {D}/override.conf\n-rw-r--r-- 1 root root 64 2026-03-04 10:00 {D}/override.conf\n$ systemctl status ollama\n● ollama.service - Ollama Service\n     Active: active (running) since Mon 2026-03-02 09:00:00 CET; 2 days ago\n"),
    "ls-environment-file": ("config_newer_than_process", "$ ls -l --full-time /etc/default/ollama\n-rw-r--r-- 1 root root 64 2026-03-04 10:00:00.000000000 +0100 /etc/default/ollama\n$ systemctl show ollama -p ActiveEnterTimestamp\nActiveEnterTimestamp=Mon 2026-03-02 09:00:00 CET\n"),
    "find-newer": ("config_newer_than_process", f"# find /etc/systemd/system/ollama.service.d -newer /proc/$(pidof -s ollama)/stat -name '*.conf'\n{D}/override.conf\n"),
    "environ-empty": ("config_newer_than_process", "$ systemctl show ollama -p Environment\nEnvironment=PATH=/usr/bin OLLAMA_NUM_PARALLEL=3\n$ sudo strings /proc/$(pidof -s ollama)/environ | grep OLLAMA_\n$ systemctl is-active ollama\nactive\n"),
    "date-r": ("config_newer_than_process", f"$ date -r {D}/override.conf\nWed Mar  4 10:00:00 CET 2026\n$ systemctl show ollama -p ActiveEnterTimestamp\nActiveEnterTimestamp=Mon 2026-03-02 09:00:00 CET\n"),
    "environ-differs": ("config_newer_than_process", "$ systemctl show ollama -p MainPID -p Environment\nMainPID=801\nEnvironment=PATH=/usr/bin OLLAMA_NUM_PARALLEL=4\n$ sudo cat /proc/801/environ | tr '\\0' '\\n'\nPATH=/usr/bin\nHOME=/usr/share/ollama\nOLLAMA_NUM_PARALLEL=2\n"),
    "environ-of-a-pid-asked-for": ("config_newer_than_process", "$ systemctl show ollama -p Environment\nEnvironment=PATH=/usr/bin OLLAMA_NUM_PARALLEL=4\n$ sudo cat /proc/$(pgrep -o ollama)/environ | tr '\\0' '\\n'\nPATH=/usr/bin\nOLLAMA_NUM_PARALLEL=2\n"),
    # several files of one command
    "grep-whole-files": ("dropin_overridden_by_later_dropin", f"$ sudo grep -R . {D}\n{D}/a.conf:[Service]\n{D}/a.conf:Environment=OLLAMA_NUM_PARALLEL=8\n{D}/zz.conf:[Service]\n{D}/zz.conf:Environment=OLLAMA_NUM_PARALLEL=1\n"),
    "cat-filtered-with-paths": ("dropin_overridden_by_later_dropin", f"$ systemctl cat ollama | grep -E '^#|PARALLEL'\n# /etc/systemd/system/ollama.service\n# {D}/a.conf\nEnvironment=OLLAMA_NUM_PARALLEL=8\n# {D}/zz.conf\nEnvironment=OLLAMA_NUM_PARALLEL=1\n"),
    # who is refused
    "podman-exec-status": ("bind_loopback_only", "$ podman exec chat curl -s http://host.containers.internal:11434/; echo $?\n7\n" + LOOPBACK),
    "laptop-nc": ("bind_loopback_only", "me@laptop:~$ nc -zv gpu.home.arpa 11434\nnc: connect to gpu.home.arpa (192.0.2.20) port 11434 (tcp) failed: Connection refused\nme@gpu:~$ ss -ltn | grep 11434\nLISTEN 0 4096 127.0.0.1:11434 0.0.0.0:*\n"),
    "windows-test": ("bind_loopback_only", "PS C:\\Users\\me> Test-NetConnection gpu.home.arpa -Port 11434\nTcpTestSucceeded : False\nme@gpu:~$ sudo ss -ltnp | grep 11434\nLISTEN 0 4096 127.0.0.1:11434 0.0.0.0:* users:((\"ollama\",pid=801,fd=3))\n"),
    "http-code-000": ("bind_loopback_only", "me@laptop:~$ curl -s -o /dev/null -w '%{http_code}\\n' http://gpu.home.arpa:11434/\n000\nme@gpu:~$ netstat -ltn\ntcp        0      0 127.0.0.1:11434         0.0.0.0:*               LISTEN\n"),
    # sockets on every interface
    "ss-star": ("api_exposed_without_auth", "# ss -ltnp\nLISTEN 0 4096 *:11434 *:* users:((\"ollama\",pid=801,fd=3))\n"),
    "netstat-v6": ("api_exposed_without_auth", "# netstat -ltnp\ntcp6       0      0 :::11434                :::*                    LISTEN      801/ollama\n"),
    "public-address": ("api_exposed_without_auth", "# ss -ltnp | grep 11434\nLISTEN 0 4096 203.0.113.5:11434 0.0.0.0:* users:((\"ollama\",pid=811,fd=3))\n"),
    "lsof": ("api_exposed_without_auth", "# lsof -nP -iTCP:11434\nollama  801 ollama    3u  IPv6  22110      0t0  TCP *:11434 (LISTEN)\n"),
    # what the installer takes away
    "diff": ("settings_in_main_unit", "$ diff /root/ollama.service.mine /etc/systemd/system/ollama.service\n11d10\n< Environment=\"OLLAMA_KEEP_ALIVE=-1\"\n"),
    "diff-u": ("settings_in_main_unit", "# diff -u /root/ollama.service.old /etc/systemd/system/ollama.service\n--- /root/ollama.service.old\t2026-03-01\n+++ /etc/systemd/system/ollama.service\t2026-03-02\n@@ -8,5 +8,4 @@\n-Environment=\"OLLAMA_HOST=0.0.0.0\"\n"),
    "diff-the-other-way": ("settings_in_main_unit", "$ diff /etc/systemd/system/ollama.service /root/ollama.service.before\n10a11\n> Environment=\"OLLAMA_HOST=0.0.0.0\"\n"),
    "etckeeper": ("settings_in_main_unit", "# git -C /etc diff HEAD~1 -- systemd/system/ollama.service\n--- a/systemd/system/ollama.service\n+++ b/systemd/system/ollama.service\n@@ -8,5 +8,4 @@\n-Environment=\"OLLAMA_NUM_PARALLEL=4\"\n"),
    # two folders
    "manifests": ("models_in_two_dirs", "$ ollama list\n" + LIST + "$ ls ~/.ollama/models/manifests/registry.ollama.ai/library/\ngemma3  qwen3\n"),
    "manifests-ls-l": ("models_in_two_dirs", "$ ollama ls\n" + LIST + "$ sudo ls -l /root/.ollama/models/manifests/registry.ollama.ai/library\ntotal 8\ndrwxr-xr-x 2 root root 4096 Mar  2 09:00 gemma3\ndrwxr-xr-x 2 root root 4096 Mar  2 09:00 qwen3\n"),
    "manifests-of-both": ("models_in_two_dirs", "$ ls /home/pia/.ollama/models/manifests/registry.ollama.ai/library\ngemma3  qwen3\n$ sudo ls /usr/share/ollama/.ollama/models/manifests/registry.ollama.ai/library\nphi4\n"),
    "manifests-found": ("models_in_two_dirs", "$ sudo find / -path '*/manifests/registry.ollama.ai/library/*' -type d 2>/dev/null\n/home/pia/.ollama/models/manifests/registry.ollama.ai/library/qwen3\n/usr/share/ollama/.ollama/models/manifests/registry.ollama.ai/library/phi4\n$ ollama list\n" + LIST),
    "list-empty-home-full": ("models_in_two_dirs", "$ ollama list\nNAME    ID    SIZE    MODIFIED\n$ du -sh ~/.ollama/models\n61G\t/home/pia/.ollama/models\n$ systemctl show ollama -p User\nUser=ollama\n"),
    # a proxy
    "proxy-shell": ("proxy_not_in_service", CONFIG + FAILED.format("i/o timeout") + "$ env | grep -i proxy\nHTTPS_PROXY=http://192.0.2.9:3128\n"),
    "proxy-unreachable": ("proxy_not_in_service", CONFIG + FAILED.format("connect: network is unreachable")),
    "placeholder-proxy": ("placeholder_value_in_config", f"# {D}/proxy.conf\n[Service]\nEnvironment=\"HTTPS_PROXY=http://proxy.example.com:3128\"\nError: pull model manifest: Get \"https://registry.ollama.ai/v2/library/phi4/manifests/14b\": proxyconnect tcp: dial tcp: lookup proxy.example.com: no such host\n"),
    # the log
    "kernel-without-a-host": ("oom_killed", "$ journalctl -k --no-hostname -o short-iso\n2026-03-02T09:10:00+0100 kernel: Out of memory: Killed process 801 (ollama) total-vm:19000000kB, anon-rss:15000000kB\n"),
    "killed-then-started": ("oom_killed", OOM + AGAIN + LISTENS),
    "loads-of-two-contexts": ("model_reload_every_request", load("09:01:01", 4096) + answered("09:01:08", "7.9s") + load("09:02:01", 16384) + answered("09:02:09", "8.8s") + load("09:03:01", 4096) + answered("09:03:08", "7.9s")),
}  # fmt: skip

HEALTHY: dict[str, str] = {
    "fish-erase": "anna@pc ~> set -e OLLAMA_NUM_PARALLEL\n" + CONFIG,
    "fish-same-value": "anna@pc ~> set -gx OLLAMA_NUM_PARALLEL 1\n" + CONFIG,
    "restarted-after-the-edit": f"$ stat -c '%y %n' {D}/10-x.conf\n2026-03-02 08:59:00.120000000 +0100 {D}/10-x.conf\n$ systemctl show ollama -p ActiveEnterTimestamp -p NeedDaemonReload\nActiveEnterTimestamp=Mon 2026-03-02 09:00:00 CET\nNeedDaemonReload=no\n",
    "utc-beside-an-offset": f"$ stat -c '%y %n' {D}/10-x.conf\n2026-03-02 09:30:00.120000000 +0100 {D}/10-x.conf\n$ TZ=UTC systemctl show ollama -p ActiveEnterTimestamp -p NeedDaemonReload\nActiveEnterTimestamp=Mon 2026-03-02 09:00:00 UTC\nNeedDaemonReload=no\n",
    "another-file": "$ stat -c '%y %n' /etc/nginx/conf.d/chat.conf\n2026-03-04 10:00:00.120000000 +0100 /etc/nginx/conf.d/chat.conf\n$ systemctl show ollama -p ActiveEnterTimestamp\nActiveEnterTimestamp=Mon 2026-03-02 09:00:00 CET\n",
    "environ-has-it": "$ systemctl show ollama -p Environment\nEnvironment=PATH=/usr/bin OLLAMA_NUM_PARALLEL=3\n$ sudo strings /proc/$(pidof -s ollama)/environ | grep OLLAMA_\nOLLAMA_NUM_PARALLEL=3\n",
    "environ-same": "$ systemctl show ollama -p MainPID -p Environment\nMainPID=801\nEnvironment=PATH=/usr/bin OLLAMA_NUM_PARALLEL=4\n$ sudo cat /proc/801/environ | tr '\\0' '\\n'\nPATH=/usr/bin\nHOME=/usr/share/ollama\nOLLAMA_NUM_PARALLEL=4\n",
    "timed-out-is-no-refusal": "me@laptop:~$ curl -m 3 http://gpu.home.arpa:11434/\ncurl: (28) Connection timed out after 3001 milliseconds\n" + LOOPBACK,
    "cat-filtered-one-file": f"$ systemctl cat ollama | grep -E '^#|PARALLEL'\n# /etc/systemd/system/ollama.service\n# {D}/a.conf\nEnvironment=OLLAMA_NUM_PARALLEL=8\n",
    "list-and-home": "$ ollama list\n" + LIST + "$ du -sh ~/.ollama/models\n61G\t/home/pia/.ollama/models\n",
    "container-reaches": "$ podman exec chat curl -s http://host.containers.internal:11434/; echo $?\nOllama is running0\n" + LOOPBACK,
    "local-curl": "$ curl -s http://127.0.0.1:11434/api/version; echo $?\n{\"version\":\"0.15.2\"}0\n" + LOOPBACK,
    "ss-loopback": "# ss -ltnp\nLISTEN 0 4096 127.0.0.1:11434 0.0.0.0:* users:((\"ollama\",pid=801,fd=3))\n",
    "another-server-on-every-interface": "# ss -ltnp\nLISTEN 0 4096 127.0.0.1:11434 0.0.0.0:* users:((\"ollama\",pid=801,fd=3))\nLISTEN 0 511 *:80 *:* users:((\"nginx\",pid=700,fd=6))\n",
    "moved-to-a-drop-in": f"$ diff /root/ollama.service.mine /etc/systemd/system/ollama.service\n11d10\n< Environment=\"OLLAMA_KEEP_ALIVE=-1\"\n$ cat {D}/override.conf\n[Service]\nEnvironment=\"OLLAMA_KEEP_ALIVE=-1\"\n",
    "all-listed": "$ ollama list\n" + LIST + "$ ls /usr/share/ollama/.ollama/models/manifests/registry.ollama.ai/library\nphi4\n$ ollama --version\nollama version is 0.15.2\n",
    "registry-reached-later": CONFIG + FAILED.format("i/o timeout") + DOWNLOADS,
    "killed-started-and-works": OOM + AGAIN + LISTENS + "".join(f"Mar 02 09:1{n}:00 nuc ollama[901]: {line}\n" for n, line in enumerate((load("09:11:01", 4096) + answered("09:11:08", "7.9s")).strip().split("\n"), 1)),
    "one-context": load("09:01:01", 4096) + answered("09:01:08", "7.9s") + load("09:12:01", 4096) + answered("09:12:08", "7.9s") + load("09:33:01", 4096) + answered("09:33:08", "7.9s"),
}  # fmt: skip
