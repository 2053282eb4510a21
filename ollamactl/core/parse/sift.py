"""Which messages are worth reading: cheap tests on bytes, before anything is decoded.

A server at work writes some forty lines of llama.cpp chatter for each request; a journal of a million lines
holds a few ten thousand that say something.
"""

from __future__ import annotations

import re

# Lines of unknown shape are read if one of these stands in them. Short stems: the registry of events decides, and a
# test sees to it that each of its rows has one.
_STEMS = re.compile(
    rb"rror|anic|ailed|fatal|denied|memory|no such file|No such|kill|SIG|ASSERT|busy|too old|unsupported|Unsupported"
    rb"|not supported|orward compat|in use|NVRM|Xid|no space|No space|read-only|Read-only|id_ed25519|environ"
    rb"|buffer size|slots|timed out|too many|insufficient|nsufficient|not defined|AVX|oom|goroutine|model loaded"
    rb"|Suppressed |invalid character|\.service|\.conf:|Started |Stopp|Starting |Stopping |Deactivated|Scheduled|OOM"
    rb"|input truncated|context shift|n_seq_max|flash_attn|flash attn|V cache|preloaded|proxyconnect|vk::|usable GPU"
    rb"|GPU is|no GPU|amdgpu|nvidia dev|CUDA-capable|driver|vector ext|kernel image|cache state|prompt cache is"
    rb"|overwritten|undefined symbol|reached end|end of file|TensileLib|Tensile host"
    rb"|allocate|ouldn't find|magic|rchitecture|init failure|cuInit|cudaGet|cudaSet|permissions|/dev/kfd|mismatch"
    rb"|management lib|not running|respawning|could not"
    rb"|too old|an iGPU|overflow|pre-tokenizer|ggml type|of tensors|hyperparameters|newer version|communicate"
    rb"|symbol lookup|may not be enabled|listen tcp|ollama/(?:runner/|llama|server\.)"
    rb"|is not compatible|exceed|corrupted|offset\+size|file bounds|architecture:|shared libraries|rocm library"
    rb"|find tokenizer|load model|context canceled"
    rb"|CUBLAS_STATUS|not initialized|bad_alloc|too small|pipeline par|not responding|cannot find|enough space"
    rb"|required by|wrong shape|projector type|version of Ollama|runner exited|K-shift|illegal instr|0xc000"
    rb"|signal arrived|file exists|not a directory|not permitted|binary not|Not enough|too large"
    rb"|longer than|not loaded|access fault|GPU Hang|with status|device function|POST predict|quota"
    rb"|file not f|may not en|entire model|GPU offload|no longer supp|terminat|double free|prev_size"
    rb"|stack smash|HSA_STATUS|UR_RESULT|ssh: no key|does not support "
)
# What may be passed over without looking at the rest of the line: the chatter of a server at work and of a load.
# In JSON a tab is `\t`. What begins so and says something all the same is excepted here. journalctl reads it too, as a
# regular expression of PCRE.
CHATTER_PATTERN = (
    rb"slot (?:print_timing|get_availabl|init_sampler|process_sing|create_check"
    rb"|launch_slot_: id +\d+ \| task -?\d+ \| s"
    rb"|     release: id +\d+ \| task -?\d+ \| stop processing: n_tokens = \d+, truncated = 0"
    rb"|  operator\(\): id +\d+ \| task -?\d+ \| "
    rb"(?:new prompt|cached n_tokens|restored|checking|prompt processing|forcing full|erased))"
    rb"|srv  (?:      update:    -|        load:|       alloc:|update_slots: all|get_availabl:|server_strea"
    rb"| ?prompt_save|  operator\(\): (?:chat format|operator)|        stop: cancel|        init: )"
    rb"|print_info: (?!n_ctx_train|arch )|llama_model_loader: -|\t(?![\x22])|\\t(?:repeat|dry|top|mirostat)"
    rb"|cmn  common_(?:param|init_: added)|load: +(?:-|control|special|token|printing|\d)"
)
CHATTER = re.compile(CHATTER_PATTERN).match
_SRV_FUNCTIONS = {
    b"  load_model", b"llama_server", b"send_error:  "[:12], b"  send_error", b"        main", b"update_slots",
}  # fmt: skip
_NOISE = {b"cmn ", b"spec", b"\\tre", b"\\tdr", b"\\tto", b"\\tmi", b"\trep", b"\tdry", b"\ttop", b"\tmir"}
_SLOT_WORDS = (b"shift", b"input truncated", b"fail", b"exceed", b"rror", b"too large", b"too long")


def wanted(line: bytes, at: int, end: int) -> bool:
    """Whether the message line[at:end] may say something. Cheap, errs towards True."""
    head = line[at : at + 4]
    if head == b"slot":
        name = line[at + 5 : at + 12]
        if name == b"launch_":
            return line.find(b"processing", at + 17, end) >= 0
        if name == b"     re":
            return line.find(b"truncated = 1", at + 17, end) >= 0
        if name == b"print_t" or name == b"get_ava":
            return False
        if name == b"  load_":
            return line.find(b"n_ctx", at, end) >= 0
        return any(line.find(word, at + 17, end) >= 0 for word in _SLOT_WORDS)
    if head == b"srv ":
        name = line[at + 5 : at + 17]
        if name == b"      update":
            return line.startswith(b":  - cache state", at + 17)
        return name in _SRV_FUNCTIONS or line.find(b"rror", at + 17, end) >= 0 or line.find(b"fail", at + 17, end) >= 0
    if head == b"time" or head == b"[GIN" or head == b"leve" or head == b"sour":
        return True
    if head == b"llam":
        return not line.startswith(b"a_model_loader: -", at + 4)
    if head == b"prin":
        return line.startswith((b"print_info: n_ctx_train", b"print_info: arch "), at)
    if head in _NOISE:
        return head == b"cmn " and line.find(b"fail", at, end) >= 0
    if head == b"load":
        return line.find(b"buffer size", at, end) >= 0 or line.find(b"offloaded", at, end) >= 0 or _stem(line, at, end)
    if head == b'{"fu' or head == b'{\\"f':
        return line.find(b"n_slots", at, end) >= 0 or line.find(b"n_ctx_slot", at, end) >= 0 or _stem(line, at, end)
    if head[:2] in (b"20", b"19", b"ll") or head == b"INFO" or head == b"DEBU" or head == b"clip" or head == b"allo":
        return True
    if head == b"sche" or head == b"reso":
        return line.find(b"buffer size", at, end) >= 0 or line.find(b"lash Attention", at, end) >= 0
    return _stem(line, at, end)


def _stem(line: bytes, at: int, end: int) -> bool:
    return _STEMS.search(line, at, end) is not None
