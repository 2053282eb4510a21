# ruff: noqa: SIM905 - word lists read better as text
"""What identifies people and machines and what opens doors, as patterns for `redact`. In every pattern `head`
is kept and `value` is replaced."""

from __future__ import annotations

import ipaddress
import re

# Names that identify nobody; accounts of the system, and what images come with.
GENERIC = frozenset(
    "root ollama nobody daemon bin www-data linuxbrew homebrew ubuntu debian fedora centos rocky alpine arch "
    "pi admin user users guest vagrant ec2-user core docker podman shared public default localhost "
    "localdomain localhost.localdomain ip6-localhost ip6-loopback (none) unknown".split()
)
# Words that logs and units are made of: a person or machine of that name is only taken out where a name must be.
VOCABULARY = frozenset(
    "server service serve model models llama runner engine cuda rocm vulkan metal gpu cpu gin time level info "
    "debug warn warning error msg source systemd journal load loaded slot slots task host home usr var lib "
    "share local etc opt bin sbin run tmp dev proc sys data config true false null none name type path file "
    "port http https com org net linux start stop env environment key value total free used memory cache "
    "context version size kernel main test".split()
)
PUBLIC_HOSTS = re.compile(
    r"(?i)(?:.*\.)?(?:ollama\.ai|ollama\.com|github\.com|githubusercontent\.com|huggingface\.co|hf\.co|"
    r"freedesktop\.org|systemd\.io|debian\.org|ubuntu\.com|nvidia\.com|amd\.com|example\.(?:com|org|net)|"
    r"[\w-]+\.example|localhost|localdomain)\.?"
)

_NAME_CORE = (
    r"(?:KEYS?|APIKEY|TOKENS?|PASSWORD|PASSWD|PASSPHRASE|PASS|PWD_HASH|SECRETS?|CREDENTIALS?|COOKIE|AUTHORIZATION|"
    r"BEARER)(?:_[A-Z0-9]+)*"
)
SENSITIVE_NAME = rf"(?:[A-Z0-9]+_)*{_NAME_CORE}"
SENSITIVE_CORE = (
    r"(?:api[_-]?key|access[_-]?key|private[_-]?key|secret[_-]?key|access[_-]?token|auth[_-]?token|"
    r"api[_-]?token|refresh[_-]?token|hf[_-]?token|bearer[_-]?token|client[_-]?secret|secret|password|passwd|passphrase|"
    r"authorization|set-cookie|cookie)"
)
SENSITIVE_LOWER = rf"(?:[\w-]+[_-])?{SENSITIVE_CORE}"
# Variables that match the pattern and hold no secret.
HARMLESS = re.compile(r".*(?:_FILE|_PATH|_DIR|_COUNT|_LENGTH|_SIZE|_TYPE|_LIMIT)")
_QUOTED = r'"(?:\\.|[^"\\])*"'
_SINGLE = r"'[^'\n]*'"
_WORDS = rf"(?:{_QUOTED}|{_SINGLE}|\\.|[^\s\"'\\\0])*"

KEYED: tuple[re.Pattern[str], ...] = (
    # a whole line, or an entry of /proc/PID/environ: the value runs to its end
    re.compile(rf"(?P<head>(?:^|\0)[ \t]*(?:export[ \t]+)?{SENSITIVE_NAME}=)(?P<value>(?:\\\n|[^\0\n])*)", re.M),
    # "NAME=value with spaces", and the same inside a string of JSON
    re.compile(rf"(?P<head>(?<!\\)\"{SENSITIVE_NAME}=)(?P<value>(?:\\.|[^\"\\\n])*)(?=\")"),
    re.compile(rf"(?P<head>'{SENSITIVE_NAME}=)(?P<value>[^'\n]*)(?=')"),
    re.compile(rf"(?P<head>\\\"{SENSITIVE_NAME}=)(?P<value>(?:(?!\\\").)*)"),
    # NAME=word, NAME="words"
    re.compile(rf"(?P<head>(?<![\w\"']){SENSITIVE_NAME}=)(?P<value>{_WORDS})"),
    # a Go map: NAME:value NEXT:…
    re.compile(rf"(?P<head>(?<=[\[ ]){SENSITIVE_NAME}:)(?P<value>(?:(?! [A-Z][A-Z0-9_]*:)[^\]\"\n])*)"),
    # "name": "value", name=value, name: value, --name value
    re.compile(
        rf"(?i)(?P<head>(?<![\w-])(?:--?)?[\"']?{SENSITIVE_LOWER}[\"']?\s*[:=]\s*(?:(?:Bearer|Basic|Token)\s+)?)"
        rf"(?P<value>{_QUOTED}|{_SINGLE}|\\\"[^\"\\]*\\\"|[^\s\"',;}}\]\\\0]+)"
    ),
    re.compile(rf"(?i)(?P<head>(?<!\S)--{SENSITIVE_LOWER}[ \0]+)(?P<value>{_QUOTED}|{_SINGLE}|[^\s\"',;}}\]\\\0]+)"),
    re.compile(r"(?i)(?P<head>\b(?:Bearer|Basic)\s+)(?P<value>[A-Za-z0-9._~+/=-]{8,})"),
)
# Where a match of one of them may begin, and what its value is made of: `redact_lines` looks how far it runs.
KEY_START = re.compile(
    rf"{_NAME_CORE}[=:]|(?i:{SENSITIVE_CORE}[\"']?(?:\s*[:=]|[ \0]|\s*$)|\b(?:Bearer|Basic)(?:\s|$))"
)
VALUE_GAP = re.compile(r"(?i)[\s\0]*(?:(?:Bearer|Basic|Token)\s+)?")
VALUE = re.compile(_WORDS)
PEM_START = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
TOKENS = re.compile(
    r"(?<![\w-])(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}|(?<!\w)hf_[A-Za-z0-9]{16,}|(?<!\w)gh[pousr]_[A-Za-z0-9]{20,}|"
    r"(?<!\w)github_pat_\w{20,}|(?<!\w)glpat-[\w-]{16,}|(?<!\w)xox[abprs]-[\w-]{10,}|(?<!\w)A[KS]IA[A-Z0-9]{16}|"
    r"(?<!\w)AIza[\w-]{30,}|(?<!\w)nvapi-[\w-]{20,}|(?<!\w)eyJ[\w-]{6,}\.[\w-]{6,}\.[\w-]*|"
    r"(?<=ssh-ed25519 )AAAA[\w+/=]+|(?<=ssh-rsa )AAAA[\w+/=]+|"
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[^-]|-(?!----))*(?:-----END [A-Z ]*PRIVATE KEY-----)?"
)
USERINFO = re.compile(r"(?i)(?P<head>\b[a-z][a-z0-9+.-]*://)(?P<value>[^\s/?#\"'<>\0]*)(?=@)")
PROXY = re.compile(r"(?i)(?P<head>(?<![a-z])[a-z]+_proxy[=:][\"']?)(?P<value>[^\s/?#\"'<>\0]+)(?=@)")
URL_HOST = re.compile(
    r"(?i)(?P<head>\b(?:https?|wss?|socks[45]h?|tcp)://(?:[^\s/?#\"'<>\0@]*@)?(?:\*\.)?)(?P<value>[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)"
)
MAIL = re.compile(
    r"(?<![\w.+-])[\w.+-]+@(?!(?:[\w-]+\.)*(?:service|socket|slice|timer|mount|target|device|scope|path)\b)"
    r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}(?![\w-])"
)
MAC = re.compile(r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])")
IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?!\.?\d)")
IPV6 = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:]|\.\d)")
HOME = re.compile(
    r"(?P<head>/(?:var/|export/|mnt/[a-z]/)?(?:home|Users)/|(?i:[A-Z]:\\{1,4}Users\\{1,4}))(?P<value>(?!\*/)[^\s/\\:\"'<>|,;\0\]\[(){}=]+)"
)
USER = re.compile(
    r"(?P<head>(?<![A-Za-z_])(?:USER|LOGNAME|USERNAME|SUDO_USER|User)=[\"']?)(?P<value>[A-Za-z_][\w.-]*\$?)(?=[\"'\s\0]|$)"
)
HOSTNAME = re.compile(
    r"(?P<head>(?<![A-Za-z_])(?:HOSTNAME|HOST)=[\"']?)(?P<value>[A-Za-z0-9][A-Za-z0-9.-]*)(?=[\"'\s\0]|$)"
)
# `Nov 30 06:25:01 gpubox ollama[123]: …`, `2026-11-30T06:25:01+0000 gpubox ollama[123]: …`
JOURNAL_HOST = re.compile(
    r"(?P<head>(?:^|\n)(?:[^\W\d][\w.]{1,9} +\d{1,2} [\d:]{8}|\d{4}-\d\d-\d\dT[\d:.,+-]+Z?) )"
    r"(?P<value>[A-Za-z0-9][A-Za-z0-9.-]*)(?= (?:[\w.@/()-]+\[\d+\]|kernel): ?)"
)
OLLAMA_HOST = re.compile(
    r"(?P<head>\bOLLAMA_HOST[=:][\"']?)(?P<value>[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)(?=[\"':/\s\0]|$)"
)
HOST_KEYS = frozenset(("hostname", "_HOSTNAME", "__hostname", "HOSTNAME"))
MACHINE_KEYS = frozenset(("_MACHINE_ID", "machine_id", "boot_machine_id"))
TALK_KEYS = frozenset(
    "prompt prompts content messages message_content input inputs response thinking system suffix query text "
    "reasoning_content tool_calls arguments generated_text".split()
)
SAID_LINE = re.compile(r"level=(?:DEBUG|TRACE|DEBUG-\d+)")
SAID = re.compile(
    rf"(?P<head>(?<![\w.])(?:prompts?|contents?|messages?|inputs?|response|thinking|query|body|chunk|piece|completion|"
    rf"string|system|text|request|ids|from)=)(?P<value>{_QUOTED}|[^\s\"]+)"
)
ENGINE_SAID = re.compile(
    r"(?P<head>(?:^|\n)(?:srv|slot|que|res|parse|[Pp]arsed|[Pp]arsing|formatted)[^\n]*?(?:request|response|message|"
    r"chat|prompt|next token|content): +)(?P<value>\S[^\n]*)"
)
REMOVED = re.compile(r"<\d+ characters removed>")
PLACEHOLDER = re.compile(r"(?:user|host|secret)\d+|mail\d+@example\.com|<\d+ characters removed>")
BENCH4 = ipaddress.ip_network("198.18.0.0/15")  # RFC 2544: networks of test benches
DOC6 = ipaddress.ip_network("2001:db8::/32")  # RFC 3849: documentation

# A pattern with that cue is tried only where one of the words stands in the line, in any case.
CUE_WORDS = {
    "key": (
        "key", "token", "pass", "secret", "credential", "cookie", "authorization", "bearer", "basic", "pwd_hash",
    ),
    "token": (
        "sk-", "pk-", "rk-", "hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "akia",
        "asia", "aiza", "nvapi-", "eyj", "ssh-", "private key-----",
    ),
    "url": ("@",),
    "home": ("home/", "users/", "users\\"),
    "user": ("user=", "logname=", "username="),
    "host": ("host=", "hostname=", "ollama_host:"),
    "journal": ("]: ", "kernel: "),
    "level": ("level=debug", "level=trace"),
    "talk": ("request: ", "response: ", "message: ", "chat: ", "prompt: ", "next token: ", "content: "),
}  # fmt: skip
# (what it finds, pattern, its cue), in the order in which they are tried
NAMED: tuple[tuple[str, re.Pattern[str], str], ...] = (
    *(("secret", pattern, "key") for pattern in KEYED),
    ("secret", USERINFO, "url"),
    ("secret", PROXY, "url"),
    ("user", HOME, "home"),
    ("user", USER, "user"),
    ("host", HOSTNAME, "host"),
    ("host", JOURNAL_HOST, "journal"),
    ("host", OLLAMA_HOST, "host"),
)
KINDS = ("user", "host", "ip address", "mac address", "mail address", "secret", "prompt", "machine id")
