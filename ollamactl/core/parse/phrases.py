"""What people paste beside a server's log: words of clients, tools, proxies, shells and installers.

A row names what a line says; checks ask for it by that name, as for the events of the log. These are looked for only
in lines that are no line of the server, of systemd or of the engine, so that a prompt in a log can't speak.
"""

# ruff: noqa: E501 - a pattern is read more easily whole
from __future__ import annotations

import re
from typing import NamedTuple


class Phrase(NamedTuple):
    kind: str
    pattern: str  # without case; named groups become fields


PHRASES: tuple[Phrase, ...] = (
    # systemd and the shell
    Phrase("daemon_reload_needed", r"changed on disk\. Run 'systemctl daemon-reload'|NeedDaemonReload=yes"
           r"|drop-ins? changed on disk"),
    Phrase("bad_setting", r"Unit ollama\S* has a bad unit file setting|LoadState=bad-setting"),
    Phrase("outside_section", r"assignment outside of (?:a )?section"),
    Phrase("malformed_assignment", r"(?<!--)export\s+(?P<name>OLLAMA_\w+)\s*:\s*(?P<value>\S+)"),
    Phrase("malformed_assignment", r"export\s+(?P<name>OLLAMA_\w+)\s+=\s*(?P<value>\S+)"),
    Phrase("malformed_assignment", r"failed to run command ['‘](?P<name>OLLAMA_\w+)=(?P<value>[^'’\n]*)['’]: No such file"),
    Phrase("malformed_assignment", r": (?:line \d+: )?(?P<name>OLLAMA_\w+)=(?P<value>[^\s:]*\S{0,40}): command not found"),
    Phrase("malformed_assignment", r"Invalid environment assignment, ignoring: [\"']?(?P<name>OLLAMA_\w+)\s*[=:]?\s*(?P<value>[^\s\"']*)"),
    Phrase("malformed_assignment", r"environment\s*=\s*[\"']?(?P<name>OLLAMA_\w+)(?:\s+=\s*|\s*:\s*|\s+(?=\d))(?P<value>[^\"'\s]+)"),
    Phrase("command_missing", r"\bollama: (?:command )?not found|command not found: ollama|Command 'ollama' not found|failed to run command ['‘](?:\S*/)?ollama['’]: No such file|: (?:line \d+: )?/\S*/ollama: No such file or directory|['\"]ollama['\"] is not recognized|No such file or directory: ['\"]ollama['\"]|ollama: executable file not found|exec: \"?ollama\"?: (?:executable file )?not found"),
    Phrase("unit:condition_failed", r"\b(?P<what>(?:Condition|Assert)\w+=\S+) was not met"),
    Phrase("start_pre_failed", r"^\s*Process: \d+ ExecStartP(?:re|ost)=(?P<command>.{1,200}) \(code=\w+, (?:status=[1-9]|signal=)\S*\)"),
    Phrase("unit_masked", r"Unit ollama\S* is masked|Loaded: masked|unit file is masked"),
    Phrase("unit_absent", r"Unit ollama\S* (?:could not be found|not found|does not exist)"
           r"|Failed to (?:enable|start|restart|edit) \S*ollama\S*: Unit \S+ not (?:found|loaded)"
           r"|No files found for ollama|Unit file \S*ollama\S* does not exist"),
    Phrase("unit_is_active", r"Active: active \(running\)"),
    Phrase("kv_is_f16", r"K \(f16\)[^\n]{0,40}V \(f16\)|KV (?:self )?size[^\n]{0,30}\bf16\b|cache[^\n]{0,20}\b(?:stays|is|remains|kept)\b[^\n]{0,8}\bf16\b"),
    Phrase("serve_by_hand", r"(?:^|[$#>&;]\s*|nohup\s+|\bsudo\s+|[A-Z_]+=\S+\s+)(?:[\w./~-]*/)?ollama serve(?:\s*&|\s*$|\s*[>2&|])"),
    Phrase("status_203", r"status=203/EXEC"),
    Phrase("restart_counter", r"restart counter is at (?P<counter>\d+)|NRestarts=(?P<more>[1-9]\d*)"),
    Phrase("protect_home", r"ProtectHome=(?:yes|true|tmpfs)"),
    Phrase("sandbox_devices", r"\bdevice allow ?list\b|\bDeviceAllow\s*=\s*lib\.mkForce|PrivateDevices=(?:yes|true)|DevicePolicy=closed"),
    Phrase("daemon_reload_done", r"systemctl daemon-reload\b(?!')|systemd\[1\]: Reloading"),
    Phrase("panic_models", r"envconfig\.Models|UserHomeDir"),
    Phrase("no_systemd", r"System has not been booted with systemd|systemd is not running"),
    Phrase("suspend", r"PM: (?:suspend|hibernation)|systemd-(?:suspend|hibernate|sleep)|suspend entry|suspend/resume|sleep/wake|sleep mode"
           r"|(?:after|from|since|following|once) (?:\w+ ){0,3}(?:suspend|sleep|sleeping|hibernat\w*|resum\w+|wak\w+)\b"
           r"|(?:woke|wake|waking|resum\w+|return\w*) (?:\w+ ){0,2}from (?:\w+ )?(?:sleep|suspend|hibernation)|(?:goes|going|went|put|puts|putting) (?:\w+ ){0,3}(?:to|into) (?:sleep|suspend|hibernat)"),
    Phrase("cpu_instead", r"(?:only|just|always|now|then|still|back|over|switch\w*|fall\w*|fell|default\w*) (?:\w+ ){0,3}(?:on |to |using |uses? |the |my )+CPU\b"
           r"|(?:\buse[sd]?|using|runs?|running|ran|work\w*)(?: \w+){0,4} (?:on |the )?CPU (?:only|instead|rather)|CPU[- ]only"
           r"|(?:refus\w+|fail\w*|stop\w*|not|n't|never|no longer|unable)(?: \w+){0,3} (?:us(?:e|es|ed|ing)|utili[sz]\w+|detect\w*|find\w*|see\w*|recogni[sz]\w+|access\w*) (?:the |my |any |its )?(?:\w+ )?GPUs?\b"
           r"|GPUs? (?:\w+ ){0,3}(?:not|n't|no longer|never|isn't) (?:\w+ )?(?:used|utili[sz]ed|detected|found|recogni[sz]ed|visible|available|working)|GPU (?:usage|utili[sz]ation) (?:\w+ ){0,3}0 ?%|only (?:using|uses|used) (?:the )?CPU|runs? (?:\w+ )?on (?:the )?CPU again"
           r"|GPU (?:\w+ ){0,3}(?:lost|gone|disappear\w*|vanish\w*)|(?:fail\w*|stop\w*|refus\w*) (?:to )?work\w* with \W?(?:CUDA|ROCm|the GPU)"
           r"|no compatible GPUs were discovered"),
    Phrase("after_reboot_cpu", r"\b(?:service|ollama) (?:is |was )?start(?:s|ed)? (?:\w+ ){0,2}(?:faster|earlier|sooner|before)\b[^\n]{0,40}\b(?:GPUs?|driver|nvidia|amdgpu)\b|after (?:a |the |every |each )?(?:re)?boot\b.*\b(?:cpu|(?:no|not|never|without|loses?|lost|\w+n't)\b[^\n]{0,30}\bgpu)"
           r"|(?:GPU|card|CUDA|ROCm)\b[^\n]{0,60}(?:detected|found|recogni[sz]ed|used|works?)\b[^\n]{0,30}after (?:manually )?re-?start\w* (?:the )?(?:ollama|service)"
           r"|(?:not|n't|never|fails? to) (?:detect|find|see|use|recogni[sz]e)[^\n]{0,60}(?:GPU|card)\b[^\n]{0,60}(?:after|from|on|at|following) (?:an? |the |every |each )?(?:fresh |system |clean |cold )?(?:re)?boot\b"),
    # Windows in another language than English: protocol, address and port stand in brackets
    Phrase("bind_error", r"listen tcp (?P<address>\S+): bind: (?!cannot|permission|address|only one)[^()（\n]{3,120}[(（][^()\n]{8,90}[)）]"),
    # clients
    Phrase("client_version_differs", r"client version is \S+|Warning: client version"),
    Phrase("client_cannot_connect", r"(?:could not|couldn't|cannot|can't|unable to) connect to (?:the |a )?(?:running )?ollama|Server Connection Error|Ollama: Network Problem|could not connect to (?:a running )?ollama|could not connect to ollama app"),
    Phrase("arch_linux", r"\b(?:Arch Linux|Arch(?=[' ])|pacman|CachyOS|Manjaro|EndeavourOS|Garuda)\b"),
    Phrase("answer_broken", r"\b(?:Head|Get) \"?http://(?:127\.0\.0\.1|localhost|0\.0\.0\.0):\d+/\"?: (?:read tcp[^\n]*(?:forcibly closed|connection reset)|EOF|net/http: HTTP/1\.x transport connection broken)"),
    Phrase("remote_refused", r"(?:127\.0\.0\.1|localhost)(?::\d+)? (?:works?|answers|is fine)[^\n]{0,24}(?<![\d.])(?:10|172|192)\.\d+\.\d+\.\d+(?::\d+)? (?:does not|doesn't|fails|is refused|not)\b|Connect call failed \('(?:10|172|192)\.|Cannot connect to host host\.docker\.internal|(?:host\.docker\.internal|(?<![\d.])(?:10|172|192)\.\d+\.\d+\.\d+):\d+.*(?:refused|ECONNREFUSED)"
           r"|connect to (?:host\.docker\.internal|(?:10|172|192)\.\d+\.\d+\.\d+) port \d+"
           r"|ECONNREFUSED (?:10|172|192)\."),
    Phrase("connection_refused", r"(?<!\d:443: connect: )(?<!:80: connect: )connection refused|ECONNREFUSED|Failed to connect to \S+ port \d+"
           r"|No connection could be made because the target machine actively refused|Failed to establish a new connection|All connection attempts failed|APIConnectionError(?!: OllamaException - \{)"),
    Phrase("awaiting_headers", r"APITimeoutError|Request timed out\.?$|SocketTimeoutError|timeout awaiting response headers|Client\.Timeout exceeded|HeadersTimeoutError"
           r"|UND_ERR_HEADERS_TIMEOUT|ReadTimeout|httpx\.ReadTimeout|Read timed out"),
    Phrase("given_up_after", r"(?:request|client|connection|ollama|generation)\b[^\n]{0,40}(?:cancel+ed|aborted|dropped|closed|cut off|disconnect\w*|times? out|timed out)(?: \w+){0,2} after (?P<time>\d+ ?(?:s\b|sec\w*|m\b|min\w*))"),
    Phrase("gateway_timeout", r"504 Gateway Time-?out|upstream timed out|HTTP/\S+ 504|\b504\b.*(?:nginx|gateway)"),
    Phrase("stream_broken", r"upstream prematurely closed"),
    Phrase("client_gone_during_load", r"client\b[^\n]{0,20}\b(?:disconnect\w*|gone|clos\w+|giv\w+ up|gave up)\b[^\n]{0,30}\bbefore (?:the |its )?(?:model|load)\b[^\n]{0,12}\b(?:ready|loaded|done|complete)"),
    Phrase("queue_full", r"server busy, please try again"),
    Phrase("status_403", r"\b403\b"),
    Phrase("browser_origin", r"\bCORS\b|(?:chrome|browser|firefox|edge|web)[ -]?extensions?|(?:chrome|moz|safari-web)-extension://|browser plug-?in|-H ['\"]Origin:|\bOLLAMA_ORIGINS\b"),
    Phrase("forbidden_origin", r"blocked by CORS policy|403 Forbidden.*origin|origin.*(?:403|not allowed)|chrome-extension://\S+.*403"),
    Phrase("bad_duration", r"time: (?:missing unit in|invalid|unknown unit) [^\n]*duration|missing unit in duration"),
    Phrase("no_reply", r"timed out after \d{5,} milliseconds with 0 (?:out of|bytes)|\b0 bytes (?:received )?(?:in|after|for) \d{2,} ?(?:s\b|sec|min)"),
    Phrase("no_reply", r"\bzero bytes\b|\bhang(?:s|ing)? (?:indefinitely|for ?ever|infinitely)|\binfinit\w+ hang"),
    Phrase("server_answers", r"/api/(?:version|tags|ps)\b[^\n]{0,80}\b(?:keep|still|continue)\w* (?:to )?(?:respond|answer|work|return)"),
    Phrase("needs_newer", r"requires a newer version of Ollama|pull model manifest: 412|may require a newer version"),
    Phrase("runner_killed", r"\bOOMKilled\b(?![\"\x27]?\s?[:=]\s?false)|[Ee]xit(?:ed)?(?: with)? [Cc]ode:?\s+137\b"),
    Phrase("reloaded_each_time", r"unload\w*[^\n]{0,30}\bmodels?\b[^\n]{0,30}\b(?:every|each)\b|(?:repeatedly|constantly|keeps?) (?:\w+ and )?re-?load\w*[^\n]{0,30}\bmodels?\b"
           r"|re-?load\w*[^\n]{0,40}\bmodels?\b[^\n]{0,80}(?:\bcontext\b|num_ctx)|(?:different|chang\w+|var\w+) (?:num_ctx|context)[^\n]{0,80}re-?load|(?:num_ctx|context \w+)[^\n]{0,60}(?:caus\w+|result\w*|trigger\w*)[^\n]{0,60}re-?load"
           r"|re-?(?:load|start|initiali[sz])\w*[^\n]{0,40}\bmodel\b[^\n]{0,50}\b(?:every|each|all the)\b"
           r"|\bmodel\b[^\n]{0,50}re-?load\w*[^\n]{0,50}\b(?:every|each)\b|(?:every|each) (?:\w+ ){1,6}[^\n]{0,40}\bmodel\b[^\n]{0,40}re-?load"),
    Phrase("reloaded_each_time", r"\b(?:trigger|caus|forc)\w*[^\n]{0,40}\bmodel to re-?(?:start|load)|\brequests? to re-?(?:start|load) the model|\bcontext\w*\b[^\n]{0,30}\bunloaded and\b[^\n]{0,30}\bloaded\b"),
    Phrase("runner_exit", r"(?:llama runner|llama-server) process (?:has terminated|no longer running)"
           r"|model runner has unexpectedly stopped|model failed to load\b|error loading (?:llama server|model)|unable to load model"),
    Phrase("ram_too_small", r"model requires more system memory(?: \((?P<needed>[^)]+)\) than is available \((?P<free>[^)]+)\))?"),
    Phrase("host_memory_projection", r"projected to use (?P<needed>\d+ MiB) of host memory vs\. (?P<free>\d+ MiB)"),
    # what a proxy writes down, sends or is used by, though the server's own address was asked
    Phrase("http_proxy_told", r"\bTCP_\w+/\d{3} (?:\d+ )?[A-Z]+ \S*:11434\b|Uses proxy env variable (?:http_proxy|HTTP_PROXY|all_proxy|ALL_PROXY)\b|\bX-Squid-Error:"),
    Phrase("output_thrown_away", r"\bStandardOutput=null\b|\bLogLevelMax=(?:warning|notice|err|crit|alert|emerg|[0-5])\b"),
    Phrase("unit_type_told", r"\bType=(?P<type>notify(?:-reload)?|forking|dbus|oneshot)\b"),
    Phrase("num_gpu_asked", r"(?:\bPARAMETER|^)\s*num_gpu\s+\d+|[\"']num_gpu[\"']\s*:\s*\d+"),
    Phrase("keep_alive_asked", r"\"keep_alive\"\s*:\s*\"?(?P<keep>\d[\dhms.]*)\"?\s*,[^\n]*\"(?:prompt|messages)\"|\"(?:prompt|messages)\"[^\n]*\"keep_alive\"\s*:\s*\"?(?P<later>\d[\dhms.]*)\"?\s*[,}]"),
    # a request for an answer, not the one by which a model is unloaded
    Phrase("keep_alive_reset", r"\"keep_alive\"\s*:\s*\"?0[ms]?\"?\s*,[^\n]*\"(?:prompt|messages)\"|\"(?:prompt|messages)\"[^\n]*\"keep_alive\"\s*:\s*\"?0[ms]?\"?\s*[,}]"),
    Phrase("something_wrong", r"something went wrong"),
    Phrase("conn_closed", r"wsarecv|forcibly closed"),
    Phrase("num_ctx_on_v1", r"/v1/(?:chat/)?completions.*num_ctx|num_ctx.*/v1/"),
    Phrase("num_ctx_expected", r"context (?:length|size|window).*(?:ignored|not (?:passed|sent|applied)|set in)"),
    Phrase("num_ctx_in_modelfile", r"(?:^\s*num_ctx\s{2,}|\bshow \S+ --parameters\b[^\n]{0,12}\bnum_ctx\s+|[\"']parameters[\"']\s*:\s*\"(?:[^\"\n]*\\n)?num_ctx\s+)(?P<tokens>\d{3,7})\b(?![^\n]*\bPARAMETER)"),
    Phrase("num_ctx_in_modelfile", r"\bPARAMETER\s+num_ctx\s+(?P<tokens>\d{3,7})\b"),
    Phrase("num_ctx_not_in_modelfile", r"no num_ctx|^\s*context length\s+\d+"),
    Phrase("folder_told", r"\b(?:director\w+|folder|drive|mount\w*)\b[^\n]{0,60}\bpermissions?\b[^\n]{0,80}\b(?:incorrect|wrong|denied|not `?755)|\bpermissions?\b[^\n]{0,60}\b(?:director\w+|folder|drive|mount\w*)\b[^\n]{0,60}\b(?:incorrect|wrong)\b"),
    Phrase("keep_alive_reset", r"keep[_ -]?alive\W{0,3} (?:to|is|at|of|as)\W{0,3}(?:[45] ?m\b|[45] min|0\b)(?!\W{0,3} means)|keep[_ -]?alive[^\n]{0,160}(?:reset|back to|always|defaults? to|propagat|ignored|unloaded|neither|not (?:consider|work|appl|pass))[^\n]{0,60}(?:\b[45] ?m\b|\b[45]m\b|(?:4|5|four|five) min|default|after)"
           r"|(?:reset|unload)\w*[^\n]{0,40}(?:5 ?m\b|5 min|five min)[^\n]{0,80}keep[_ -]?alive"),
    Phrase("keep_alive_reset", r"(?:extension|plug-?in|integration|web ?UI|\bclient|\bapp\b)[^\n]{0,60}\bUNTIL\b[^\n]{0,40}\b(?:5|five|4|four) min"
           r"|\bUNTIL\b[^\n]{0,40}\b(?:5|five|4|four) min[^\n]{0,60}(?:extension|plug-?in|integration|web ?UI|\bclient|\bapp\b)"
           r"|(?<![a-z])keep[_ -]?alive\b[^\n]{0,40}\d[^\n]{0,12}\b(?:overrid\w+|overwrit\w+|replac\w+) (?:\w+ ){0,3}(?:default|server|setting|config\w*|OLLAMA_KEEP)"),
    Phrase("keep_alive_expected", r"OLLAMA_KEEP_ALIVE[\"'=: ]+-1|keep_?alive[\"']?\s*[:=]\s*-1|Forever|-1[\"'`]{0,2} (?:for|as|in) (?:the )?[\"'`]?keep[ _-]?alive"),
    Phrase("until_soon", r"[\"'“`][1-5] minutes from now[\"'”`]"),
    Phrase("num_gpu_forced", r"num_gpu[\"']?\s*[:= ]\s*(?:[89]\d|[1-9]\d\d+)\b"),
    # downloads
    Phrase("registry_timeout", r"i/o timeout\b[^\n]{0,40}\bollama pull|\bollama pull\b[^\n]{0,60}\bi/o timeout|(?:download blob|registry\.ollama\.ai|ollama\.com|pull model manifest|dial tcp(?! (?:127\.|0\.0\.0\.0|localhost|\[::)))[^\n]*(?:i/o time(?:d )?out|connection refused|connection reset|first record does not look like a TLS handshake|context deadline exceeded|certificate signed by unknown authority|Forbidden"
           r"|connection timed out|no such host|no route to host|manifests/\S+ EOF|server misbehaving|Temporary failure in name resolution|TLS handshake timeout|network is unreachable)"),
    Phrase("http_plain_manifest", r"Get \"?http://registry"),
    Phrase("html_reply", r"invalid character '?<'?(?: looking for beginning of value|\W*$)"),
    Phrase("models_gone", r"ollama (?:ls|list)\b\W{0,2}(?: \w+){0,2} ?(?:n't|not)? (?:shows?|lists?|display\w*) (?:me )?(?:nothing|no models?|anything|any\b|none)(?! yet)|doesn't show anything[^\n]*ollama (?:ls|list)|ollama (?:ls|list)\W{0,2} (?:doesn't|does not|didn't) (?:show|list)|models? (?:are |is )?(?:gone|disappeared|missing(?! data)|vanish\w*)(?! (?:\w+ ){0,3}(?:minutes?|hours?|seconds?|later|after|as soon|when (?!OLLAMA_)\w+|again|from (?:memory|VRAM|the GPU))\b)|ollama list.*(?:empty|nothing)(?! yet)"),
    Phrase("load_damaged", r"digest mismatch|(?<!running the model: )(?<!retries exceeded: )(?<=\S )unexpected EOF|file is (?:truncated|corrupt)"),
    Phrase("network_storage", r":\S* on /\S+ type (?:nfs4?|cifs|ceph)|(?:nfs|cifs|smb|ceph)\S* .*models"),
    # pulls, and what the server refuses of its clients
    Phrase("registry_certificate", r"(?:registry\.ollama\.ai|ollama\.com|cloudflarestorage\.com|pull model manifest|huggingface\.co|\bhf\.co)[^\n]*x509: (?P<why>[^\n]*)"),
    Phrase("pull_given_up", r"\bmax retries exceeded\b(?! with url)(?:: (?P<why>[^\n]{1,60}))?"),
    Phrase("pull_done", r"^success\s*$"),
    Phrase("model_name_unknown", r"pull model manifest: file does not exist|pull model manifest: 40[04]\b|\bspecified tag is not available in the repository\b"),
    Phrase("model_absent", r"\bmodel \\?[\"'`](?P<model>[^\s\"'`\\]+?)\\?[\"'`] (?:is )?not found\b|\bollama call failed with status code 404\b(?:.*ollama pull (?P<more_model>[\w./:-]*\w))?"
           r"|\b404\b.{0,60}\burl\b[=:( ]*[\"']?https?://[^/\s]+/(?:api/(?:chat|generate|embed(?:dings)?)|v1/(?:(?:chat/)?completions|embeddings))\b"),
    Phrase("registry_denied", r"pull model manifest: (?:401|403)\b|unauthorized: unknown ollama key|not authorized to push to this namespace|unable to push \S+, make sure this namespace exists"),
    Phrase("capability_missing", r"(?:\berror\b|\b400\b|registry\.ollama\.ai|responseerror)[^\n]{0,120}?(?:\\?[\"'](?P<model>[\w./:@+-]+)\\?[\"']|(?P<more_model>[\w.:-]+/[\w./:@+-]+)) does not support (?P<what>tools|thinking|chat|generate|completion|insert|embed\w*|vision)\b"
           r"|^(?!Error)[^\n]{0,120}(?<![\w/.:-])(?P<tagged_model>(?:[\w.-]+/){0,3}[\w.-]+:[\w.-]+) does not support (?P<tagged_what>tools|thinking|chat|generate|vision)\b"
           r"|this model is missing data required for image input"),
    Phrase("bad_request", r"\b400\b\W{1,4}[\w .]{3,60}\b(?:is no longer supported|is required|is invalid|must be)\b|\bjson: cannot unmarshal \w+ into Go (?:struct field|value)\b|\"error\"\W{1,4}invalid character '[^<]|\boption \\?\"\w+\\?\" must be of type \w+|\"error\"\W{1,4}(?:model is required|missing request body)"),
    Phrase("path_unknown", r"^[^\n]{0,60}\b404 page not found\b|\bhttps?://[^\s/\"]+:11434/(?:(?!api/|v1/)|v1/api/|api/v1/)[\w/]{3,40}\"? \"?(?:HTTP/[\d.]+ )?404\b"),
    Phrase("cloud_unauthorized", r"need to be signed in to (?:\w+ ){1,3}run cloud models|\"signin_url\"|\bollama\.com/connect\?name=|\b[\w.]+[:-]cloud\b[^\n]{0,60}\b(?:401|unauthorized)\b|\b(?:401|unauthorized)\b[^\n]{0,60}[\w.][:-]cloud\b"),
    Phrase("cloud_limit", r"\b(?:reached|exceeded) your (?:\w+ ){0,2}usage limit|\bollama\.com/upgrade\b"),
    Phrase("cloud_off", r"\bollama cloud is disabled\b"),
    # containers and exposure
    Phrase("port_published", r"(?:-p|--publish)[ =](?!127\.|localhost|\[::1\])(?:[\d.]+:)?\d+:11434"
           r"|(?:0\.0\.0\.0|\[::\]|:::?):?\d*->11434/tcp|\bollama\b.*(?:0\.0\.0\.0|\[::\]|:::?):?\d*->\d+/tcp|^\s*-\s*[\"']?(?:0\.0\.0\.0:)?\d{2,5}:11434[\"']?\s*$|\bports:?\s*[-\[]?\s*[\"']?\d{2,5}:11434"),
    Phrase("container_refused", r"could not select device driver[^\n]*(?:gpu|nvidia)|unknown or invalid runtime name: nvidia|unresolvable CDI devices|failed to discover GPU vendor"
           r"|nvidia-container-cli[^\n]*(?:driver not loaded|no adapters were found|load library failed|device error|driver error)"),
    Phrase("nvidia_driver_too_old", r"unsatisfied condition: cuda ?>=|please update your driver to a newer version"),
    Phrase("bind_error", r"\b(?:Bind for |bind host port for )(?P<address>\S+?)(?::\d[\d.]+:\d+/tcp)?:? (?:failed: port is already allocated|address already in use)|ports are not available: exposing port TCP (?P<published>\S+)"),
    Phrase("ufw_active", r"\bufw\b"),
    Phrase("memory_limit", r"mem_limit:\s*\S+|--memory[= ]\d+\w*|\bMemory(?:Max|High|Limit)=(?!infinity)\S+|limits:.*memory"
           r"|^\s*memory:\s*[\"']?\d+[GMgm]i?"),
    Phrase("cpu_limit", r"^\s*cpus:\s*[\"']?(?P<cpus>\d+(?:\.\d+)?)\b|\bcpus: ?[\"'](?P<cpus_of>\d+(?:\.\d+)?)|--cpus[= ](?P<cpus_run>\d+(?:\.\d+)?)"),
    Phrase("cpu_throttled", r"\bnr_throttled\W{0,3}(?P<throttled>[1-9]\d*)"),
    Phrase("cpu_periods", r"\bnr_periods\W{0,3}(?P<periods>[1-9]\d*)"),
    Phrase("threads_told", r"\bn_threads\W{0,4}(?P<threads>\d+)|\bnum_thread\W{0,3}(?P<threads_of>\d+) \(auto"),
    Phrase("estimate_told", r"memory\.available=[\"']?\[(?P<free>[\d.]+ [KMGT]iB)\][\"']?[^\n]{0,80}memory\.required\.full=[\"']?(?P<needed>[\d.]+ [KMGT]iB)"),
    Phrase("ps_context", r"\bollama ps\b[^\n]{0,60}\bCONTEXT\b\W{0,3}(?P<tokens>\d{4,7})\b(?! ?(?:→|->))"),
    Phrase("gpu_libraries_gone", r"^(?:find|ls): (?:cannot access )?[‘'\"]?/(?:usr/)?(?:local/)?lib/ollama/?[’'\"]?: No such file"),
    Phrase("gpu_error_told", r"\*ERROR\* (?:Trying to push to a killed entity|ring \S+ timeout)|\bXid (?:code |error |\(PCI[^)\n]*\): )?(?P<code>\d{1,3})\b"),
    Phrase("nginx_location", r"^\s*location\s+\S+\s*\{"),
    Phrase("nginx_proxy_pass", r"proxy_pass\s+https?://\S+"),
    Phrase("nginx_read_timeout", r"proxy_read_timeout\s+(?!60s?;)\S+"),
    Phrase("nginx_bad", r"proxy_buffering\s+on|proxy_pass\s+https?://[^;]*:11434/api/?;"),
    # GPUs
    Phrase("nvml_failed", r"Failed to initialize NVML: Unknown Error"),
    Phrase("driver_mismatch", r"nvidia-driver\S* (\d{3}\.\d+[.\d]*)[^\n]{0,160}Kernel Module +(?!\1)\d{3}\.|Driver/library version mismatch|NVML: Driver|NVML library version"),
    Phrase("uvm_missing", r"/dev/nvidia-uvm'?:? ?(?:cannot|No such|is missing|missing|not found)|nvidia[_-]uvm (?:is )?(?:not loaded|missing|does not exist)"
           r"|cannot access '?/dev/nvidia-uvm|modprobe nvidia[_-]uvm|nvidia-modprobe -u"),
    Phrase("uvm_unsupported", r"\bUVM\b[^\n]{0,30}(?:\bnot|n't) supported"),
    Phrase("uvm_in_use", r"Module nvidia_uvm is in use|nvidia_uvm.*in use"),
    Phrase("cuda_999", r"(?:CUDA|cudart|cuInit|cuda\w*)\D{0,40}\b999\b|error 999"),
    Phrase("driver_version_told", r"(?<!CUDA )Driver Version: (?P<version>\d{3}\.[\d.]+)|(?<!CUDA )(?i:\bdriver(?: version)?\**)[ :=]+(?P<other>\d{3}\.[\d.]+)|NVRM version:.*Kernel Module +(?P<third>\d{3}\.[\d.]+)"),
    Phrase("kfd_denied", r"/dev/kfd[^\n]*(?:permission denied|Operation not permitted)|permissions not set up properly"),
    Phrase("render_denied", r"/dev/dri/render\w*[^\n]*(?:permission denied|Operation not permitted)"),
    Phrase("vgpu", r"\bGRID [A-Z]|\bvGPU\b"),
    Phrase("small_bar", r"(?:resizable bar|rebar|large bar)[^\n]*(?:disabled|not (?:enabled|active|supported)|off)|small bar|reduced BAR size|\bBAR \d+: current size: (?:64|128|256) ?MB"),
    Phrase("gfx_native", r"gfx(?:1103|1150|1151|1102|1100|1101|1200|1201)\b[^\n]*(?:native|supported)|780M|890M|680M"),
    Phrase("gfx_unsupported", r"gfx\d+[^\n]*(?:not supported|unsupported)"),
    Phrase("cpu_busy_though_gpu", r"100% GPU[^\n]*\bCPU\b|CPU[^\n]*(?:busy|100\s?%)[^\n]*(?:ollama ps|GPU)"),
    Phrase("illegal_instruction", r"illegal instruction|SIGILL"),
    Phrase("cpu_type_kvm", r"\b(?:kvm64|qemu64)\b|Common KVM processor|QEMU Virtual CPU"),
    Phrase("package_variant", r"pacman -S\S* ollama\s*$|^(?:extra|community)/ollama \d|ollama-cuda (?:is )?not installed"),
    Phrase("snap_paths", r"\bubuntu core\b|\bsnap (?:on|package|version)\b|/snap/ollama|/var/snap/ollama|snap (?:install|set|restart|list) ollama"),
    Phrase("gpu_no_longer_used", r"GPU (?:is )?no longer used"),
    Phrase("installed_without_gpu", r"^(?:WARNING: )?(?:No NVIDIA(?:/AMD)? GPU detected\. (?:Ollama will run|Skipping)|Unable to detect NVIDIA(?:/AMD)? GPU)"),
    # macOS, NixOS
    Phrase("brew_service", r"brew services|homebrew\.mxcl|\bhomebrew service|\bHOMEBREW_PREFIX\b\.ollama|(?:Cellar|/opt)/ollama"),
    Phrase("setenv_fails", r"launchctl setenv\b[^\n]{0,40}(?:\b(?:does|is|did) ?(?:not|n't)|doesn't|didn't) (?:work|take|apply|help)"),
    Phrase("launchagent", r"LaunchAgents?\b"),
    Phrase("before_login", r"must be (?:logged|signed) in|only (?:works?|starts?|runs?) (?:@|at|after|on) (?:the )?log-?in|pre-login|(?:before|without)(?: a| any)? log-?in|no user (?:is )?logged in|could not find domain for user gui|no auto(?:matic)? ?-?log-?in|log(?:s|ged)? in with screen sharing"),
    Phrase("ssh_session", r"\b(?:an? )?ssh session\b|(?:over|via|through|from an?) ssh|^\S+@\S+:.*\$ launchctl|[$#%>❯] ssh (?:-\S+ )*\S+@\S+\s*$|\bssh \S+ launchctl"),
    Phrase("wrong_domain", r"not (?:privileged|permitted) to (?:set|modify) .*domain|Could not (?:find|set) .*domain"),
    Phrase("gui_failed", r"Unable to init instance|Failed to start: Unable"),
    Phrase("nixos_module", r"services\.ollama\b|ollama\s*=\s*\{|pkgs\.ollama\b"),
    Phrase("nixos_acceleration", r"acceleration\s*=\s*\"(?:cuda|rocm)\"|pkgs\.ollama-(?:cuda|rocm|vulkan)|package\s*=[^\n]*ollama-(?:cuda|rocm|vulkan)"),
    Phrase("nixos_driver", r"videoDrivers\s*=[^\n]*(?:nvidia|amdgpu)"),
    # what people say of it in a sentence
    Phrase("overwritten_by_upgrade", r"(?:service|unit) file\b[^\n]{0,60}\b(?:gets?|is|was) (?:always )?(?:overwritten|replaced|reset)\b|\bafter (?:every|each|any) (?:upgrade|update|re-?install)\b[^\n]{0,80}\bagain\b|(?:eras\w+|overwr\w+|overridden|reset|lost|replaced|cleared|re-?insert\w*|wiped|reverts?|reverted)\b[^\n]{0,60}(?:upgrad\w+|updat\w+|re-?install\w*|new release|install(?:er|\.sh| script))"
           r"|(?:upgrad\w+|updat\w+|installer|install\.sh|install script|re-?install\w*|new release)\b[^\n]{0,150}(?:eras\w+|overwr\w+|resets?\b|destroy\w*|clear(?:s|ed)|wipe[sd]?|replaces?\b|delete[sd]?|removes?\b|(?:are|is|get|gets) (?:lost|gone))"),
    Phrase("service_file_told", r"\bollama\.service\b|systemd (?:unit|service|config\w*)|(?:service|unit) (?:file|config\w*)\b|Environment lines?"),
    Phrase("remote_client", r"(?:access|connect|reach|call|use|open)\w*[^\n]{0,60}(?:from|on|by) (?:an?)?other (?:machine|computer|device|pc|host|server|laptop)s?|(?:over|from|in|on|within) (?:the |my )?(?:LAN|local network|(?:same )?network)\b"
           r"|other (?:machine|computer|device|pc|host)s? (?:can ?not|can't|could not|couldn't|are (?:not|un)able)|not reachable from other"),
    Phrase("by_hand_told", r"ollama serve\W{0,3} (?:does(?: not|n't)|will not|won't|cannot|can't)[^\n]{0,40}\b(?:systemd|service|unit|override)\b"),
    Phrase("in_profile", r"(?P<name>OLLAMA_\w+)[^\n]{0,80}\.(?:bashrc|zshrc|profile|bash_profile|zprofile)\b|\.(?:bashrc|zshrc|profile|bash_profile|zprofile)\b[^\n]{0,80}(?P<more_name>OLLAMA_\w+)"),
    Phrase("stays_unset", r"(?P<name>(?:OLLAMA|HSA|CUDA|ROCR|HIP|GGML|LLAMA)_[A-Z_]+)\W{0,4} (?:remains?|stays?|is (?:still|always)|still (?:is|shows?)) (?:empty|unset|blank|the default|default|unchanged|0|false|127\.)"),
    Phrase("runs_locally", r"(?:localhost|127\.0\.0\.1):11434\b[^\n]{0,40}(?:is running|works|reachable|respon[ds]\w+|fine)"),
    Phrase("not_allowed", r"does(?:n't| not) allow|not reachable|unreachable|can(?:not|'t| not) (?:access|connect|reach)|unable to (?:access|connect|reach)"),
    Phrase("no_effect", r"(?:isn't|aren't|wasn't|is not|are not|never) (?:being )?(?:read|sourced|loaded|seen|affected)\b|(?:no|without(?: any)?) effect|ignor(?:ed|es|ing)|not (?:applied|honou?red|respected|used|picked up|working|work|take effect|taking effect)|does(?:n't| not) (?:work|take effect|apply|help)|won't work"),
    Phrase("serial_family", r"\b(?:qwen3-?vl|qwen3\.[56]|qwen35(?:moe)?|qwen3-?next|lfm2(?:moe)?|mllama|llama3\.2-vision|nemotron[-_ ]?(?:h|3)\w*)\b[^\n]*"),
    Phrase("parallel_forced_to_1", r"(?P<architecture>[\w.-]+) (?:models? )?(?:does(?: not|n't)|do(?: not|n't))(?: currently)? support parallel requests"),
    Phrase("answers_in_turn", r"\bwaits? (?:for|until)[^\n]{0,60}(?:complet|finish|end|first|done|other)|(?:second|next|other) (?:one|request)[^\n]{0,30}(?:queues?|waits?)|only (?:\w+ )?(?:1|one) (?:active )?request|one (?:request )?at a time|(?:process\w*|handle[sd]?|serve[sd]?|answer\w*)(?: \w+){0,3} (?:serially|sequentially|1 by 1|one by one)|\b(?:answered|processed|handled|served|run|executed)\b[^\n]{0,30}(?:one (?:by one|after (?:the other|another))|sequential|serial)"),
    Phrase("copies_expected", r"(?:several|two|three|four|multiple|second|\d+) (?:separate |full )?(?:copies|instances|copy|instance) of (?:the|a|each) (?:same )?(?:model|weights)"),
    Phrase("embedding_parallel", r"embedding[^\n]{0,60}\bparallel|\bparallel\b[^\n]{0,60}embedding"),
    Phrase("mlx_parallel", r"\bMLX\b[^\n]*(?:serial|parallel|n_slots|slots)"),
    Phrase("queue_expected", r"MAX_QUEUE[^\n]*(?:still wait|never|no(?:t| one)? (?:rejected|503))"),
    Phrase("one_model_only", r"(?:cannot|can't|can not|never) be loaded (?:simultaneously|together|at the same time|alongside)|MAX_LOADED_MODELS[^\n]*(?:only|one) (?:one )?(?:model|loaded|at a time)"),
    Phrase("unloaded_anyway", r"\b(?:5|five) min\w*\b[^\n]{0,80}\b(?:releas|unload|fre)ed\b|\b(?:unload|releas)\w*\b[^\n]{0,40}\b(?:after|in) (?:about )?(?:5|five) min|(?:still |is |was |gets )unloaded after"),
    Phrase("one_gpu_used", r"\bonly use[sd]? (?:one|1|a single) GPU\b|\b(?:favou?rs|prefers) (?:a single|one) GPU\b|only (?:one|1|uses one)[^\n]{0,20}GPU"),
    Phrase("spread_unneeded", r"\bsplit\w*\b[^\n]{0,40}\b(?:among|over|across|between) (?:both|all)\b[^\n]{0,120}\b(?:counterproductive|slower|needless|unnecessary)\b|(?:spread|split) (?:over|across)[^\n]{0,20}GPUs?[^\n]*(?:fits|would fit|suffic)"),
    Phrase("uneven_split", r"uneven(?:ly)?[^\n]*GPUs?|GPUs? of different sizes?|GPUs? with different VRAM|(?:larger|bigger|smaller|second|other|faster|first) (?:card|GPU)[^\n]*(?:under-?utili[sz]ed|saturated|barely|mostly idle)"
           r"|put(?:s|ting) [\d.]+ ?GB on (?:the )?[^\n]{1,40} and [\d.]+ ?GB on"),
    Phrase("slower_now", r"(?:slower|slow)[^\n]*(?:after|since)[^\n]*(?:update|upgrad|0\.\d+)"),
    Phrase("gpu_memory_taken", r"(?:other|another) (?:program|process|application)s?[^\n]*VRAM"),
    Phrase("kv_too_large", r"\bcontext\b[^\n]{0,60}\bgraph\b[^\n]{0,40}\btoo (?:big|large)\b|\b(?:context|KV cache)\b[^\n]{0,60}\b(?:do|does) ?(?:not|n't)\b[^\n]{0,20}\bfit\b|\bKV cache\b[^\n]{0,20}\boverflows?\b|KV cache[^\n]*(?:exceeds?|too large|does(?: not|n't) fit)"),
    Phrase("tier_told", r"context[^\n]{0,30}\b(?:bas\w+ on|by|from)\b[^\n]{0,30}VRAM|VRAM-based[^\n]{0,20}context|GiB VRAM: [\d,]+ context|default context[^\n]{0,60}VRAM"),
    Phrase("spills_told", r"no longer works? well|(?:not|n't) need the CPU|(?:spill|offload)\w*[^\n]{0,30}(?:CPU|RAM)|very slow|much slower|unresponsive|out of memory|\bOOM\b|fail\w* to load|(?:use|using|used|eat)\w*[^\n]{0,20}(?:the )?CPU|memory usage|no longer (?:fits?|works?)"),
    Phrase("tier_default", r"default_num_ctx[=:]? ?(?:32768|262144)"),
    Phrase("num_ctx_declared", r"num_ctx[^\n]*(?:declared|recorded)|declared[^\n]*num_ctx"),
    Phrase("prompt_half", r"half of (?:the )?(?:num_ctx|context)|num_ctx ?/ ?2"),
    Phrase("slots_share_context", r"ctx-size[^\n]*(?:shared|divided|total)[^\n]*slots?"),
    Phrase("gfx_undiscovered", r"gfx\d+[^\n]*not (?:discovered|detected|found)"),
    Phrase("discovery_timeout", r"GPU discovery[^\n]*(?:timed? ?out|deadline|watchdog)"),
    Phrase("containers_lose_gpu", r"containers? los(?:e|es|t|ing)[^\n]*GPU"
           r"|(?:container|docker)\b[^\n]{0,80}\b(?:fail\w*|los\w+|stop\w*|no longer|ignor\w*)\b[^\n]{0,40}GPUs?\b[^\n]{0,120}(?:\bidle\b|re-?start|some time|(?:a|few|some) (?:while|hours?|days?))"
           r"|re-?start\w*[^\n]{0,30}containers?\b[^\n]{0,40}(?:resolv|fix|help|solv|restor)\w*[^\n]{0,80}GPU"),
    Phrase("container_restart_helps", r"\bdocker (?:stop|restart)\b[^\n]{0,60}\b(?:again|back|fix\w*|helps?)\b|re-?start\w*\W{0,3} (?:of )?(?:the |my |this |that )?(?:\w+ ){0,2}containers?\b"),
    Phrase("gpu_lost_later", r"\b(?:after|since|for) (?:\w+ ){0,4}(?:hours?|days?|while|time|idle)\b[^\n]{0,60}\bstops? using (?:the |my )?(?:\w+ )?GPUs?\b|\bstops? using (?:the |my )?(?:\w+ )?GPUs?\b[^\n]{0,60}\bafter (?:\w+ ){0,4}(?:hours?|days?|while|time|idle)\b"),
    Phrase("tmp_noexec_told", r"\bnoexec\b[^\n]{0,20}\s/tmp\b|(?<![\w/])/tmp\b[^\n]{0,60}\bnoexec\b|/tmp\b[^\n]{0,20}without exec\w+ permission"),
    Phrase("num_ctx_withheld", r"(?:does(?: not|n't)|not|never|fails? to) (?:forward|send|pass|include|transmit)\w* (?:the |a |any )?\W?num_ctx"),
    Phrase("rocm_runner_failed", r"rocm runner[^\n]*fail"),
    Phrase("context_times_slots", r"\b(?:creates?|allocates?|needs?)\b[^\n]{0,30}\bcontext\b[^\n]{0,20}\bfor each (?:parallel|slot|concurrent)|NUM_PARALLEL\b[^\n]{0,60}\banother context"
           r"|\btotal context\b[^\n]{0,20}\d ?[*×x] ?\d|\bnum_?ctx ?[*×x] ?(?:OLLAMA_)?num_?parallel"),
    Phrase("kv_each", r"\bn_ctx_(?:per_)?seq[ =:]+(?P<each>[1-9]\d{2,6})\b"),
    Phrase("kv_size_times", r"kv_size[ =:]+(?P<total>\d+)"),
)  # fmt: skip
LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}  # no other letter: lengths stay


def lowered(pattern: str) -> str:
    """The pattern for text in lower case: matching without case costs four times as much."""
    parts = re.split(r"(\\.|[(][?]P<\w+>)", pattern)
    return "".join(part if at % 2 else part.translate(LOWER) for at, part in enumerate(parts))


_ROWS = [(row, re.compile(lowered(row.pattern))) for row in PHRASES]
LONG = 600  # characters of a line that are looked at


def find(line: str) -> list[tuple[str, dict[str, str]]]:
    """The rows that a line says, each kind once, with fields."""
    text = line[:LONG]
    low = text.translate(LOWER)
    found: dict[str, dict[str, str]] = {}
    for row, pattern in _ROWS:
        if row.kind not in found and (match := pattern.search(low)):
            spans = {name: match.span(name) for name in match.groupdict()}
            found[row.kind] = {name: text[at:end] for name, (at, end) in spans.items() if end > at}
    for fields in found.values():
        for name in ("other", "third"):
            if name in fields:
                fields["version"] = fields.pop(name)
        for name in ("name", "model"):
            if f"more_{name}" in fields:
                fields[name] = fields.pop(f"more_{name}")
        if "more" in fields:
            fields["counter"] = fields.pop("more")
    return list(found.items())
