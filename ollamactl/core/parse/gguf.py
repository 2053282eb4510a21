"""GGUF header: a skip-reader. It keeps what a memory plan needs and steps over vocabularies, merges and templates.

The format is https://github.com/ggml-org/ggml/blob/master/docs/gguf.md: magic, version, tensor count, key count, the
keys with typed values, then one record a tensor (name, dimensions, type, offset from the start of the data).
The bytes come from a callable, so that nothing here opens a file: `read(offset, length)` returns up to `length` bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as _Layout
from struct import error as _StructError
from struct import unpack_from

import msgspec

from ollamactl.core.memory.ggml import TYPES, TensorType
from ollamactl.errors import Exit, Failure

Reader = Callable[[int, int], bytes]
Scalar = int | float | bool | str

# Bounds that no real file comes near, so that a random header cannot take more than a second or 100 MB.
MAX_KEYS = 65_536
MAX_TENSORS = 100_000
MAX_STRINGS = 3_000_000  # of all arrays together; the largest vocabulary with merges is below 800,000
MAX_KEPT_TEXT = 1024
MAX_KEPT_ARRAY = 4096  # per-layer arrays have one value a block, and no model has this many
MAX_HEADER = 256 << 20  # bytes; the largest vocabularies with their merges take a tenth of it
CHUNK = 2 << 20

_U32, _U64 = _Layout("<I"), _Layout("<Q")
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_FORMATS = {kind: _Layout(text) for kind, text in _SCALARS.items()}
_TEXT, _ARRAY = 8, 9


class GgufError(Failure):
    """The bytes are not a GGUF header that could be used. `text` says what is wrong and where."""

    def __init__(self, text: str, *, hint: str = "pull or download the file again, and compare its size") -> None:
        super().__init__(text, hint=hint, code=Exit.UNSEEN, id="gguf_unreadable")


class Skipped(msgspec.Struct, frozen=True):
    """A value that was stepped over: an array (its number of values) or a long text (its number of bytes)."""

    length: int
    kind: str  # "array" or "text"


class GgufTensor(msgspec.Struct, frozen=True, gc=False):
    """One tensor. `dims` in ggml's order (row width first), `offset` in bytes from the start of the data."""

    name: str
    type: str
    dims: tuple[int, ...]
    offset: int
    nbytes: int


class GgufHeader(msgspec.Struct, frozen=True):
    """What a header holds. `metadata` has every key; long arrays and texts as `Skipped`.

    `data_offset`: where the tensor data starts, in bytes; `size`: bytes of the whole file (0 where unknown).
    """

    version: int
    metadata: dict[str, Scalar | tuple[Scalar, ...] | Skipped]
    tensors: tuple[GgufTensor, ...]
    alignment: int
    data_offset: int
    size: int

    @property
    def architecture(self) -> str:
        """`general.architecture`, or an empty text."""
        value = self.metadata.get("general.architecture")
        return value if isinstance(value, str) else ""

    @property
    def split_count(self) -> int:
        """Number of files that the model is split into; 1 for a whole one."""
        value = self.metadata.get("split.count")
        return value if isinstance(value, int) and value > 0 else 1


class _Cursor:
    """A position in the file and one chunk of it. Every step is checked against the file's size."""

    __slots__ = ("base", "buffer", "ends", "position", "read", "size", "strings")

    def __init__(self, read: Reader, size: int, ends: dict[int, int]) -> None:
        self.read, self.size, self.ends = read, size, ends
        self.buffer, self.base, self.position = b"", 0, 0  # position is absolute
        self.strings = 0

    def need(self, count: int, what: str) -> int:
        """Make `count` bytes at the position available; returns their index in the buffer."""
        index = self.position - self.base
        if index >= 0 and index + count <= len(self.buffer):
            return index
        if self.position + count > self.size:
            raise GgufError(
                f"the file ends at byte {self.size} inside {what}", hint="the download is incomplete: pull it again"
            )
        if self.position > MAX_HEADER:
            raise GgufError(f"{what} begins {self.position >> 20} MiB into the file, where no header reaches")
        self.base = self.position
        self.buffer = self.read(self.base, min(max(count, CHUNK), self.size - self.base))
        if len(self.buffer) < count:
            raise GgufError(f"the file ends at byte {self.base + len(self.buffer)} inside {what}")
        return 0

    def take(self, layout: _Layout, what: str) -> int:
        index = self.need(layout.size, what)
        self.position += layout.size
        value: int = layout.unpack_from(self.buffer, index)[0]
        return value

    def skip(self, count: int, what: str) -> None:
        if count > self.size - self.position:
            raise GgufError(f"{what} reaches {count} bytes beyond byte {self.position}, the file has {self.size}")
        self.position += count

    def text(self, limit: int, what: str) -> str | Skipped:
        """A text of at most `limit` bytes, or how long it is."""
        length = self.take(_U64, what)
        if length > self.size - self.position:
            raise GgufError(f"{what} claims {length} bytes at byte {self.position}, the file has {self.size}")
        if length > limit:
            self.position += length
            return Skipped(length, "text")
        index = self.need(length, what)
        self.position += length
        return self.buffer[index : index + length].decode("utf-8", "replace")

    def skip_texts(self, count: int, what: str) -> None:
        """Step over `count` texts, at once where it is known where they end."""
        self.strings += count
        if count * 8 > self.size - self.position or self.strings > MAX_STRINGS:
            raise GgufError(f"{what} claims {count} texts at byte {self.position}, the file has {self.size} bytes")
        first, known = self.position, self.ends.get(self.position, 0)
        if first + count * 8 <= known <= self.size:
            self.position = known
            return
        self._step_over(count, what)
        self.ends[first] = self.position

    def _step_over(self, count: int, what: str) -> None:
        """The inner loop is the reader's whole cost on a large vocabulary."""
        unpack = _U64.unpack_from
        left = count
        while left:
            index = self.need(8, what)
            buffer = self.buffer
            try:
                for left in range(left, 0, -1):  # noqa: B007, B020 - left is what remains when a chunk ends
                    index += 8 + unpack(buffer, index)[0]
                left = 0
            except (_StructError, OverflowError):
                pass  # the next length is beyond this chunk, or was no length: then beyond the file
            self.position = self.base + index
            if self.position > self.size:
                raise GgufError(f"a text of {what} reaches beyond the end of the file ({self.size} bytes)")


def read_header(read: Reader, size: int, ends: dict[int, int] | None = None) -> GgufHeader:
    """Read a header of a file of `size` bytes. Raises GgufError for anything that is not a whole, sane header.

    `ends`: where the arrays of texts of this very file end, by the offset of their first one; those that are found are
    added.
    """
    cursor = _Cursor(read, size, {} if ends is None else ends)
    version, tensors, keys = _start(cursor)
    metadata: dict[str, Scalar | tuple[Scalar, ...] | Skipped] = {}
    for number in range(keys):
        name = cursor.text(MAX_KEPT_TEXT, f"the name of key {number}")
        if isinstance(name, Skipped) or not name:
            raise GgufError(f"key {number} has a name of {name.length if isinstance(name, Skipped) else 0} bytes")
        if name in metadata:
            raise GgufError(f"key {name!r} is there twice")
        metadata[name] = _value(cursor, cursor.take(_U32, f"the type of {name}"), name)
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1) or alignment > 1 << 20:
        raise GgufError(f"general.alignment is {alignment}, not a power of two")
    records = _tensors(cursor, tensors)
    return GgufHeader(version, metadata, records, alignment, -(-cursor.position // alignment) * alignment, size)


def _start(cursor: _Cursor) -> tuple[int, int, int]:
    if cursor.size < 24:
        raise GgufError(f"{cursor.size} bytes are too few for a GGUF header")
    index = cursor.need(24, "the first 24 bytes")
    magic, version, tensors, keys = unpack_from("<4sIQQ", cursor.buffer, index)
    if magic != b"GGUF":
        raise GgufError(f"it starts with {magic!r}, not with GGUF", hint="this is not a GGUF model file")
    if version & 0xFFFF == 0:
        raise GgufError("it is a big-endian GGUF", hint="convert it to little-endian (gguf-convert-endian)")
    if version not in (2, 3):
        raise GgufError(f"GGUF version {version} is not known (2 and 3 are)")
    if tensors > MAX_TENSORS or keys > MAX_KEYS or tensors * 24 + keys * 13 > cursor.size:
        raise GgufError(f"it claims {tensors} tensors and {keys} keys in {cursor.size} bytes")
    cursor.position += 24
    return version, tensors, keys


def _value(cursor: _Cursor, kind: int, name: str) -> Scalar | tuple[Scalar, ...] | Skipped:
    if kind == _TEXT:
        return cursor.text(MAX_KEPT_TEXT, name)
    layout = _FORMATS.get(kind)
    if layout is not None:
        return cursor.take(layout, name)
    if kind != _ARRAY:
        raise GgufError(f"{name} has the unknown value type {kind}")
    kind = cursor.take(_U32, name)
    count = cursor.take(_U64, name)
    if kind == _TEXT:
        if count <= 64:
            texts = tuple(cursor.text(MAX_KEPT_TEXT, name) for _ in range(count))
            return tuple(t if isinstance(t, str) else "" for t in texts)
        cursor.skip_texts(count, name)
        return Skipped(count, "array")
    layout = _FORMATS.get(kind)
    if layout is None:
        raise GgufError(f"{name} is an array of the unknown type {kind}")
    if count * layout.size > cursor.size - cursor.position:
        raise GgufError(f"{name} claims {count} values at byte {cursor.position}, the file has {cursor.size} bytes")
    if count > MAX_KEPT_ARRAY:
        cursor.skip(count * layout.size, name)
        return Skipped(count, "array")
    index = cursor.need(count * layout.size, name)
    cursor.position += count * layout.size
    return unpack_from(f"<{count}{layout.format[1:]}", cursor.buffer, index)


def _tensors(cursor: _Cursor, count: int) -> tuple[GgufTensor, ...]:
    found: dict[str, GgufTensor] = {}
    try:
        for number in range(count):
            name = cursor.text(MAX_KEPT_TEXT, f"the name of tensor {number}")
            if isinstance(name, Skipped):
                raise GgufError(f"tensor {number} has a name of {name.length} bytes")
            rank = cursor.take(_U32, name)
            if not 1 <= rank <= 4:
                raise GgufError(f"tensor {name!r} has {rank} dimensions")
            index = cursor.need(rank * 8 + 12, name)
            dims = unpack_from(f"<{rank}Q", cursor.buffer, index)
            kind, offset = unpack_from("<IQ", cursor.buffer, index + rank * 8)
            cursor.position += rank * 8 + 12
            if name in found:
                raise GgufError(f"tensor {name!r} is there twice")
            found[name] = _tensor(name, dims, kind, offset)
    except _StructError as error:
        raise GgufError(f"a tensor record cannot be read: {error}") from None
    return tuple(found.values())


def _tensor(name: str, dims: tuple[int, ...], kind: int, offset: int) -> GgufTensor:
    type_: TensorType | None = TYPES.get(kind)
    if type_ is None:
        raise GgufError(f"tensor {name!r} has the unknown type {kind}", hint="a newer ollamactl may know it")
    values = 1
    for width in dims:
        values *= width
    if not 0 < values < 1 << 62 or offset >= 1 << 62:
        raise GgufError(f"tensor {name!r} has impossible dimensions {dims} at {offset}")
    if dims[0] % type_.block:
        raise GgufError(
            f"tensor {name!r} has rows of {dims[0]}, not a multiple of {type_.name}'s block of {type_.block}"
        )
    return GgufTensor(name, type_.name, dims, offset, values // type_.block * type_.size)
