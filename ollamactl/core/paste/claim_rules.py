"""What a sentence claims, as rules: words for a thing, for its state and for the circumstance.

    CPU only after every reboot                    a GPU + unused + after a boot
    the container loses the card after some hours   a container + a GPU + lost + a while
    NUM_PARALLEL in the unit has no effect          a setting + its place + without effect

A rule names what must stand in one sentence (each of `all`) and what must not (`none`); what it yields is a message
that checks ask for by its kind. Patterns are without case.
"""

# ruff: noqa: E501 - a pattern is read more easily whole
from __future__ import annotations

from typing import NamedTuple

from ollamactl.core import settings

# -- things --
GPU = r"(?:\be?i?GPUs?\b|\b(?:graphics )?cards?\b|\bCUDA\b|\bROCm\b|\bVulkan\b|\b(?:RTX|GTX|RX|Radeon|Quadro|Tesla|GeForce|Arc|Vega)\b|\b(?:NVIDIA|AMD)\b|\b[PVAT]\d{1,3}\b|\b\d{3}M\b|\b[1-5]0[5-9]0(?:s|Ti)?\b(?! ?(?:m?s\b|tok|MiB|MB|GiB)))"
IGPU = r"(?:\biGPUs?\b|\bintegrated (?:GPU|graphics)|\bAPUs?\b|\b(?:[67]80|[89]90|880|860|840)M\b|\b80[56]0S\b|\bStrix\b|\bRyzen AI\b|\bHX 3\d\d\b|\bAI MAX\b|\bArc 1\d\dV\b|\bgfx(?:1103|115\d|90c|1036|1037)\b|\bVega [3678]\b|\bCezanne\b|\bPhoenix\b|\bHawk Point\b)"
CONTAINER = r"(?:\bcontainers?\b|\bdocker\b|\bpodman\b|\bpods?\b|\bk8s\b|\bKubernetes\b|\bcompose\b|\bLXC\b)"
MODEL = r"(?:\bmodels?\b|\b(?:qwen|llama|gemma|mistral|mixtral|deepseek|phi|nomic|gpt-oss|granite)[\w.:-]*)"
UNIT = r"(?:\bunit(?: file)?\b|\bollama\.service\b|\bservice file\b|\bsystemd (?:service|config\w*|unit)\b|\bEnvironment(?:=| lines?| lines? in)|\bdrop-?ins?\b|\boverride\.conf\b)"
NAMES = "|".join(sorted({n.removeprefix("OLLAMA_") for n in settings.REGISTRY if "_" in n.removeprefix("OLLAMA_")}, key=len, reverse=True))
SETTING = rf"(?:\b(?:OLLAMA|HSA|CUDA|ROCR|HIP|GGML|LLAMA)_\w+|\b(?:{NAMES})\b|\b(?:environment )?variables?\b|\bsettings?\b|\bdrop-?ins?\b|\bexports?\b|\bconfig(?:uration)?\b)"
CLIENT = r"(?:\bclients?\b|\bintegrations?\b|\bplug-?ins?\b|\bextensions?\b|\bUI\b|\bWebUI\b|\bHome Assistant\b|\bDify\b|\bFlowise\b|\bContinue\b|\bAider\b|\bLiteLLM\b|\bn8n\b|\bagents?\b|\bapp(?:lication)?s?\b|\bnode\b|\bLangChain\b|\bRAG\w*)"
CONTEXT = r"(?:\bnum_ctx\b|\bn_ctx\b|\bcontext(?:[ _](?:length|size|window))?\b|\bwindow\b)"

# -- states --
UNUSED = (
    r"(?:(?:\b|(?=n't))(?:not|n't|never|no longer|isn't|aren't|stops? being|refuses to be|ceases to be)\b[^.;]{0,24}\b(?:us(?:e|ed|es|ing|able)|found|find|detect\w*|seen?|visible|recogni[sz]\w*|accessible|available|discovered|picked up|supported|utili[sz]\w+|init\w+)\b"
    r"|\bunus(?:ed|able)\b|\binvisible\b|\bundetected\b|\bmissing\b|\blost\b|\bloses?\b|\bgone\b|\bignored\b|\bdisappear\w*|\bvanish\w*|\bno (?:compatible )?GPUs?\b)"
)
ON_CPU = r"(?:\bCPU[- ]only\b|\bonly (?:\w+ ){0,2}(?:on |the )*CPU\b|\b(?:on|to|for|uses?|using|into|runs on|falls? back to|fell back to|switch\w* to) (?:the )?(?:CPU|processor)\b|\bCPU (?:is used|instead|at 100|busy)|\b100 ?% CPU\b|\bwholly (?:on|to) CPU\b|\b(?:always|just|purely) (?:the )?CPU\b|:\s*CPU\b(?!:)|,\s*CPU\b(?: after|\.|$))"
NO_EFFECT = r"(?:\bno effect\b|\bwithout (?:any )?effect\b|\bignor\w+|\bineffective\b|\bdoes nothing\b|\bdo nothing\b|\bnot (?:applied|honou?red|respected|used|effective|picked up|read|passed|processed|take[ns]?\b|in effect|seen)|n't (?:work|apply|take)|\bnever (?:processed|applied|reach\w*|arriv\w*|read)|\bunchanged\b|\bstays?\b|\bremains?\b|\bstill\b|\bdoes not (?:appear|work|apply|take|show|reach|arrive)|\bunset\b|\bnot set\b)"
SERIAL = (
    r"(?:\b(?:serves?|handles?|takes?|process(?:es)?|answers) (?:only )?(?:one|a single)\b|\bone (?:by one|at a time|after (?:the other|another))|\b(?:second|other|next|third) (?:client|user|request|one|call|session)s? waits?\b|\b(?:1|one) by (?:1|one)\b|\bserial(?:ly|i[sz]ed?)?\b|\bsequential\w*|\bin turn\b|\bqueues?\b(?! (?:is |was )?(?:full|limit|test))|\bqueued\b|\bslow each other(?: down)?\b|\bwaits? for\b|\buntil the (?:first|other|previous|one before)(?: \w+)? (?:is |has |was )?(?:finish\w*|done|ends?|ended|complete\w*|through)|\bonly (?:\w+ ){0,2}(?:one|1|a single) (?:\w+ )?(?:slot|request)s?\b|\bsingle slot\b|\bonly slot 0\b|\bnot (?:in )?parallel\b"
    r"|(?:\b|(?=n't))(?:not|n't|cannot|can't) (?:\w+ ){0,3}(?:concurrent\w*|in parallel)|\bslots?[ =:]+1\b(?! ?(?:of\b|/))|-np 1\b|\bparallel[ =:]+1\b)"
)

# -- circumstances --
BOOT = r"(?:\bcold boot\b|\b(?:after|at|on|since|following|until|survive|before)\b[^.;,]{0,20}\b(?:re)?boots?\b|\brebooted\b|\bafter (?:a |the )?restart of the (?:host|machine|computer)|\b(?:after|at|on) power[- ]?(?:on|up)\b|\bfresh (?:re)?boot\b|\bafter boot\b)"
SLEEP = r"(?:\bsuspend\w*|\bresum\w+|\bsleep\w*\b|\bhibernat\w*|\bwak(?:e|es|ing|eup)\b|\bwoke\b)"
UPDATE = r"(?:\b(?:after|since|from|with|by|at|each|every|on)\b[^.;,]{0,22}\b(?:updat\w+|upgrad\w+|re-?install\w*|(?:new(?:er|est)?|latest|last) (?:release|version)|v?0\.\d+(?:\.\d+)?)\b|\bupgrades? (?:of|to)\b|\binstall(?:er|\.sh| script)\b)"
WHILE = r"(?:\bafter (?:a |some )?(?:while|time|idle|days?|hours?|\d+)|\bfor (?:some )?(?:hours|days)\b|\bidle\b|\bsome time\b|\blong-running\b|\bthen CPU\b|\beventually\b|\bovernight\b|\b\d+ ?(?:–|-|to) ?\d+ ?h\b)"
EACH = r"(?:\b(?:each|every|all)\b|\balways\b|\brepeatedly\b|\bconstantly\b|\bkeeps?\b|\bfor ever\b|\bpermanently\b|\bon and on\b|\beach time\b|\banew\b)"
BY_HAND = r"(?:\bby hand\b|\bmanual(?:ly)?\b|\bfrom (?:a |the )?(?:shell|terminal|command line)\b|\bas root\b|\bhand-(?:run|started)\b|\binteractive\w*)"
ELSEWHERE = r"(?:\bother (?:machines?|computers?|hosts?|devices?|PCs?)\b|\banother (?:machine|computer|host|device|PC)\b|\bLAN\b|\b(?:local )?network\b|\bremote(?:ly)?\b|\bfrom outside\b|\bphone\b|\bhost\.docker\.internal\b)"
OLD_GPU = r"(?:\bgfx(?:8\d\d|900|902|9[01]\d(?!a)|1010|101\d)\b|\bRX ?[45][0-9]0\b|\bRX ?5[67]00\b|\bGTX ?[6-9][0-9]0M?\b|\bK[1248]0m?\b|\bcompute(?: capability)? (?:[1-4]\.\d|5\.[02])\b|\bMaxwell\b|\bKepler\b|\bFermi\b|\bPolaris\b|\bFirePro\b|\btoo old\b)"
NOT_BY_ME = r"(?:\b(?:I|we|nobody|they) (?:have |had |has )?(?:never|not|didn't|did not|haven't)(?: ever)? (?:set|configured|changed|touched)\b|\bnobody (?:has |ever )?set\b|\bnever set\b)"
LINUX_SHELLS = r"(?:\.(?:bashrc|zshrc|profile|bash_profile|zprofile)\b|\bexport(?:ed|s)?\b|\bin (?:a|the) shell\b|/etc/environment\b)"


NO_503 = r"\bno (?:requests?|clients?|calls?|one) (?:gets?|got|is|was|were|sees?|saw) (?:an? )?(?:503|refused|rejected)\b|\bnot (?:a single|even one|one)\b[^.;]{0,24}\b(?:rejected|refused|503)\b|\bno(?:ne|t)?(?: (?:an?|one|any|even))*(?: single)? (?:rejected|refused|503)\b|\binstead of (?:an? )?503\b|\bnever (?:an? )?(?:503|refused|rejected)\b|\bwithout (?:an?|any|one)(?: single)? 503\b"


class Rule(NamedTuple):
    """All of `all` and none of `none` in one sentence say `kind`."""

    kind: str
    all: tuple[str, ...]
    none: tuple[str, ...] = ()


RULES: tuple[Rule, ...] = (
    # GPUs
    Rule("cpu_instead", (rf"{ON_CPU}",), (r"CPU/GPU", r"\bparallel calls\b", r"\bupdate\b.*\bspill")),
    Rule("cpu_instead", (GPU, UNUSED), (r"\bunused (?:VRAM|memory)", SETTING + r"[^.]{0,20}" + NO_EFFECT, r"\bmemory\b", r"\bKV\b", r"\bcache\b")),
    Rule("cpu_instead", (GPU, r"\b(?:unable|fails?|failed) to (?:init\w*|use|find|load)\b|\bunknown error\b")),
    Rule("no_avx_told", (r"\bCPU\b|\bprocessor\b", r"\b(?:lacks?|without|no|missing)\b[^.;]{0,6}\bAVX2?\b|\bhas no AVX\b")),
    Rule("vram_empty", (r"\bnothing\b[^.;]{0,12}\bVRAM\b|\bVRAM\b[^.;]{0,20}\b(?:empty|unused|0 ?[MG]i?B)\b|\bno VRAM\b", r"\bCPU\b|\bcores\b|\bslow\b")),
    Rule("nvidia_unused_since", (r"\bNVIDIA\b|\bGTX\b|\bRTX\b|\bTesla\b|\bQuadro\b|\b(?:P40|P100|T4|V100|K80|M40|A\d0|L4)s?\b", rf"(?:{UNUSED}|{ON_CPU})", rf"{UPDATE}"), (SLEEP, r"\bspill|\bcontext\b|\bKV\b|\bpart(?:ly|ially)?\b", r"\bdriver\b[^.]{0,20}\b(?:updat|upgrad)", r"\bIntel\b", CONTAINER + r"[^.]{0,30}\bhours")),
    Rule("after_reboot_cpu", (BOOT, rf"(?:{ON_CPU}|\bCPU\b|(?:{GPU})[^.]{{0,40}}(?:{UNUSED})|(?:{UNUSED})[^.]{{0,30}}(?:{GPU})|\bdiscovery fails\b|\bonly sometimes\b)"), (r"\bdriver\b[^.]{0,20}\bupdat", SLEEP, r"\blaunchctl\b")),
    Rule("after_reboot_cpu", (r"\bstart\w*\b[^.;]{0,24}\bbefore\b[^.;]{0,30}(?:\bnvidia|\buvm\b|\bdrivers?\b|\bGPUs?\b|\bamdgpu\b)",), (r"\bfine\b",)),
    Rule("suspend", (SLEEP,), (r"\btime\.sleep", r"/bin/sleep", r"\bsleep \d")),
    Rule("slow_since_sleep", (SLEEP, r"\bslow\w*|\btimes (?:longer|slower|as long)\b|\blonger\b|\bminutes?\b"), (r"\btime\.sleep", r"/bin/sleep", r"\bsleep \d", r"\bidle\b")),
    Rule("containers_lose_gpu", (CONTAINER, GPU, rf"(?:{UNUSED}|{ON_CPU})", rf"(?:{WHILE}|{BOOT}|\brestart\w*)"), (SLEEP, r"\bhost (?:re)?boot", r"\bdaemon-reload\b(?! does not)")),
    Rule("containers_lose_gpu", (CONTAINER, ON_CPU, WHILE), (SLEEP,)),
    Rule("containers_lose_gpu", (CONTAINER, r"\bNVML\b", r"\berror\b")),
    Rule("containers_lose_gpu", (CONTAINER, WHILE, r"\bCUDA error\b|\bunknown error\b|\bNVML\b")),
    Rule("driver_updated", (r"\bdrivers?\b", r"\b(?:updat|upgrad|chang|install)\w*", rf"(?:{ON_CPU}|{UNUSED}|\bslow\b|\breboot\b|\bfails?\b|\bmismatch\b)"), (r"\btoo old\b", r"\brequir\w+ ", r"\bneeds\b")),
    Rule("hidden_from_unit", (GPU, UNUSED, r"\b(?:unit|service|systemd|module)\b", BY_HAND), (BOOT,)),
    Rule("hidden_from_unit", (GPU, r"\b(?:unit|service|systemd)\b", rf"(?:{UNUSED}|{ON_CPU})", rf"{BY_HAND}|\bfine (?:in|from)"), (BOOT,)),
    Rule("hidden_from_unit", (r"\bDeviceAllow\b|\bPrivateDevices\b", r"\blacks?\b|\bnot in\b|\bmissing\b|\bhides?\b|\bwithout\b|\bonly\b")),
    Rule("gpu_by_hand", (GPU, BY_HAND, r"\b(?:service|unit|module|package|server|it)\b", r"\b(?:uses?|used|finds?|found|detects?|detected?|recogni[sz]es)\b"), (r"\b(?:not|never|no)\b|n't\b", BOOT)),
    Rule("uvm_in_use", (r"\bnvidia_uvm\b", r"\buse count\b|\bin use\b|\bcannot be (?:removed|unloaded)\b|\bstill (?:held|used)\b|\bbusy\b")),
    Rule("gfx_needs_none", (r"\bgfx1[1-3]\d\d\b", r"\bnative(?:ly)?\b|\bout of the box\b|\bby itself\b", r"\bsupport\w*|\bROCm\b")),
    Rule("gfx_override_told", (r"\bHSA(?:_OVERRIDE_GFX_VERSION| override)\b", r"\b(?:leftover|left over|stale|old(?:er)?|former|forgotten|kept)\b|\b(?:still|was) set\b", r"\b(?:harm\w*|crash\w*|breaks?|broke|wrong|no longer|fails?|dies)\b")),
    Rule("gfx_override_told", (r"\bHSA(?:_OVERRIDE_GFX_VERSION| override)\b", r"\b(?:from|for|of) (?:an? |the |my )?(?:older|old|previous|former|other|another|last) (?:card|GPU|APU|machine)\b")),
    Rule("gfx_override_told", (r"\bHSA_OVERRIDE_GFX_VERSION ?= ?\S*\d", r"\b(?:crash\w*|segfault\w*|breaks?|dies|aborts?|SIGSEGV|core dump\w*)\b"), (r"\bwithout\b|\bhelps?\b|\bworks?\b|\bfix\w*|\bneeds?\b",)),
    Rule("gfx_override_told", (r"\bHSA_OVERRIDE_GFX_VERSION\b", r"\bsystem (?:environment )?variables?\b|\bsystem environment\b|\bWindows\b"), (r"\bneeds?\b", r"\bhelps?\b")),
    Rule("uvm_missing", (r"\bLXC\b|\bProxmox\b", r"\b999\b", rf"{BOOT}|\bnvidia-smi\b|\bhost (?:re)?boot\w*")),
    Rule("after_reboot_cpu", (GPU, r"\b(?:after|when|until|once)\b[^.]{0,30}\b(?:service|ollama|it)?\b[^.]{0,10}\brestart\w*"), (CONTAINER, SLEEP, r"\boverride\b", NO_EFFECT)),
    Rule("igpu_unused", (IGPU, rf"(?:{UNUSED}|{ON_CPU}|\bdropped\b|\bunusable\b)"), (r"HSA_OVERRIDE",)),
    Rule("igpu_unused", (IGPU, r"\bGPU\b[^.;,]{0,16}\b(?:idles?|at 0 ?%|0 ?% (?:used|busy|load))"), (r"HSA_OVERRIDE", WHILE)),
    Rule("igpu_unused", (r"\bdropped\b", rf"(?:{IGPU}|(?:\b|_)IGPU_ENABLE\b|\bintegrated\b)")),
    Rule("igpu_unused", (rf"(?:\bAMD\b|{IGPU})", GPU, rf"(?:{UNUSED}|\bunusable\b)", r"\b0\.3\d(?:\.\d+)?\b"), (r"\bEPYC\b|\bThreadripper\b|\bno GPU\b",)),
    Rule("igpu_unused", (r"\btype=iGPU\b", r"\b(?:with the flag|adding|after setting|once)\b")),
    Rule("gpu_unsupported", (OLD_GPU, rf"(?:{UNUSED}|{ON_CPU}|\bfails?\b|\bcrash\w*|\bnot supported\b|\bunsupported\b|\bdrop(?:s|ped) support\b|\bnot work\b|n't work\b)"), (r"\bdriver\b", r"\broot\b|\bpermission")),
    Rule("gpu_unsupported", (GPU, r"\bunsupported\b|\bnot supported by\b"), (r"\bflash\b", r"\bintegrated\b", r"\bkv\b", r"\bsome\b")),
    Rule("gpu_unsupported", (r"\b(?:GPU|card)\b[^.;,]{0,10}\b(?:is |was |being )?too old\b",)),
    Rule("gpu_unsupported", (OLD_GPU, r"\bworked (?:up to|until|till|before|in|with)\b|\b(?:no longer|stopped|does not|doesn't) work\w*"), (r"\bdrivers?\b", SLEEP)),
    Rule("mac_with_radeon", (r"\bRadeon Pro\b|\b(?:AMD|Radeon)\b[^.;]{0,24}\b(?:iMac|MacBook|Mac Pro|Intel Mac)\b|\b(?:iMac|MacBook|Mac Pro|Intel Mac)\b[^.;]{0,40}\b(?:AMD|Radeon)\b",), (r"\bLinux\b|\bUbuntu\b|\bWindows\b",)),
    Rule("mac_with_radeon", (r"\b(?:macOS|Mac OS|Sonoma|Ventura|Sequoia|Monterey|Hackintosh)\b", r"\bRadeon\b|\bAMD (?:RX|Pro|GPU)\b|\bRX ?[5-7]\d{2,3}\b"), (r"\bLinux\b|\bUbuntu\b|\bWindows\b",)),
    Rule("discovery_timeout", (r"\bdiscover\w+\b", r"\btim(?:es?|ed|ing)[ -]?out|\bwatchdog\b|\bdeadline\b")),
    Rule("kfd_denied", (r"/dev/(?:kfd|dri\S*)|\brender(?: group|D\d+)?\b|\bvideo group\b", r"\bpermission\b|\bdenied\b|\bnot (?:in|a member|added)\b|\bowned by\b|\bnot permitted\b|\bmissing\b|\black\w*|\bEPERM\b|\bunless root\b")),
    Rule("kfd_denied", (GPU, r"\bunless (?:run as |it runs as )?root\b|\bonly as root\b|\bworks as root\b")),
    Rule("kfd_denied", (r"\bAMD\b|\bRadeon\b|\bROCm\b|\bVulkan\b", r"\bwithout (?:the )?permissions?\b|\bno permissions?\b|\bpermission denied\b|\blacks? (?:the )?permissions?\b")),
    Rule("nvidia_driver_too_old", (r"\bdrivers?\b[^.;]{0,40}\b(?:too old|insufficient|minimum|outdated)\b|\b(?:old|older|newer|minimum|outdated)\b[^.;]{0,12}\bdrivers?\b|\btoo old\b[^.;]{0,24}\bdrivers?\b",)),
    Rule("driver_updated", (r"\bNVML\b", r"\b(?:fails?|failed|error|cannot)\b", r"\bpackages?\b[^.;]{0,12}\bchang\w+|\bupdat\w+|\bupgrad\w+")),
    Rule("uneven_split", (r"\bGPUs?\b|\bcards?\b", r"\bdifferent (?:size|VRAM)|\bunequal|\buneven|\bsmallest\b|\bsmall(?:er)? (?:one|card|GPU)\b|\banother size\b", r"\bsplit|\blayers?\b|\bspread\b|\bfull\b")),
    Rule("one_gpu_used", (r"\bGPUs? ?\d\b[^.;]*\d ?[GM]i?B\b", r"\bGPUs? ?\d(?:[-–]\d)?\b[^.;]{0,12}\bidle\b|\b(?:the )?others? (?:is |are )?idle\b")),
    Rule("one_gpu_used", (r"\bGPUs? \d ?(?:[-–,]|to|and) ?\d only\b|\bonly (?:one|1|some|the first) (?:of|GPU|card)|\bonly (?:the )?(?:GPU|card|device) ?#?\d\b|\buses one\b|\bone of (?:two|three|four|several|\d)", GPU), (r"\bmodel at a time\b",)),
    Rule("one_gpu_used", (r"\b(?:some|a few|two|three|several|half) (?:of (?:the|my) )?(?:\w+ )?(?:GPUs|cards)\b", r"\bunsupported\b|\bnot used\b|\bunused\b|\bidle\b|\bleft out\b|\bignored\b"), (r"\bsplit\b", CONTAINER)),
    Rule("spread_unneeded", (r"\bspread\b|\bsplit\b", GPU, r"\bone (?:\w+ )?(?:is enough|suffices|would|has room|can hold|holds)\b|\bfits on one\b|\bsuffices\b")),
    Rule("spread_unneeded", (r"(?:\b|_)SCHED_SPREAD\b\W{0,3}(?:1|true)\b", r"\b(?:split|spread)\b")),
    Rule("cuda_999", (r"\bCUDA\b|\bcu[A-Z]\w+|\berror\b|\bcudart\b", r"\b999\b")),
    Rule("vram_recovery_timeout", (r"\bVRAM\b", r"\brecover\w*", r"\bwarn\w*|\btimeout\b|\btime-?out\b")),
    Rule("vram_recovery_timeout", (r"\bsched\.go:6\d\d\b", r"\bseconds=\d")),
    Rule("cpu_busy_though_gpu", (r"\b100 ?% GPU\b", r"\bCPU\b|\bcores\b", r"\bbusy\b|\bfull load\b|\bin use\b|\bload(?:ed)?\b|\b\d{2,} ?%|\bRAM\b|\bslow\b"), (r"CPU/GPU", r"\b100 ?% CPU\b", r"CONTEXT")),
    Rule("slower_now", (r"\d(?:\.\d+)? ?(?:tok(?:en)?s?/s|t/s|tps)\b.*\d ?(?:tok(?:en)?s?/s|t/s|tps)\b", rf"(?:{UPDATE}|\bv?0\.\d+|\bbefore\b|→|->)"), (r"\balone\b|\bservers\b", r"\bfaster\b|\bquicker\b|\bimprov\w+|\bup from\b",)),
    Rule("slower_now", (r"\bslow(?:er|ly|down)?\b|\blonger\b|\btok(?:en)?s?/s\b|\bt/s\b|\b(?:token|generation|eval) rate\b|\bspeed\b|\bresponse times?\b|\bthroughput\b|\bperformance\b", rf"(?:{UPDATE}|\bthan (?:v?0\.\d+|before)|\bfalling\b)"), (r"\breload", r"\bcontext\b", r"\bfaster\b|\bquicker\b")),
    # settings
    Rule("no_effect", (SETTING, NO_EFFECT), (r"\bstill wait", r"\bstill (?:un)?load", r"\bnot (?:loaded|enough)")),
    Rule("no_effect", (r"\bstill\b", r"\b(?:go|goes|land|lands|listens?|uses?|stays?|binds?|are|is)\b", r"\bdefault\b|/usr/share/ollama|\b127\.0\.0\.1\b|\b11434\b")),
    Rule("in_profile", (LINUX_SHELLS, SETTING), ()),
    Rule("stays_unset", (rf"\b(?:OLLAMA|HSA|CUDA|ROCR|HIP|GGML|LLAMA)_\w+|\b(?:{NAMES})\b", rf"(?:\bset\b|\bsetting\b|\bgiven\b|\badded\b|\boverride\b|{NO_EFFECT})"), (NOT_BY_ME,)),
    Rule("main_unit_told", (r"\bEnvironment=|\bOLLAMA_\w+|\bsettings?\b|\bcustomi[sz]\w+", r"(?:/(?:etc|lib|usr/lib)/systemd/system/ollama\.service\b(?!\.d)|\bmain unit\b|\bin (?:the )?(?:unit file|ollama\.service)(?!\.d))"), (r"\badded (?:after|afterwards|later)\b", r"\bafter the answer\b")),
    Rule("set_in_windows", (SETTING, r"\bin (?:the )?Windows\b(?! (?:app|client))|\bWindows environment\b", r"\bset\b|\bput\b|\badded\b")),
    Rule("windows_and_wsl", (r"\bWSL2?\b", SETTING, rf"(?:{NO_EFFECT}|\bWindows\b)")),
    Rule("overwritten_by_upgrade", (rf"(?:{UNIT}|{SETTING})", r"\boverwrit\w+|\blost\b|\bgone\b|\breset\w*|\bdrop(?:s|ped)\b|\bdestroy\w*|\bcleared\b|\bre-?insert\w*|\brewrit\w+|\breplaced?\b|\babsent\b|\bwiped\b|\bremoved\b|\bdisappear\w*", UPDATE), (r"\blaunchctl\b", r"\bplist\b", r"\bbrew\b", r"\bGPU\b")),
    Rule("overwritten_by_upgrade", (r"\bvanish\w*|\blost\b|\bgone\b|\breset\w*|\bdisappear\w*|\boverwr\w+|\bdestroy\w*|\bback to (?:the )?default", r"\b(?:each|every|any|all|with the|with each)\b[^.]{0,12}\b(?:updat|upgrad|re-?install)\w*|\binstall\.sh\b"), (r"\bGPUs?\b|\bcard\b|\bmodels?\b|\bplist\b|\bbrew\b|\blaunchctl\b|\bspeed\b",)),
    Rule("overwritten_on_linux", (r"\bOLLAMA_[A-Z_]+\b", r"\boverwrit\w+|\bre-?insert\w*|\blost\b|\breset\w*|\bwiped\b|\bgone\b", r"\b(?:by|after|with|at|on)\b[^.;]{0,12}\b(?:updat|upgrad|re-?install)\w*"), (r"\bbrew\b|\bplist\b|\blaunchctl\b|\bsnap\b|\bWindows\b|\bDocker\b[^.;]{0,10}\bimage\b|\bcontainer (?:is )?re-?created",)),
    Rule("service_file_told", (UNIT,)),
    Rule("http_proxy_told", (r"\bHTTP_PROXY\b|\bhttp_proxy\b", r"\bset\b"), (r"_PROXY\W?[=:]", r"\bNO_PROXY\b", r"\bpull\b", r"\bcurl\b", r"\bservice\b")),
    Rule("http_proxy_told", (r"\bHTTPS?_PROXY\b", r"\b(?:app|client|CLI|desktop)\b", r"\bset\b|\bconfig\w*\b|\bpoints?\b|="), (r"\bNO_PROXY\b", r"\bpull\w*\b", r"\bservice\b")),
    Rule("host_for_server_only", (r"\bOLLAMA_HOST\b", r"\bonly (?:for|to|in|by|with) (?:the )?[`'\"]?(?:ollama )?serve(?:r|'s)?\b|\b(?:given|set|passed|exported|known) (?:to|for|in|by) (?:the )?[`'\"]?(?:ollama )?serve(?:r|'s)?\b[^.;]{0,24}\bonly\b|\bnot (?:for|in|to) the (?:client|CLI|other terminal|other shell|command)\b|\bonly in the (?:shell|terminal|window|tab) (?:of|where|with) (?:the )?(?:ollama )?serve")),
    Rule("kv_falls_back", (r"\b(?:un(?:supported|known)|invalid|bad|wrong|other)\b[^.;]{0,16}\b(?:cache )?types?\b|(?:\b|_)KV_CACHE_TYPE\b", r"\b(?:falls? back|fell back|reverts?|defaults?)\b[^.;]{0,10}\b(?:to )?f16\b|\bf16 (?:is )?(?:used|instead|runs)\b|\bsilently f16\b"), (r"\bflash", r"\bq[458]_\d\b[^.;]{0,40}\bf16\b")),
    Rule("kv_without_fa", (r"\bKV\b|(?:\b|_)KV_CACHE_TYPE\b|\bcache types?\b", r"\bwithout flash[ -]?attention\b|\bflash[ -]?attention (?:is )?(?:off|disabled|not (?:set|enabled|on))\b")),
    Rule("kv_without_fa", (r"(?:\b|_)KV_CACHE_TYPE\b|\bcache types?\b|\bKV quanti[sz]ation\b", NO_EFFECT, rf"(?:{OLD_GPU}|\bM[1246]0\b|\bP(?:4|6|40|100|4000|5000|6000)\b|\bPascal\b|\bGTX ?1[06][5-8]0\b|\bcompute(?: capability)? 6\.[012]\b)")),
    Rule("kv_by_architecture", (r"\bKV\b|\bcache\b", r"\bf16\b", r"\barchitectures?\b|\ballow-?list\b|\bfamil(?:y|ies)\b")),
    Rule("client_cannot_connect", (r"\bollama (?:run|list|ps|pull)\b|\bcommand\b|\bCLI\b", r"\b(?:told|says|asks?|tells)\b[^.;]{0,24}\b(?:call|start|run)\b[^.;]{0,8}\bollama serve\b")),
    Rule("client_cannot_connect", (r"\b(?:CLI|command|client|ollama (?:list|run|ps))\b", r"\b(?:says|reports|thinks)\b[^.]{0,20}\bnot running\b|\bcannot connect\b|\bcould not connect\b")),
    Rule("flash_attention_refused", (r"\bflash attention\b", r"\bnot supported\b|\bunsupported\b|\brefused\b|\bdisabled\b|\boff\b", r"\bRTX ?\d|\b[VA]\d{2,3}\b|\bL(?:4|40)\b|\bH\d00\b|\bone old (?:GPU|card)")),
    Rule("setenv_lost", (r"\blaunchctl\b", rf"(?:{BOOT}|\btemporary\b|\bgone\b|\blost\b|\bnot persist\w*)")),
    Rule("brew_service", (r"\bbrew\b|(?<!/)\bHomebrew\b|\bhomebrew\.mxcl\b|\bCellar\b",)),
    Rule("brew_plist_told", (r"\bplist\b", r"\b(?:lost|rewr\w+|overwr\w+|regenerat\w+|edited|added|copies|copied|lack\w*|disabled|kept|upgrad\w+)\b", r"\bCellar\b|\bhomebrew\b|\bbrew\b|\bLaunchAgents copy\b")),
    Rule("launchagent", (r"\bLaunchAgents?\b|\b\w+\.plist\b|\bRunAtLoad\b|\bMac(?:Book| mini| Studio)?\b|\bmacOS\b",)),
    Rule("launchagent", (r"\bplists?\b",)),
    Rule("gui_failed", (r"\b(?:tray|desktop|GUI|menu bar)\b", r"\bcannot start\b|\bdoes not start\b|\bfails? to start\b|\bcrash\w*", r"\bSSH\b|\bheadless\b|\bno session\b|\bwithout (?:a )?(?:session|display|desktop)\b")),
    Rule("before_login", (r"\bbefore (?:any |the |anybody )?(?:log-?in|logs in)\b|\bstarts? (?:on|at) log-?in\b[^.;]{0,6}\bnot\b|\b(?:only )?(?:after|until|once|when) (?:some(?:body|one)|any(?:body|one)|a user|the user|I) (?:has |have )?log(?:s|ged)? in\b|\blog-?in (?:window|screen)\b|\bwithout (?:a )?log-?in\b",)),
    Rule("snap_told", (r"\bsnap\b", SETTING, rf"(?:{NO_EFFECT}|\bexport\w*)")),
    Rule("outside_section", (r"\b(?:outside|above|before|without|missing|lack\w*|no)\b[^.]{0,30}\[?\bService\b\]|\bassignment outside\b|\b(?:missing|no|without) \[?\w*\]? ?(?:section )?header\b",)),
    Rule("spaces_told", (r"\bEnvironment\b|\bdrop-?in\b|\boverride\.conf\b", r"\b(?:spaces?|blanks?)\b[^.;]{0,16}\b(?:around|before|after)\b[^.;]{0,10}(?:=|\bequals?\b)")),
    Rule("preload_told", (r"\bLD_PRELOAD\b", r"\b(?:dumps?|core|crash\w*|dies|fails?|cannot be preloaded|missing)\b")),
    Rule("unknown_name_told", (r"\b(?:OLLAMA_\w+|variable)\b", r"\b(?:unknown name|no such variable|does not exist|do not exist|typo|misspell\w*|invented|was removed|not a (?:real )?variable)\b"), (r"\bunit\b",)),
    Rule("unknown_name_told", (r"\bOLLAMA_(?:HOME|DIR|PATH|MODEL_?(?:PATH|DIR)|MODELS_?(?:PATH|DIR|HOME)|STORAGE|FOLDER|CACHE_DIR)\b", r"\b(?:set|setting|updat\w+|chang\w+|point\w*|export\w*|put|added|variable)\b"), (r"\bno such variable\b",)),
    Rule("unknown_name_told", (r"\bmisspell\w*|\bmistyped?\b|\btyp(?:o|ing error)\b", r"\bignor\w+|\bno (?:warning|error)\b|\bsilent\w*|\bwithout (?:a |any )?(?:word|warning)\b|\bname\b|\bvariable\b"), (r"\bmodel name\b|\burl\b|\bpath\b",)),
    Rule("overridden_by_other_file", (r"\bdrop-?ins?\b|\boverride\.conf\b|\bservice\.d\b|\.conf\b", r"\b(?:overrid\w+|replac\w+|clobber\w*|wins?|overwrit\w+|unless (?:the file is )?named|read later|installs?)\b", r"\b(?:another|other|third-party|installer|later|tool|zz-|named|installs)\b")),
    Rule("envfile_wins", (r"\bEnvironmentFile\b|/etc/(?:default|sysconfig)/ollama\b", r"\bdrop-?ins?\b|\boverride\b|\bEnvironment=", r"\bwins?\b|\boverrid\w+|\bbeat(?:s|en)\b|\bloses? (?:to|against)\b|\btakes? precedence\b|\binstead\b|\bsays\b|\bhas no effect\b|\bignored\b")),
    Rule("not_reloaded_told", (r"\bdrop-?ins?\b|\boverride\b|\bunit\b|\.conf\b", r"\bnever (?:processed|read|applied)|\bwithout daemon-reload|\bno daemon-reload|\bdaemon-reload (?:was )?(?:not|never)|\bnot reloaded\b|\bseems never\b")),
    Rule("config_only_future", (r"\bdrop-?in\b|\bvariable\b|\bsetting\b|\blaunchctl print\b|\bsystemctl (?:show|cat)\b|\bregistry\b|\bunit\b|\benvironment\b", r"\b(?:predates|older than|already running|still (?:runs|has) (?:with )?the old|before the change|needs? a restart|not restarted|while the running process)\b")),
    Rule("config_only_future", (r"\b(?:effective|actual|real) (?:\w+ )?(?:value|NUM_PARALLEL|setting)\b|\beffective\b", r"\brunning (?:server|process)\b")),
    Rule("config_only_future", (SETTING, r"\b(?:visible|shown|seen|to be read|found) only in\b|\bonly (?:visible|shown|seen) in\b|\bonly the log\b", r"\bserver config\b|\benv=|\bserver\.log\b|\blog\b|\bmap\b")),
    Rule("config_only_future", (r"\bsystemctl (?:show|cat)\b|\bdrop-?in\b|\bunit\b|\boverride\b", r"/environ\b|\brunning (?:server|process)\b", r"\b(?:has|shows?|still|lacks?|without|old|other)\b"), (r"\b(?:too|as well|same|both)\b", r"\bby hand\b|\bterminal\b|\btmux\b")),
    Rule("by_hand_told", (r"\bollama serve\b", r"\b(?:in|inside|under|from) (?:a |my |the )?(?:tmux|screen|terminal|ssh session|SSH shell)\b")),
    Rule("by_hand_told", (r"\b(?:started|starts?|run|runs|launched) (?:it |the server |ollama )?(?:with|by|via|using)\b[^\w.;]{0,6}(?:the command )?[^\w.;]{0,4}ollama serve\b|\bcommand\W{0,4}ollama serve\W{0,4}to start\b",), (r"\bport\b|\baddress\b",)),
    Rule("by_hand_told", (r"\b(?:process|server)\b", r"\bbelongs? to (?:my|the|a) (?:login |own )?user\b|\bruns? as (?:my|the login) user\b", r"\bunit\b|\bservice\b|\bsettings?\b")),
    Rule("by_hand_told", (r"\brc\.local\b|\bcrontab\b|@reboot\b|\bnohup\b", r"\bollama serve\b"), (r"\bport\b",)),
    Rule("by_hand_told", (BY_HAND, r"\bserve\b|\bserver\b|\bservice\b", r"\bunit\b|\boverride\b|\bvariables?\b|\bsystemctl\b|\bother models\b|\bsettings?\b"), (r"\bport\b|\baddress\b|\bin use\b", BOOT, r"\bthen\b.*\bapp\b")),
    # slots, queue, clients
    Rule("answers_in_turn", (SERIAL, rf"(?:\brequests?\b|\bdialog(?:ue)?s?\b|\busers?\b|\banswers?\b|\bparallel\b|\bmessages?\b|\bprograms?\b|\bagents?\b|{MODEL}|\bwork\b|\bslots?\b|-np\b|\bchats?\b|\btabs?\b|\bconversations?\b|\bprompts?\b|\bcalls?\b|\bquestions?\b|\bstreams?\b)"), (r"(?:\b|_)MAX_QUEUE\b", r"\bload queue\b", r"\b503\b", r"\bone model at a time\b", r"\bloaded (?:\w+ )?in turn\b")),
    Rule("answers_in_turn", (r"\b(?:slots?|id_slot)\b[^.;]{0,16}\b(?:id )?0 (?:only|alone)\b|\b(?:only|just) (?:slot|id_slot)\b[^.;]{0,6}\b0\b|\b(?:all|every)\b[^.;]{0,24}\b(?:in|on|by|to) slot 0\b",)),
    Rule("mlx_parallel", (r"\bparallel\s?=|\bslots?\b|-np\b", r"\b(?:reports?|says|shows|claims|announces|accepts)\b", r"\bbehav\w+ (?:\w+ )?(?:like|as)\b[^.;]{0,20}\b(?:1|one)\b|\bserves one at a time\b|\bserial(?:ly)?\b")),
    Rule("no_speedup", (r"(?:\b|_)NUM_PARALLEL\b|\bparallel\b|\bslots\b", r"\bno (?:\w+ )?(?:speed-?up|gain|faster|higher throughput|improvement)\b|\bnot (?:any )?faster\b|\bsame throughput\b"), (r"\bembed",)),
    Rule("auto_slots_told", (r"--parallel\b|-np\b|\bslots?\b|\bparallel[ :=]", r"\b(?:variable|NUM_PARALLEL)\b[^.;]{0,12}\b(?:unset|not set|empty)\b|\bwithout (?:OLLAMA_)?NUM_PARALLEL\b", r"\b[24]\b"), (r"\bstays?\b|\bremains?\b|\bstill\b",)),
    Rule("auto_slots_told", (r"(?:\b|_)NUM_PARALLEL\b\W{0,3}0\b", r"\bmeans?\b|\bauto\w*|\bunset\b|\bdefaults?\b|\bwhat\b")),
    Rule("copies_expected", (r"(?:\b|_)NUM_PARALLEL\b", r"\b(?:does not|doesn[\'’]t|no) (?:increase|more|additional)\b", r"\bV?RAM\b|\bmemory\b")),
    Rule("slots_fill_memory", (r"(?:\b|_)NUM_PARALLEL\b\W{0,4}(?:[2-9]|\d\d)\b|\b(?:[2-9]|\d\d) (?:parallel )?slots\b", r"\b(?:mem(?:ory)?|VRAM|RAM)\b", r"\b(?:increas\w*|grow\w*|rises?|rising|more and more|to the maximum|runs? out|full(?! to)|fills?|climbs?)\b"), (r"\bleak", r"\b(?:not|n't|no)\b[^.;]{0,12}\b(?:increas|more|grow)", r"\bcopies\b")),
    Rule("copies_expected", (r"\b(?:several|two|multiple|more|second|many)\b|\btimes\b", r"\b(?:copies|instances?|times)\b", r"\bmodel\b|\b(?:llama|qwen|gemma)[\w.]*\b|(?:\b|_)NUM_PARALLEL\b"), (r"\bmodels? (?:is |are )?(?:loaded|reloaded) \d+ times", r"\bserver instances\b", r"\breload", r"--parallel")),
    Rule("embedding_parallel", (r"\bembed\w*|\bvectors\b", r"\bparallel\b|\bconcurren\w*|\bfifth of the GPU\b|\bone at a time\b|\b(?:1|one|a single) request\b|\buntil one embedding\b"), (r"\b503\b", r"\b500\b", r"\bqueue\b")),
    Rule("embedding_parallel", (r"\b(?:nomic-embed|mxbai-embed|bge-|all-minilm|snowflake-arctic-embed|embeddinggemma|qwen3-embedding)[\w.:-]*", r"-np 1\b|\bparallel[ =:]+1\b|\bone slot\b|\bn_slots ?[=:] ?1\b")),
    Rule("embedding_parallel", (r"\bembed\w*", r"(?:\b|_)NUM_PARALLEL\b|\bslots?\b", r"\bGPU\b|\bspite\b|\balthough\b|\bdespite\b|\bone\b"), (r"\b503\b", r"\b500\b", r"\bevict")),
    Rule("embedding_parallel", (r"\bembed\w*", r"\bseveral requests\b|\brequests (?:at once|in parallel|concurrently)\b"), (r"\b503\b|\b500\b",)),
    Rule("queue_full", (r"\b503\b", r"\bbusy\b|\brequests?\b|\bqueue\b|\banswered\b|\b/api/|\bburst\b|\bms\b"), (NO_503, r"\bproxy\b", r"\bnginx\b", r"\bsquid\b|\bTCP_[A-Z]+/\d{3}\b")),
    Rule("queue_full", (r"\bserver busy\b|\bmaximum pending requests\b",)),
    Rule("queue_expected", (r"(?:\b|_)MAX_QUEUE\b", r"\b(?:still|all|extra|excess\w*)\b[^.]{0,40}\bwait|\bwaits? (?:for )?(?:\w+ )?minutes\b|\bnone rejected\b|\binstead of 503\b|\bno 503\b|\bnot (?:rejected|applied|bounded)")),
    Rule("queue_expected", (r"(?:\b|_)MAX_QUEUE\b", NO_503)),
    Rule("queue_expected", (r"\bno(?:body|ne)?\b(?: (?:gets|is given|sees|got|saw))?(?: an?| any)? 503\b",)),
    Rule("queue_expected", (r"\b(?:concurrent|parallel|simultaneous|at once)\b", r"\brequests?\b|\bcalls?\b", r"\bloaded model\b|\bmodel (?:that )?is loaded\b", r"\bnone (?:was |were |is |are )?(?:rejected|refused|turned away)\b|\b(?:all|they) wait\w*")),
    Rule("slots_busy", (r"\b(\d+) of \1 (?:slots )?(?:is_processing true|(?:are )?busy)\b|\b(?:both|all) (?:\w+ )?slots (?:are busy|work|are at work)\b",)),
    Rule("connections_wait", (r"\b(?:connections?|requests?)\b[^.;]{0,20}\bwait|\bestablished\b[^.;]{0,12}:11434\b",)),
    Rule("invalid_option_flood", (r"\binvalid option provided\b", r"\b(?:each|every|hundreds|thousands|full of|flood\w*|constantly)\b")),
    Rule("one_model_only", (r"(?:\b|_)MAX_LOADED_MODELS\b", r"\bone (?:model )?(?:only|at a time)|\bonly one\b|\bonly ever\b|\bjust one model\b|\bsingle model\b|\bone model\b")),
    Rule("one_model_only", (r"\bmodels?\b|\b(?:A|the first)\b", r"\b(?:evict|replac|unload|kick|throw|push|kill|vanish|displac)\w*", r"\beach other|\bother(?:'s)?\b|\bsecond\b|\banother\b|\bwhen B\b|\breplaced by\b|\bthe first\b|\bchat model\b|\bembedding model\b"), (r"\bdoes not unload the first\b", CONTEXT, r"\bsame model\b|\breload", r"\bprocess\w*")),
    Rule("one_model_only", (r"\b(?:swap|alternat|thrash|ping-?pong|take turns)\w*", r"\bmodels?\b"), (r"\b(?:of|in|no|to|the|and|free) swap\b|\bswap(?:file)?\b[^.;]{0,12}\b(?:us(?:e|ed)|full|space|file|partition)\b|\bvmstat\b",)),
    Rule("one_model_only", (r"\bswitch\w*\b", r"\bbetween\b", MODEL, r"\btakes?\b|\b\d+ ?s\b|\bseconds\b|\bslow\w*|\bloads?\b|\bunload\w*")),
    Rule("one_model_only", (r"\bloaded\b", r"\bin turn\b|\balternat\w+", r"\bmodels?\b")),
    Rule("pin_evicted", (r"keep[_ -]?alive\b|\bpinned\b|\bForever\b", r"(?<!\w)-1\b|\bfor ?ever\b|\bpinned\b", r"\b(?:evict|unload|throw|push|kick|displac)\w*", r"\b(?:second|other|another|next) model\b|\bmodel B\b|\broom\b"), (CLIENT,)),
    Rule("twin_names", (r"\bsame (?:sha256|blob|digest|file|weights|ID|hash)\b", r"\b(?:unload|evict|reload|replac|throw|kick|alternat)\w*|\beach other\b|\btwice\b")),
    Rule("one_model_only", (r"\bollama ps\b|\bloaded\b|\bin memory\b", r"\b(?:just|only|always) (?:\w+ )?one of (?:them|both|the two|these)\b")),
    Rule("one_model_only", (EACH, r"\b(?:unload|evict|throw)\w*\b[^.;]{0,24}\b(?:to|and) loads?\b", r"\band back\b|\bagain\b|\bembed\w*|\bbge-|\bnomic\b")),
    Rule("one_model_only", (r"\bload(?:s|ed|ing)?\b|\brun(?:s|ning)?\b|\bstart(?:s|ed|ing)?\b", r"\b(?:the )?(?:other|first|former|previous)(?: one| model)?\b[^.;]{0,48}\b(?:gone|vanish\w*|disappear\w*|unload\w*|thrown out|kicked out|no longer (?:loaded|there|in))\b"), (r"\bdoes not unload\b", r"\brequests?\b", r"\bpull\w*", r"\bfolders?\b|\bdirector\w+", r"\bGPUs?\b|\bcards?\b")),
    Rule("one_model_only", (r"\bnever together\b|\bone model at a time\b|\bonly the (?:second|last|newest) model\b|\bonly one model (?:is )?(?:loaded|in|at|kept|stays)|\bkeeps only one model\b",), ()),
    Rule("reloaded_each_time", (r"\bre-?loads?\b|\breload(?:ed|ing)\b|\bloads? (?:\w+ ){0,2}(?:anew|again)\b|\bloaded (?:anew|again|afresh)\b|\bre-?start(?:s|ed)? the model\b", rf"(?:{EACH}|\bdifferent\b|\bchang\w+|\bwith another\b|\bfor each\b)"), (r"\bidle\b", r"\bkeep_alive\b", r"\bcrash", r"\bdaemon-reload\b")),
    Rule("reloaded_each_time", (r"\b(?:num_ctx|ctx-size|context)\b", r"\bdiffers?\b|\balternat\w+|\bvar(?:y|ies)\b|\bchang\w+|\bcomputed\b|\bdifferent\b", r"\brequests?\b|\bclients?\b|\bcall\b|\bmessage\b|\bsuccessive\b|\breload")),
    Rule("reloaded_each_time", (r"\bnum_ctx\D{0,3}(\d+)\b.*\bnum_ctx\D{0,3}(?!\1\b)\d+",), (r"\bollama ps\b|\bdeclared\b|\bCPU/GPU\b|\btruncat|→",)),
    Rule("reloaded_each_time", (r"\bnum_ctx\b[^.;\d]{0,8}(\d{3,6}|\d{1,3}k) (?:and|or|vs\.?|/|then) (?:num_ctx )?(?!\1\b)(?:\d{3,6}|\d{1,3}k)\b",), (r"\bollama ps\b|\bdeclared\b|\bCPU\b|\btruncat|→",)),
    Rule("reloaded_each_time", (r"\bunload(?:s|ed)?,? and (?:then )?(?:re)?load(?:s|ed)?\b", rf"(?:{EACH}|\bcontext\b|\bnum_ctx\b)"), (r"\bidle\b", r"\bother model\b|\banother model\b")),
    Rule("reloaded_each_time", (r"\bcold (?:start|load)\w*\b|\bload time\b", r"\b(?:each|every)\b[^.;]{0,12}\b(?:message|request|question|call|turn|prompt)")),
    Rule("reloaded_each_time", (r"\b(?:evicts|unloads|replaces)\b", r"\b(?:and|then) (?:re)?loads\b", r"\bsame model\b|\banother client\b|\bother client\b|\bnum_ctx\b")),
    Rule("reloaded_each_time", (r"\bevaluating already loaded\b", r"\bresetting model to expire\b")),
    Rule("reloaded_each_time", (r"\bnum_ctx\b\W{0,3}=\s*int\(|\bnum_ctx\b[^.;]{0,30}\b(?:token_count|len\(|\* ?1\.)",)),
    Rule("until_soon", (r"\bUNTIL\b[^.;]{0,12}\b(?:[1-5]|four|five) minutes from now\b", rf"{CLIENT}|\brequest\b")),
    Rule("keep_alive_reset", (r"\b(?:[1-5]|four|five) minutes from now\b", rf"{CLIENT}|\brequests?\b", r"keep[_ -]?alive")),
    Rule("keep_alive_reset", (r"(?:\b|_)keep[_ -]?alive\b|\bpin(?:s|ned)?\b|\bForever\b", r"\b(?:about |after )?(?:five|5|4|four) ?m(?:in\w*)?\b|\bunload\w*|\breleas\w+|\bback to (?:0|5)\b|\bdefault\b", CLIENT, r"(?<!\w)-1\b|\bfor ?ever\b|\bpin|\bwhatever\b|\bthough\b|\balthough\b|\bdespite\b|\bonly\b|\bignor"), (r"\bevict\b", r"\bonly one\b", r"\bautocomplete\b", r"\bchat model\b")),
    Rule("keep_alive_reset", (CLIENT, r"\breloads? after idle\b|\bunloads the model after\b|\bmodel (?:is )?unloaded after\b", r"\bwhatever\b|\bthough\b|\balthough\b|\bdespite\b|\bany\b")),
    Rule("keep_alive_reset", (r"\bkeep_alive\b[\"']?\s?[:=]\s?[\"']?(?:0|[1-5]m)\b", r"\brequest\b|\bbody\b|\bclient\b|\bplug-?in\b|\bpayload\b|\bsends?\b|\bnode\b")),
    Rule("keep_alive_reset", (r"(?<!\w)-1 (?:changes|goes|falls|is (?:set|turned)) back to (?:0|5)\b",)),
    Rule("keep_alive_expected", (r"(?:\b|_)keep[_ -]?alive\b", r"-1\b|\bfor ?ever\b|\bForever\b|\bpinn?(?:ed)?\b|\b24h\b")),
    Rule("asked_for_ever", (r"\bkeep_alive\b\W{0,5}-1\b[^.;]{0,24}\brequests?\b|\brequests?\b[^.;]{0,24}\bkeep_alive\b\W{0,5}-1\b", r"\bunload\w*|\breleas\w+|\bgone\b"), (r"\bwithout\b",)),
    Rule("bad_duration", (r"(?:\b|_)keep[_ -]?alive\b", r"\breject\w*|\brefus\w*|\binvalid\b|\bmissing unit\b|\bnot accepted\b", r"-1\b|\bvalue\b|\bduration\b"), (r"\bOLLAMA_KEEP_ALIVE\b",)),
    Rule("pin_wanted", (r"\bpin\b|\balways (?:be )?(?:loaded|kept)|\bkeep (?:some|two|the) models? loaded", r"\bmodels?\b|\bof (?:ten|\d+)\b")),
    Rule("unloaded_anyway", (r"(?:\b|_)keep[_ -]?alive\b", r"\bstill unloaded\b|\bunloaded (?:at|after)\b|\breleased after\b|\bnot effective\b")),
    Rule("stopping_model", (r"\bStopping\b", r"\bstuck\b|\bhangs?\b|\bnever\b|\bstate\b|\bminutes\b|\bhours\b|\bStopping\.\.\.|\bcannot be stopped\b"), (r"\bStopping [`'\"]?ollama\b", r"\bservice\b")),
    Rule("no_reply", (r"\b0 bytes\b|\bnothing (?:is )?(?:returned|comes)\b|\breturns nothing\b|\bno (?:reply|byte|answer) (?:at all|ever|in \d+)",), (r"\bextension\b", r"\bjournal\b")),
    Rule("no_reply", (r"/api/(?:generate|chat|embed\w*)\b|\brequests?\b|\bgeneration\b", r"\bnever (?:returns?|answers?|ends?|comes? back|repl(?:y|ies))\b|\bhangs?(?: for ?ever| on| without)?\b"), (r"\btimeout\b|\bdiscover", r"\bload\w*\b")),
    Rule("server_answers", (r"/api/(?:version|tags|ps)\b", r"\b(?:answers?|responds?|works?|fine|replies|at once|instantly|200)\b"), (r"\bnot?\b|n't",)),
    Rule("never_begun", (r"\brequests?\b|/api/(?:generate|chat|embed\w*)\b", r"\bnothing (?:is |was |gets )?(?:logged|in the (?:log|journal))|\bno (?:log )?lines?\b|\bmodel (?:is |was )?never (?:called|invoked|asked|reached)\b|\bnever reach\w* (?:a |the )?(?:slot|runner|model)|\bno (?:slot|launch_slot)", r"\b(?:500|499)\b|\btime[sd]?[ -]?out\b|\bhangs?\b|\bminutes\b")),
    Rule("num_ctx_withheld", (CLIENT, CONTEXT, r"(?:\b|(?=n't))(?:not|n't|never|without|ignor\w+|no)\b[^.]{0,40}\b(?:sent?|pass\w*|forward\w*|set|options?\.num_ctx|num_ctx|ignored|field|honou?red)\b|\bignored\b"), (r"\bOLLAMA_CONTEXT_LENGTH\b", r"\breload")),
    Rule("num_ctx_withheld", (r"payload\b|\brequests?\b|\bcall\b", r"\b(?:without|lacks?|no|omits?|never)\b[^;]{0,24}\bnum_ctx\b")),
    Rule("num_ctx_withheld", (r"\bnum_ctx\b", r"\bignor\w+", r"\brequests?\b|\bAPI\b"), (r"\bModelfile\b", r"\breload")),
    Rule("num_ctx_on_v1", (r"/v1\b|OpenAI", r"\bnum_ctx\b|\bcontext\b", r"\bignor\w+|\bno(?:t)?\b|→|\bdefault\b|\bcarries\b|\bcut\b|\bthough\b|\balthough\b|\bdropped\b|\btruncat|\bforgets?\b|\bloses?\b|\bstays? at\b|\bnever (?:gets|more than|above)\b")),
    Rule("truncation_told", (r"\bprompts?\b|\bconversation\b|\binput\b|\bsystem message\b|\bmessages\b|\btool (?:definition|prompt)s?\b|\bdocuments?\b", r"\btruncat\w+|\bforgets?\b|\bforgotten\b|\bcut\b|\bdropped\b|\bclipped\b|\btrimmed\b|\blimited to\b|\blose(?:s)? (?:its|their) head\b"), (r"\bnot\b.*\btruncat", r"\bconnection\b", r"\bclients?\b.{0,40}\bnot (?:sent|passed)")),
    Rule("above_training", (r"\b(?:asks?|asked|requests?|sends?|num_ctx)\b[^.;]{0,12}\b(\d{5,7})\b", r"\b\d{4,6} (?:model|window)\b|\btrained (?:for|on|with|context)\b|\bn_ctx_train\b|\bmodel(?:'s)? (?:own )?(?:limit|maximum|context)\b")),
    Rule("prompt_half", (r"\bhalf\b|/ ?2\b", r"\bnum_ctx\b|\bcontext\b|\bwindow\b", r"\bprompt\b|\bcut\b|\blimit")),
    Rule("tier_told", (CONTEXT, r"\b(?:depends on|by|from|based on|tier\w*)\b[^.]{0,30}\b(?:VRAM|GPU memory)|\btiers?\b|\btiered\b", r"\bdefault\b|\btier")),
    Rule("tier_told", (r"\b(?:32768|65536|262144|32k|64k|256k)\b", r"\bdefaults?\b|\btiers?\b|\bx 4\b|(?:\b|_)NUM_PARALLEL\b", r"\bcontext\b|\bKV\b|\btiers?\b|\bwindow\b")),
    Rule("tier_told", (r"\bdefaults?\b", r"\b(?:by|from|after|with) (?:the )?(?:amount of )?VRAM\b", r"\b\d+ ?Gi?B\b", r"\b(?:4096|32768|262144|4k|32k|256k)\b")),
    Rule("spills_told", (r"\bspill\w*|\bunresponsive\b|\boffload\w*|\bpart (?:of )?(?:the )?(?:model )?(?:is )?on (?:the )?CPU\b|\bjumps\b|\bfails?\b|\bslow\b|\bx 4\b|\bgrew\b",)),
    Rule("layers_on_cpu", (r"\b(?:one|1|two|some|a few|several) (?:\w+ )?layers?\b", r"\bon (?:the )?CPU\b|\bto (?:the )?CPU\b")),
    Rule("layers_on_cpu", (r"(?:\b|_)NUM_PARALLEL\b|\bslots\b|\bnum_ctx\b|\bcontext\b", r"\bslow\w*", r"\bCPU (?:thread|core)s?\b|\bbusy CPU\b|\bCPU (?:is |at )?(?:busy|100)")),
    Rule("layers_on_cpu", (r"(?:\b|_)NUM_PARALLEL\b|\bslots\b|\bnum_ctx\b|\bcontext\b", r"\bslow\w*|\bCPU\b", r"\b(?:with|at|without|under|unset)\b[^.;]{0,24}\ball (?:\w+ )?layers\b[^.;]{0,12}\bGPUs?\b")),
    Rule("layers_on_cpu", (r"\bCPU/GPU split\b|\bsplit (?:between|over) (?:the )?(?:CPU and GPU|GPU and CPU)\b",)),
    Rule("spills_told", (r"\b(?:KV|cache)\b[^.;]{0,4}=|\bcontext\b", r"[x×*] ?(?:OLLAMA_)?NUM_PARALLEL\b|\btimes (?:OLLAMA_)?NUM_PARALLEL\b")),
    Rule("kv_too_large", (r"\b(?:num_ctx|context|window)\b[ =:]*(?:of )?\d+ ?[kK]?|\b\d+[kK] (?:context|window)", rf"(?:{ON_CPU}|\bwholly\b|\bwhole model on CPU\b|\bno longer fits\b|\bdoes not fit\b|\bkills?\b|\bdies\b|\bexceeds?\b)"), (r"\btier", r"\bdefault\b", r"\bcontext 4096\b", r"\bCONTEXT\b \d+ →")),
    Rule("kv_too_large", (r"\bKV\b", r"\bon (?:a|an|my|the) \d+ ?Gi?B\b", r"\b\d{5,6}(?:\.\d+)? ?MiB\b|\b\d{2,3}(?:\.\d+)? ?GiB\b")),
    # time-outs
    Rule("gateway_timeout", (r"\b(?:504|524)\b|\bgateway time-?out\b|\bupstream timed out\b",)),
    Rule("gateway_timeout", (r"\bproxy\b|\bgateway\b|\bload balancer\b|\bnginx\b|\bhaproxy\b|\bingress\b|\bcloudflare\b", r"\b(?:timeout|time-out|cuts?|limit|resets?|gives? up|gave up|502|524)\b|\btimes out\b", r"\b\d+ ?s\b|\bminutes?\b|\bsecond\w*|\b502\b|\b524\b"), (r"\bregistry\b", r"\bpull", r"\bqueue\b|\bwaits?\b")),
    Rule("fixed_time", (r"\b(?:time[sd]?[ -]?out|timeouts?|aborted|cancel+ed|fails?|failed|dropped|disconnect\w*)\b[^.;]{0,12}\b(?:after|at|of) (?:about |exactly )?(?:\d+ ?(?:s|sec\w*|min\w*|ms)\b|(?:one|two|five|ten|thirty) (?:seconds|minutes?))",), (r"\bproxy\b|\bgateway\b|\bnginx\b|\b504\b|\bload\b|\bGPU\b|\bdiscover|\bdial\b|\bpull|\brunner\b|\bunit\b|\bservice\b",)),
    Rule("fixed_time", (r"\b(?:500|499|fail\w*|cancel\w*|error)\b", r"\b(?:at|after|within) (?:exactly|a fixed|almost exactly)\b|\bexactly (?:one|two|five|\d+)(?:/two)? ?m|\bfixed (?:duration|time|one minute)")),
    Rule("fixed_time", (r"\bGIN\b|\b/api/|\brequests?\b|\b(?:200|499|500)\b", r"(?<![=\w])(?:[125]|10|15|30)m0s\b|(?<![=\w])(?:[125]|10|15|30)m0\.0\d*s\b"), (r"KEEP_ALIVE|LOAD_TIMEOUT|keep_alive|duration=|\bload|60 ?s\b", r"\b1m0")),
    Rule("awaiting_headers", (r"\b(?:wait\w*|queue)\b", r"\b(?:longer than|more than|after)\b[^.]{0,20}\b(?:\d+ ?(?:s|min)|minutes?|seconds?)\b", r"\b(?:cancel\w*|give up|given up|502|fail\w*|timeout)\b")),
    Rule("durations_rise", (r"\beach (?:about )?\d+ ?s (?:later|after)|\brise by\b|\bdurations rise\b|\beach ends \d+ ?s after\b",)),
    Rule("client_gone_during_load", (r"\bclient connection closed before\b|\baborting load\b",)),
    Rule("client_gone_during_load", (r"\b499\b|\bclient (?:gave|gives) up\b|\bcloses? the connection\b|\bcancel\w*\b", r"\bload(?:s|ing)?\b|\bcold\b"), (r"\bidle\b",)),
    Rule("load_timeout", (r"\b(?:timed out|times out|timing out|gave up) waiting for\b[^.]{0,30}\b(?:runner|server|model)\b",)),
    # memory
    Rule("out_of_memory", (r"\bOOMs?\b|\bout of memory\b|\bcudaMalloc\b[^.]{0,40}\bfailed\b|\bmore than the GPU has\b|\ballocat\w+ more\b",), (r"\bOOM[- ]?kill", r"\bkiller\b", r"\boom-kill\b")),
    Rule("out_of_memory", (r"\b(?:could not|couldn't|cannot|can't|unable to|failed to) allocate\b|\bnot enough memory\b", r"\bmemory\b|\bbuffer\b")),
    Rule("runner_killed", (r"\bsignal:? ?(?:killed|9|kill)\b|\bOOM[- ]?kill\w*\b(?!\W{1,4}false)|\boom-kill\w*|\bOOM killer\b|\bExit(?:ed)?(?: code)?:? 137\b|\bkilled (?:mid-load|by the (?:OS|kernel|system))",), (r"\bcontainer limit\b",)),
    Rule("runner_killed", (r"\b(?:service|model|runner|process|laptop|server)\b|:", r"\bkilled\b|\bjust dies\b", r"\bRAM\b|\bmemory\b|\b\d+ ?GB\b|\bload(?:s|ed|ing)?\b|\bboard\b"), (r"\b(?:nothing|nobody|no (?:process|runner|model)|never|not|neither)\b[^.;,]{0,12}\bkilled\b", r"\bport\b", r"\bby hand\b", r"\bmodel at a time\b", r"\bkilled process comes back\b")),
    Rule("ram_too_small", (r"\brequires?\b[^.]{0,30}\bmemory\b[^.]{0,40}\b(?:than|available)\b|\bnot enough (?:system )?memory\b|\bmore system memory\b",), (r"\bevict",)),
    Rule("ram_too_small", (r"\b[\d.]+ ?GiB needed\b|\bneeds? [\d.]+ ?Gi?B\b", r"\bavailable\b|\bfree\b|\blimit\b")),
    Rule("memory_limit", (r"\bmem_limit\b|\binspect\b[^.]{0,20}\bMemory\W{1,3}\d{8}|\bMemoryMax\b|(?<!MLX )\bmemory limit\b|\blimits?\.memory\b|--memory\b", r"\d")),
    Rule("limit_too_low", (r"\b(?:MemoryMax|MemoryHigh|mem_limit)\b|(?<!MLX )\bmemory limit\b|\blimits?\.memory\b|--memory\b", r"\d ?[MGmg](?:i?B)?\b", r"\bHTTP(?: status)? 000\b|\b500\b|\bempty reply\b|\b(?:dies|died|crash\w*|killed|restarts|fails?|failed)\b"), (r"\b200\b", r"\bworks?\b", r"\bno longer\b")),
    Rule("swapping", (r"\bswap\b[^.;]{0,16}\b\d[\d.]* ?G\w* (?:of|used)\b|\bvmstat\b[^.;]{0,12}\bsi \d{4,}\b",)),
    Rule("cpu_busy_told", (r"\bCPU (?:is |at )?(?:busy|fully (?:used|loaded)|100 ?%|pegged|maxed)\b|\bGPU (?:is |stays |sits )?(?:idle|at 0 ?%|unused)\b|\bvideo memory usage (?:is )?low\b|\bVRAM (?:is |stays )?(?:empty|unused)\b",)),
    Rule("size_grew", (r"\b(?:memory|VRAM|RAM)\b", r"\b(?:up|grew|grows?|more|increase\w*|doubled|jump\w*|higher)\b", rf"(?:{UPDATE}|\bafter \d)"), (CONTEXT, r"\bnum_gpu\b", r"\bslots?\b", r"\blonger loads\b")),
    Rule("num_gpu_forced", (r"\bnum_gpu\b\W{0,3}\d{2,}|\bnum_gpu\b[^.]{0,30}\b(?:forced?|no longer loads|too high|hangs?)\b|\bforced\b[^.]{0,20}\bnum_gpu\b|\bGiB forced\b",)),
    Rule("gpu_memory_taken", (r"\bnvidia-smi\b", r"\b(?:python\d?|xorg|comfyui|chrome|firefox|vllm|gnome\S*|steam\w*|java|blender|obs)\b", r"\d+ ?[MG]i?B")),
    Rule("gpu_memory_taken", (r"\bVRAM\b|\bGPU memory\b|\bGPU\b", r"\b(?:other|another|three|two) (?:programs?|process\w*|applications?|servers?|games?|browsers?)\b|\b(?:comfyui|stable diffusion|browser|web ?pages?|game|vLLM)\b|\bServers on one\b", r"\b(?:taken|takes?|took|uses?|full|free|shares?|shared|alone|holds?)\b"), (r"\btakes? (?:\w+ )?(?:longer|long|\d)",)),
    Rule("gpu_memory_taken", (r"\bmemory\.available\b|\bfree VRAM\b", r"\blater\b|\bdiffer\w*|\bthen\b")),
    Rule("gpu_memory_taken", (rf"(?:{GPU})", r"\b(?:servers?|programs?|process\w*|engines?|services?|vLLM|ComfyUI|games?|browsers?)\b", r"\d(?:\.\d+)? ?(?:tok(?:en)?s?/s|t/s|tps)\b", r"\b(?:alone|by itself|on its own|without (?:it|them|the others?))\b")),
    Rule("gpu_memory_taken", (r"\blater\b|\bthen\b|\bnext (?:time|load)\b|\bonce\b", r"\b\d+ (?:of|/) ?\d+\b", r"\[?\d+(?:\.\d+)? ?GiB\b"), (CONTEXT, r"\bslots?\b|\bparallel\b", r"\bafter\b[^.;]{0,20}\b(?:updat|upgrad)")),
    # service and files
    Rule("unit_inactive", (r"\bis-active ollama\S*\W{1,4}inactive\b|\binactive \(dead\)|\bnot started (?:at|after) boot\b|\binactive after boot\b",)),
    Rule("unit_disabled", (r"\bis-enabled\b\W{0,12}(?:ollama\S* ?)?\W{0,3}disabled\b",)),
    Rule("unit_disabled", (BOOT, r"\bsystemctl start\b|\bstart (?:it|ollama|the service) (?:by hand|manually|myself)\b")),
    Rule("models_gone", (r"\b(?:models?|ollama (?:list|ls))\b(?![^.;]{0,24}\bweb ?UI)", r"\b(?:gone|vanish\w*|missing|lacks?|disappear\w*|not listed|empty|no models|shows? (?:nothing|none)|lost)\b"), (r"\bworkflow\b", r"\bmissing data\b", r"\bprocess\w*", r"\bB is run\b", r"\bLoRA\b", r"\bCellar\b", r"\breplaced by\b", SETTING, r"\bkeep[_ ]?alive\b|\bunload|\b(?:minutes?|hours?|seconds?) (?:later|after)\b|\bafter (?:\w+ )?(?:minutes?|\d+ ?(?:m|h|s)\w*)\b", r"\b(?:card|GPU|VRAM|memory|disk|queue|answers?|repl(?:y|ies)|response|context|cache)\b[^.;,]{0,16}\b(?:empty|lost|gone|missing)\b", r"\bsomething missing\b", r"\byet\b", r"\bollama ps\b", r"\bweb ?(?:UI|interface)\b|\bextension\b", r"\bis loaded\b|\bload(?:s|ing) (?:a|the|one|another)\b|\bfrom (?:memory|VRAM|RAM|the GPU)\b|\bin (?:memory|VRAM)\b")),
    Rule("models_gone", (r"\b(?:no longer|not|never) (?:finds?|sees?|lists?|shows?) (?:any of )?(?:the |its |my |old |any )*models?\b",), (r"\bregistry\b", r"\bweb ?(?:UI|interface)\b|\bextension\b")),
    Rule("models_gone", (r"\bmodels\b", r"\bboth (?:hold|have|contain)\w*\b")),
    Rule("models_gone", (r"\bmodels\b", r"\b(?:under|in)\b.{1,60}\band (?:also )?(?:under|in)\b.{0,30}(?:/|\bhome\b|\buser\b|\bfolder\b|\bdirectory\b)|\bin two (?:folders|places|directories)\b|\bother user'?s? (?:home|folder)\b")),
    Rule("protect_home", (r"\bProtectHome\b",)),
    Rule("models_under_home", (r"(?:^|[\s=\"'])/home/\S+", r"\bmodels?\b|\bOLLAMA_MODELS\b|\bowned by ollama\b")),
    Rule("distribution_unit", (r"/(?:usr/)?lib/systemd/system/ollama\.service|\bpacman\b|\bArch\b|\bdistribution'?s? (?:unit|package)",)),
    Rule("folder_told", (r"(?:/(?:home|mnt|media|data|srv|opt)/\S*|\bparent\b|\bmodels? (?:dir\w*|folder)\b)", r"\bmode (?:d[rwx-]{9}|0?7[0-5]0)|\bitself 0?7[0-5]0\b|\bnot traversable\b|\bowned by another\b|\bpermission denied\b|\bEACCES\b|\bcannot (?:write|move)\b"), (r"/dev/|/opt/rocm|\brocBLAS\b|\bProtectHome\b",)),
    Rule("folder_told", (r"\bmkdir\b", r"\bpermission denied\b"), (r"/\w",)),
    Rule("home_in_distribution", (r"\bArch\b|\bpacman\b|\bdistribution\b", r"(?:^|[\s=\"'])/home\b", r"\bfails?\b|\bfailed\b|\bdenied\b|\bdoes not start\b")),
    Rule("network_storage", (r"\bnetwork (?:storage|share|drive)\b|\bNFS[34]?\b|\bCIFS\b|\bSMB\b|\bceph\b|\bHDD\b|\bslow disk\b", r"\bmodels?\b|\bload\w*\b|(?:\b|_)LOAD_TIMEOUT\b")),
    Rule("network_storage", (r"\bWSL2?\b|\bWindows\b|\bDocker Desktop\b|\b(?:host|local) (?:folder|directory)\b|/mnt/[c-z]\b", r"\b(?:mapp\w+|mount\w*|bind|volume|directory|folder)\b", r"\bload\w*\b", r"\bslow\w*|\blong\b|\b(?:very )?(?:fast|quick)\b")),
    Rule("network_storage", (r"\bwithout\b[^.;]{0,16}\b(?:mapp\w+|mount\w*|bind)\b", r"\bloads?\b[^.;]{0,16}\b(?:fast|quick\w*|in seconds)\b")),
    Rule("container_on_mac", (CONTAINER, r"\b(?:macOS|Mac(?:Book| mini| Studio)?|Apple silicon|M[1-5](?: (?:Pro|Max|Ultra))?)\b", r"\bslow\w*|\b0\.\d+ ?(?:tok|t/s)|\bCPU\b|\bno GPU\b|\bMetal\b|\bunusable\b"), (r"\bmemory\b", r"\bkilled\b", r"\bnot in (?:a )?(?:docker|container)")),
    Rule("image_based_system", (r"\b(?:Bazzite|Silverblue|Kinoite|Bluefin|Sericea|Onyx|uBlue|Universal Blue|Fedora (?:Atomic|CoreOS|IoT)|SteamOS|Steam Deck|MicroOS|Aeon|rpm-ostree|ostree|Vanilla OS)\b", r"\b(?:restart|crash)[ -]?loop\w*|\b(?:fails?|failed|does not|doesn't|won't|cannot) (?:to )?start\b|\bread-only\b"), (r"\bcontainers?\b|\bpodman\b|\bdistrobox\b|\bGPU\b",)),
    Rule("program_refused", (r"/ollama\b", r"\bexists?\b|\bis there\b|\bis executable\b", r"\b(?:unit|service|systemd)\b", r"\brestart\w*|\bfail\w*|\bdoes not start\b|\bexits?\b|\bloop\w*"), (r"\bmodels\b", r"\bpermission\b")),
    Rule("no_systemd", (r"\b(?:without|no|non-) ?systemd\b|\bnon-systemd\b|\bno init system\b|\bnot booted with systemd\b",)),
    Rule("unit_absent", (r"\bsystemctl --user\b|\buser (?:service|unit)\b", r"\bnot?\b|\brequested\b|\babsent\b|\bmissing\b|\bfail\w*"), (r"\bGPU\b", r"\buvm\b", r"\bsystem user\b")),
    Rule("runner_exit", (r"\b(?:runner|llama-server|engine)\b", r"\b(?:crash\w*|exits? \d+|stack trace|aborts?|segfault\w*|terminated)\b"), (r"\bsignal:? killed\b", r"\bVRAM recovery\b.*\bignored")),
    Rule("library_missing", (r"\blib(?:llama|ggml|cudart|cublas|rocblas)\S*|\blib/ollama\b", r"\bmissing\b|\bnot found\b|\bcannot open\b")),
    Rule("panic", (r"\b(?:server|ollama|service)\b", r"\bpanic\w*|\bGo stack trace\b|\bSIGSEGV\b|\bnil pointer\b|\bsegmentation (?:fault|violation)\b"), (r"\brunner\b|\bload\b",)),
    Rule("panic", (r"\bkills? the (?:whole )?server\b|\bserver (?:itself )?(?:dies|crashes)\b", r"\brestart\w*\b|\bconnection\b|\binstead of an error\b"), (r"\brunner\b",)),
    # reach
    Rule("remote_client", (ELSEWHERE, r"\b(?:reach\w*|access\w*|connect\w*|refus\w*|call\w*|available|use)\b")),
    Rule("remote_client", (CONTAINER, r"\b(?:the|its|on) host(?:'s)?\b|\bfrom (?:inside )?(?:a |the )?container\b|\bhost\.docker\b", r"\b(?:reach\w*|connect\w*|refus\w*|access\w*)\b")),
    Rule("container_asks_itself", (CONTAINER, r"\b(?:could ?n[o']t|cannot|can't|failed to|unable to|fails to) connect\b[^.;]{0,24} (?:to|at) (?:https?://)?(?:127\.0\.0\.1|localhost):11434\b"), (r"\bfrom (?:the )?host\b", r"\bon the host\b")),
    Rule("remote_refused", (rf"(?:{CONTAINER})", r"\b(?:web ?UI|web interface|UI|interface|front-?end)\b", r"\bno models?\b|\bmodels? (?:are|is) (?:not|n't|missing)|\bempty\b|\bshows? (?:nothing|none)\b", r"\bon (?:the|its|my) host\b|\bhost itself\b|\bon the same (?:machine|host)\b")),
    Rule("remote_client", (CONTAINER, r"127\.0\.0\.1|\blocalhost\b", r"\bfinds? no\b|\bcannot\b|\bcan't\b|\bcould ?n[o']t\b|\bno server\b|\brefus\w+|\bfails?\b"), (r"\bpublish\w*",)),
    Rule("gpu_libraries_absent", (r"\b(?:no|only) (?:GPU )?(?:runners?|backends?|librar(?:y|ies))\b[^.;]{0,12}\b(?:beyond|but|except|other than|besides|for) (?:the )?CPU\b|\bonly (?:the )?CPU (?:runners?|backends?)\b",)),
    Rule("package_variant", (r"\bollama-(?:cuda|rocm|vulkan)\b", r"\bno\b|\bwithout\b|\bmissing\b|\bnot installed\b|\black\w*")),
    Rule("package_variant", (r"\bpacman\b|\bAUR\b|\bArch (?:Linux )?(?:package|repo\w*)\b", GPU, rf"(?:{UNUSED}|{ON_CPU})")),
    Rule("nixos_module", (r"\bNixOS\b", rf"(?:{ON_CPU}|\bCPU[- ]only\b)"), (r"\bacceleration\b", BOOT, SLEEP, r"\b999\b")),
    Rule("not_allowed", (ELSEWHERE, r"\b(?:wants?|not|cannot|can't|unreachable|refused|unable)\b")),
    Rule("loopback_only_told", (r"\b(?:127\.0\.0\.1|localhost|loopback)\S*", r"\bonly\b", r"\b(?:listen\w*|bind\w*|bound|binds|ss|netstat|lsof|shows?|default)\b"), (r"\bcompose\b", r"\bpublish\w*")),
    Rule("exposed_told", (r"\b(?:all|every) (?:network )?interfaces?\b|\breachable (?:from|in|by)\b[^.]{0,20}\b(?:LAN|internet|anyone|network)|\bpublic(?:ly)?\b|\bshodan\b|\bunauthenticated\b|\bwithout (?:any )?auth\w*", r"\b(?:ollama|port|API|11434|publish\w*|bind\w*|bound|listen\w*|expos\w*)\b"), (r"\bloopback\b", r"\bexpected all\b")),
    Rule("origin_silent", (r"\b(?:ngrok|zrok|cloudflared?|tunnels?|reverse proxy|tailscale funnel)\b", r"\b403\b")),
    Rule("browser_origin", (r"\b(?:browser|Chrome|Firefox|Edge|web)\b[^.]{0,20}\b(?:extension|plug-?in|page|app)|\bextensions?\b|\bCORS\b|\bOrigin\b",), (r"\bOLLAMA_ORIGINS given an IP",)),
    Rule("origin_silent", (r"\b(?:browser|Chrome|Firefox|Edge|web)\b[^.]{0,20}\b(?:extension|plug-?in|page|app)|\bextensions?\b", r"\bshows? (?:nothing|no models?|an empty)|\bcannot connect\b|\bcan't connect\b|\bfails?\b|\bempty\b|\bno (?:models|answer)\b", r"\bserver\b[^.;]{0,12}\b(?:sees?|gets?|logs?|receives?|shows?)\b[^.;]{0,8}\b(?:no|nothing|none)\b|\bcurl\b[^.;]{0,24}\b(?:works?|answers?|fine|lists?)\b|\bworks? (?:with|in|from) curl\b"), (r"\bremote\b|\bother machine\b|\bLAN\b",)),
    Rule("bind_error", (r"\baddress already in use\b|\bport (?:is |was )?(?:in use|taken|held|occupied)\b|\bcannot bind\b|\bOnly one usage\b|\bis in use\b",), (r"uvm\b", r"\bmodule\b", r"\bCPU\b")),
    Rule("bind_error", (r"\bholds? (?:the|its|this) port\b|\bport is held\b|\bsame port\b", r"\bserve\b|\bserver\b|\bservice\b")),
    Rule("ipv6_only_shown", (r"\[::\]:\d+|\btcp6\b|\bIPv6\b", r"\bonly\b", r"\blisten\w*|\bsocket\b|\bss\b|\bnetstat\b"), (r"\bhand-started\b|\bby hand\b",)),
    Rule("placeholder_told", (r"\b(?:proxy\.example\.com|example\.(?:com|org)|your[-_.]?(?:proxy|host|domain)|my\.proxy|<[a-z_-]+>|PLACEHOLDER)\b", r"\blookup\b|\bno such host\b|\bcopied\b|\bliteral\w*|\bplaceholder\b")),
    Rule("placeholder_told", (r"\b(?:example|sample|placeholder)\b[^.;]{0,12}\b(?:name|proxy|host|value|domain|address)\b", r"\bcopied\b|\bliteral\w*|\bleft\b|\bkept\b|\breplaced?\b")),
    Rule("http_plain_manifest", (r"\bhttp_proxy\b", r"\bignor\w+|\bnot (?:used|honou?red)\b", r"\bplain[- ]http\b|\bhttp://")),
    Rule("client_version_differs", (r"\bversion\b|\bCLI\b", r"\bdiffers?\b|\bmismatch\b|\b\d+\.\d+\.\d+\b[^.;]{0,12}(?:/| vs| and )[^.;]{0,14}\b\d+\.\d+\.\d+\b", r"\bCLI\b|\bclient\b|\bterminal\b|\bapp\b")),
    Rule("nginx_bad", (r"\bnginx\b|\bproxy block\b|\breverse proxy\b|\bproxy_(?:buffering|http_version|set_header)\b", r"\b(?:without|missing|no|lacks?)\b[^.]{0,30}(?:\b|_)(?:proxy_pass|buffering|HTTP/1\.1|http_version|Host header)|\balways 504\b")),
    Rule("registry_timeout", (r"\bproxy\b|\bfirewall\b|HTTPS?_PROXY", r"\bpull\b|\bregistry\b|\bdownload\w*|\bmanifest\b|\bdial tcp\b|\blookup\b", r"\b(?:fail\w*|cannot|not|no effect|timeout|timed out|refused|unreachable|no such host)\b")),
    Rule("pull_stalls", (r"\bpull(?:s|ed|ing)?\b|\bdownload\w*", r"\b(?:stands?|stuck|hangs?|hung|stalls?|stalled|freez\w+|froze|stops?|stopped)\b[^.;]{0,24}\b\d{1,3} ?%|\b\d{1,3} ?%[^.;]{0,24}\b(?:stands?|stuck|hangs?|hung|stalls?|stalled|freez\w+|froze)\b"), (r"\bproxy\b",)),
    Rule("num_ctx_declared", (r"\bdeclared\b|\brecorded\b", r"\bnum_?ctx\b|\.num_ctx\b|\bcontext\b|/api/ps\b|\bnumber\b")),
)  # fmt: skip
