"""Pasted output of hosts on which nothing is wrong, in our own words: nothing at warning or above may come of it."""

from __future__ import annotations

import json

from tests.system.cases_commands import smi
from tests.system.small import Log, drop_in, journal, on_cpu, ps, served, unit_file

STATUS = """● ollama.service - Ollama Service
     Loaded: loaded (/etc/systemd/system/ollama.service; enabled; preset: enabled)
    Drop-In: /etc/systemd/system/ollama.service.d
             └─override.conf
     Active: active (running) since Mon 2026-05-04 10:00:00 UTC; 3h ago
   Main PID: 4411 (ollama)
      Tasks: 14 (limit: 38000)
     Memory: 1.2G (peak: 1.9G)
        CPU: 12.411s
     CGroup: /system.slice/ollama.service
             └─4411 /usr/local/bin/ollama serve
"""
LOADED = "a:8b    365c0bd3c000    5.6 GB    100% GPU     4096       4 minutes from now"


def as_json(log: Log) -> str:
    """As `journalctl -o json` gives it."""
    fields = {"_PID": "4411", "SYSLOG_IDENTIFIER": "ollama", "_SYSTEMD_UNIT": "ollama.service", "_TRANSPORT": "stdout"}
    rows = [*log.rows, "403 models are gone after a sleep, only using the CPU"]
    return "".join(json.dumps({"MESSAGE": row, **fields}) + "\n" for row in rows)


def loaded(release: str = "0.33.0") -> Log:
    log = served(release).load(4096, 1, layers=(33, 33), kv_mib=512)
    return log.gin(200, "2.1s").gin(200, "800ms").gin(200, "16.7µs", "/api/tags", "GET")


CASES: dict[str, str] = {
    "status": STATUS + "\n" + loaded().text(),
    "status and journal": STATUS + journal(*loaded("0.12.6").rows, unit="ollama[4411]"),
    "unit and drop-in": unit_file() + drop_in('Environment="OLLAMA_KEEP_ALIVE=30m"') + served(OLLAMA_KEEP_ALIVE="30m0s").text(),
    "container": "services:\n  ollama:\n    image: ollama/ollama:0.12.6\n    ports:\n      - \"127.0.0.1:11434:11434\"\n    volumes:\n"
    "      - models:/root/.ollama\n" + "".join(f"ollama-1  | {row}\n" for row in loaded("0.12.6").rows),
    "nvidia-smi": loaded().text() + "$ nvidia-smi\n" + smi("580.95.05", 6100, "1811      G   /usr/lib/xorg/Xorg                  180MiB",
                                                       "4480      C   /usr/local/bin/ollama              5800MiB") + ps(LOADED),
    "fresh on a CPU": "$ ollama --version\nollama version is 0.33.0\n" + on_cpu().text() + ps(),
    "laptop with old release": on_cpu("0.5.7").gin(200, "9.1s").text(),
    "Metal and brew": "$ brew services list\nName   Status  User File\nollama started anna ~/Library/LaunchAgents/homebrew.mxcl.ollama.plist\n"
    + Log("0.21.0").config(OLLAMA_MODELS="/Users/anna/.ollama/models").listen().gpu("Apple M2", "16.0 GiB", "16.0 GiB", "Metal", "0.0", "0.0").text(),
    "modules and nodes": loaded().text() + "$ lsmod | grep nvidia\nnvidia_uvm           4943872  2\nnvidia_drm            131072  4\n"
    "nvidia_modeset       1728512  3 nvidia_drm\nnvidia              98234368  88 nvidia_uvm,nvidia_modeset\n"
    "$ ls -l /dev/nvidia*\ncrw-rw-rw- 1 root root 195,   0 May  4 09:00 /dev/nvidia0\n"
    "crw-rw-rw- 1 root root 195, 255 May  4 09:00 /dev/nvidiactl\ncrw-rw-rw- 1 root root 506,   0 May  4 09:00 /dev/nvidia-uvm\n",
    "groups": loaded().text() + "$ id ollama\nuid=998(ollama) gid=998(ollama) groups=998(ollama),44(video),110(render)\n",
    "free and df": loaded().text() + "$ free -h\n               total        used        free      shared  buff/cache   available\n"
    "Mem:            62Gi       9.1Gi        41Gi       210Mi        12Gi        52Gi\nSwap:          8.0Gi          0B       8.0Gi\n"
    "$ df -h\nFilesystem      Size  Used Avail Use% Mounted on\n/dev/sda2       234G  120G  103G  54% /\n"
    "/dev/loop3       64M   64M     0 100% /snap/core20/2318\n",
    "enabled": "me@box:~$ systemctl is-enabled ollama\nenabled\nme@box:~$ systemctl is-active ollama\nactive\n" + loaded().text(),
    "sockets": loaded().text() + 'LISTEN 0      4096       127.0.0.1:11434      0.0.0.0:*    users:(("ollama",pid=4411,fd=3))\n',
    "one server in ps": "$ ps aux | grep ollama\nollama      4411  0.1  0.2 2131072 54000 ?  Ssl  09:00   0:03 /usr/local/bin/ollama serve\n"
    "anna        9001  0.0  0.0   17868  2300 pts/0 S+ 10:20 0:00 grep ollama\n" + loaded().text(),
    "thanks": "I updated to 0.33 this morning and everything works on my other computer as well, thanks!\n" + loaded().text(),
    "a question": "How do I change the port? I have not set anything yet.\n" + loaded().text(),
    "show and list": loaded().text() + "$ ollama list\nNAME    ID              SIZE      MODIFIED\na:8b    365c0bd3c000    4.7 GB    3 days ago\n"
    "$ ollama show a:8b\n  Model\n    architecture        llama\n    context length      8192\n    embedding length    4096\n  Parameters\n    num_ctx    4096\n",
    "recovered memory": served("0.11.0").say("gpu VRAM usage didn't recover within timeout", "WARN", "sched.go:649", seconds=5.1)
    .load(4096, 1, layers=(33, 33)).gin(200, "2s").text(),
    "release notes": "time=2026-05-04T10:00:00.000Z level=WARN source=model_show_cache.go:362 msg=\"failed to hydrate cloud model show cache\" "
    'model=x error="context deadline exceeded"\n' + loaded().text(),
    "slots of choice": served(OLLAMA_NUM_PARALLEL="4").load(8192, 4, layers=(33, 33), kv_mib=4096).gin(200, "2s").text(),
    "journal as JSON": as_json(loaded()),
    "cut tail": "\n".join(loaded().rows[4:]) + "\n",
    "version of CUDA in a debug log": "CUDA driver version: 11.7\n" + loaded("0.3.14").text(),
    "models that come and go": ps(LOADED) + "\n" + ps("b:8b    365c0bd3c001    5.6 GB    100% GPU     4096       4 minutes from now") + loaded().text(),
    "folders of the service": "$ ls -ld /data /data/models /home/anna\ndrwxr-xr-x 4 root root 4096 May  4 09:00 /data\n"
    "drwx------ 4 ollama ollama 4096 May  4 09:00 /data/models\ndrwx------ 9 anna anna 4096 May  4 09:00 /home/anna\n"
    + drop_in('Environment="OLLAMA_MODELS=/data/models"') + served(OLLAMA_MODELS="/data/models").text(),
    "a model removed": "$ ollama list\nNAME    ID              SIZE      MODIFIED\na:8b    365c0bd3c000    4.7 GB    3 days ago\n"
    "b:8b    365c0bd3c001    4.7 GB    3 days ago\nc:8b    365c0bd3c002    4.7 GB    3 days ago\n$ ollama rm b:8b c:8b\n$ ollama list\n"
    "NAME    ID              SIZE      MODIFIED\na:8b    365c0bd3c000    4.7 GB    3 days ago\n" + loaded().text(),
    "NixOS with ROCm": 'services.ollama = {\n  enable = true;\n  acceleration = "rocm";\n};\n' + served("0.9.0").text(),
    "by hand with a variable": 'OLLAMA_KEEP_ALIVE="30m" /usr/local/bin/ollama serve\n' + served(OLLAMA_KEEP_ALIVE="30m0s").text(),
    "streams stopped by people": Log("0.6.1").say("aborting completion request due to client closing the connection", source="runner.go:654")
    .gin(200, "41s").gin(200, "12s").gin(200, "1m40s").gin(200, "55s").text(),
    "all layers on the GPU, a part of the log": "load_tensors: offloaded 33/33 layers to GPU\nload_tensors:        CUDA0 model buffer size =  4000.00 MiB\n",
    "kubernetes": "".join(f"2026-05-04T10:00:01.123456789Z {row}\n" for row in loaded("0.13.0").rows)
    + "    Limits:\n      memory:  24Gi\n    State:          Running\n    Restart Count:  0\n",
}
