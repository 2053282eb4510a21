"""Lines of a server as each release writes them, for machines of a few lines."""

# ruff: noqa: E501 - lines of a log
from __future__ import annotations

from datetime import datetime, timedelta

BLOB = "/usr/share/ollama/.ollama/models/blobs/sha256-"
A, B = BLOB + "a" * 64, BLOB + "b" * 64
OLD_CUDA = 'id=GPU-1 library=cuda variant=v12 compute={cc} driver={driver} name="{name}" total="{total}" available="{free}"'
NEW_GPU = (
    "id={id} filter_id={id} library={lib} compute={cc} name={lib}{id} description=\"{name}\" libdirs=ollama,cuda_v12 "
    'driver={driver} pci_id=0000:0{id}:00.0 type={type} total="{total}" available="{free}"'
)
OLD_CPU = 'id=0 library=cpu variant=avx2 compute="" driver=0.0 name="" total="{total}" available="{total}"'
NEW_CPU = 'id=cpu library=cpu compute="" name=cpu description=cpu libdirs=ollama driver="" pci_id="" type="" total="{total}" available="{total}"'


def numbers(release: str) -> tuple[int, ...]:
    return tuple(int(x) for x in release.split("-")[0].split(".")[:3])


class Log:
    """Writes a log line by line; time goes on by a second with each."""

    def __init__(self, release: str = "0.33.0", prefix: str = "") -> None:
        self.release, self.prefix = release, prefix
        self.rows: list[str] = []
        self.at = datetime(2026, 5, 4, 10, 0, 0)

    def later(self, seconds: float) -> Log:
        self.at += timedelta(seconds=seconds)
        return self

    def raw(self, *texts: str) -> Log:
        self.rows += [self.prefix + text for text in texts]
        return self

    def say(self, msg: str, level: str = "INFO", source: str = "sched.go:500", **fields: object) -> Log:
        self.later(1)
        more = "".join(f" {k.replace('__', '.')}={quoted(v)}" for k, v in fields.items())
        stamp = self.at.strftime("%Y-%m-%dT%H:%M:%S.000Z")
        return self.raw(f"time={stamp} level={level} source={source} msg={quoted(msg)}{more}")

    def line(self, msg: str, rest: str, level: str = "INFO", source: str = "types.go:50") -> Log:
        self.later(1)
        stamp = self.at.strftime("%Y-%m-%dT%H:%M:%S.000Z")
        return self.raw(f"time={stamp} level={level} source={source} msg={quoted(msg)} {rest}")

    def config(self, **env: str) -> Log:
        default = {
            "OLLAMA_NUM_PARALLEL": "1" if numbers(self.release) >= (0, 10) else "0",
            "OLLAMA_HOST": "http://127.0.0.1:11434",
            "OLLAMA_KEEP_ALIVE": "5m0s",
            "OLLAMA_MAX_LOADED_MODELS": "0",
            "OLLAMA_MAX_QUEUE": "512",
            "OLLAMA_FLASH_ATTENTION": "false",
            "OLLAMA_KV_CACHE_TYPE": "",
            "OLLAMA_MODELS": "/usr/share/ollama/.ollama/models",
            "OLLAMA_DEBUG": "false" if numbers(self.release) < (0, 9) else "INFO",
            "OLLAMA_ORIGINS": "[http://localhost https://localhost http://127.0.0.1]",
            "OLLAMA_SCHED_SPREAD": "false",
            "CUDA_VISIBLE_DEVICES": "",
            "HSA_OVERRIDE_GFX_VERSION": "",
            "HTTPS_PROXY": "",
        }
        if numbers(self.release) >= (0, 5, 13):
            default["OLLAMA_CONTEXT_LENGTH"] = "0" if numbers(self.release) >= (0, 15, 5) else "4096"
        body = " ".join(f"{k}:{v}" for k, v in sorted((default | env).items()))
        self.later(1)
        if numbers(self.release) < (0, 7):
            stamp = self.at.strftime("%Y/%m/%d %H:%M:%S")
            return self.raw(f'{stamp} routes.go:1008: INFO server config env="map[{body}]"')
        return self.line("server config", f'env="map[{body}]"', source="routes.go:1919")

    def listen(self, at: str = "127.0.0.1:11434") -> Log:
        return self.say(f"Listening on {at} (version {self.release})", source="routes.go:1972")

    def gpu(self, name: str = "NVIDIA GeForce RTX 3090", total: str = "24.0 GiB", free: str = "23.5 GiB", lib: str = "CUDA",
            cc: str = "8.6", driver: str = "12.8", id: int = 0, type: str = "discrete") -> Log:  # fmt: skip
        if numbers(self.release) < (0, 12, 4):
            text = OLD_CUDA.format(cc=cc, driver=driver, name=name, total=total, free=free)
            return self.line("inference compute", text.replace("library=cuda", f"library={lib.lower()}"), source="types.go:130")
        text = NEW_GPU.format(id=id, lib=lib, cc=cc, name=name, driver=driver, total=total, free=free, type=type)
        return self.line("inference compute", text)

    def cpu(self, total: str = "62.6 GiB") -> Log:
        shape = OLD_CPU if numbers(self.release) < (0, 12, 4) else NEW_CPU
        return self.line("inference compute", shape.format(total=total))

    def tier(self, vram: str, context: int) -> Log:
        return self.line("vram-based default context", f'total_vram="{vram}" default_num_ctx={context}', source="routes.go:2058")

    def load(self, context: int, slots: int = 1, *, model: str = A, layers: tuple[int, int] | None = None, kv_mib: float = 0,
             weights_mib: float = 4000, ngl: int | None = None, embedding: bool = False, ok: bool = True, port: int = 40001,
             more: str = "", device: str = "CUDA0", says: str = "") -> Log:  # fmt: skip
        release = numbers(self.release)
        if release >= (0, 30):
            flags = f"-c {context * slots} -np {slots} --log-verbosity 4 --flash-attn auto -b 512 -ub 512{more}"
            flags += " --embedding" if embedding else ""
            flags += f" -ngl {ngl}" if ngl is not None else ""
            command = f"/usr/local/lib/ollama/llama-server --model {model} --port {port} --host 127.0.0.1 --no-webui --offline {flags}"
            self.line("starting llama-server", f'cmd="{command}"', source="llama_server.go:433")
        elif release >= (0, 11, 5):
            self.line("starting runner", f'cmd="/usr/local/bin/ollama runner --model {model} --port {port}"', source="server.go:400")
            gpu = f"{ngl if ngl is not None else 33}[ID:0 Layers:33(0..32)]"
            self.line("load", f'request="{{Operation:commit LoraPath:[] Parallel:{slots} BatchSize:512 FlashAttention:false '
                      f'KvSize:{context * slots} KvCacheType: NumThreads:8 GPULayers:{gpu} MultiUserCache:false ProjectorPath: '
                      f'MainGPU:0 UseMmap:true}}"', source="runner.go:828")  # fmt: skip
        else:
            n = f" --n-gpu-layers {ngl}" if ngl is not None else ""
            command = f"/usr/local/bin/ollama runner --model {model} --ctx-size {context * slots} --batch-size 512{n} --threads 8 --parallel {slots} --port {port}"
            self.line("starting llama server", f'cmd="{command}{more}"', source="server.go:405")
        if layers:
            self.raw(f"load_tensors: offloaded {layers[0]}/{layers[1]} layers to GPU",
                     f"load_tensors:        {device} model buffer size =  {weights_mib:.2f} MiB")  # fmt: skip
        if kv_mib:
            self.raw(f"llama_kv_cache:      {device} KV buffer size =  {kv_mib:.2f} MiB")
        if says:
            self.raw(says)
        if ok:
            name = "llama-server" if release >= (0, 30) else "llama runner"
            self.say(f"{name} started in 2.10 seconds", source="server.go:1289")
        return self

    def gin(self, status: int, took: str, path: str = "/api/chat", method: str = "POST") -> Log:
        stamp = self.at.strftime("%Y/%m/%d - %H:%M:%S")
        return self.raw(f"[GIN] {stamp} | {status} | {took:>13} |       127.0.0.1 | {method:<8} \"{path}\"")

    def text(self) -> str:
        return "\n".join(self.rows) + "\n"


def quoted(value: object) -> str:
    text = str(value)
    return text if text and all(c.isalnum() or c in "-_./:" for c in text) else '"' + text.replace('"', '\\"') + '"'


def served(release: str = "0.33.0", listen: str = "127.0.0.1:11434", **env: str) -> Log:
    """A start that serves, with one NVIDIA GPU."""
    return Log(release).config(**env).listen(listen).gpu()


def on_cpu(release: str = "0.33.0", **env: str) -> Log:
    return Log(release).config(**env).listen().cpu()


def offload(log: Log, *, layers: tuple[int, int], free: str, full: str, kv: str, graph: str = "500.0 MiB", partial: str = "0 B",
            requested: int = -1, more: str = "") -> Log:  # fmt: skip
    return log.line("offload", f'library=cuda layers.requested={requested} layers.model={layers[1]} layers.offload={layers[0]} layers.split="" '
                    f'memory.available="[{free}]" memory.gpu_overhead="0 B" memory.required.full="{full}" memory.required.partial="{partial}" '
                    f'memory.required.kv="{kv}" memory.required.allocations="[0 B]" memory.weights.total="3.0 GiB" '
                    f'memory.graph.full="{graph}" memory.graph.partial="{graph}"{more}', source="server.go:138")  # fmt: skip


def journal(*lines: str, unit: str = "systemd[1]") -> str:
    return "\n".join(f"May 04 10:00:0{n % 10} host {unit}: {line}" for n, line in enumerate(lines)) + "\n"


def unit_file(*service: str, path: str = "/etc/systemd/system/ollama.service") -> str:
    return "\n".join([f"# {path}", "[Unit]", "Description=Ollama Service", "After=network-online.target", "", "[Service]",
                      *(service if any("ExecStart=" in s for s in service) else ("ExecStart=/usr/local/bin/ollama serve", *service)),
                      "User=ollama", "Group=ollama", "Restart=always", "RestartSec=3", "", "[Install]", "WantedBy=default.target"]) + "\n"  # fmt: skip


def drop_in(*lines: str, name: str = "override.conf", header: bool = True) -> str:
    return "\n".join([f"# /etc/systemd/system/ollama.service.d/{name}", *(["[Service]"] if header else []), *lines]) + "\n"


def ps(*rows: str, context: bool = True) -> str:
    head = "NAME            ID              SIZE      PROCESSOR    CONTEXT    UNTIL" if context else (
        "NAME            ID              SIZE      PROCESSOR    UNTIL")  # fmt: skip
    return "\n".join([head, *rows]) + "\n"
