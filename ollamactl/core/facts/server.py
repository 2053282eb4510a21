"""The server's runners and models."""

from __future__ import annotations

from ollamactl.core.facts.processes import Process
from ollamactl.core.facts.record import Record


class Slot(Record, frozen=True, kw_only=True):
    id: int
    context: int
    busy: bool


class Runner(Record, frozen=True, kw_only=True):
    """A child of the server that serves one model, from its process and its own port."""

    process: Process
    model: str = ""  # the file it serves
    name: str = ""  # the loaded model whose manifest names that file
    port: int | None = None
    port_owned: bool | None = None  # that process itself listens on the port; None: not readable
    context_total: int | None = None
    slots: int | None = None
    batch: int | None = None
    kv_type_k: str = ""
    kv_type_v: str = ""
    flash_attention: str = ""
    props_slots: int | None = None  # /props total_slots
    slot_list: tuple[Slot, ...] | None = None
    loading: bool = False  # it does not serve yet: its own API or the log says so


class LoadedModel(Record, frozen=True, kw_only=True):
    """An entry of /api/ps."""

    name: str
    digest: str = ""
    size: int = 0
    size_vram: int = 0
    context: int | None = None  # per slot; absent before 0.10
    expires: str = ""
    family: str = ""
    families: tuple[str, ...] = ()
    parameters: str = ""
    quantization: str = ""


class InstalledModel(Record, frozen=True, kw_only=True):
    name: str
    digest: str = ""
    size: int = 0
    family: str = ""
    parameters: str = ""
    quantization: str = ""
    capabilities: tuple[str, ...] = ()
