"""Records and states: frozen dataclasses of tensors that pass through everything PyTorch does.

A `Record` is registered as a pytree, so it goes in and out of `torch.compile`, `vmap` and autograd.
A `State` also knows where its batch dimensions end (each field declares its event rank), so it can
be indexed, stacked and saved.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.utils import _pytree as pytree

FORMAT = "mnemon-state"
FORMAT_VERSION = 1


def rank(event_rank: int) -> dict[str, int]:
    """Metadata of a state's field: how many trailing dimensions belong to one state."""
    return {"event_rank": event_rank}


STATIC = {"static": True}
"""Metadata of a record's field that is a plain constant (a name, a number), not a tensor."""


def _flatten(record: Record) -> tuple[list[Any], tuple[tuple[str, ...], tuple[tuple[str, Any], ...]]]:
    """Tensors and records are children; constants and absent fields are structure (vmap returns no None)."""
    children: dict[str, Any] = {}
    constants: list[tuple[str, Any]] = []
    for name, metadata in record._fields.items():
        value = getattr(record, name)
        if value is None or "static" in metadata:
            constants.append((name, value))
        else:
            children[name] = value
    return list(children.values()), (tuple(children), tuple(constants))


def _own_fields(cls: type) -> dict[str, Mapping[str, Any]]:
    """Name and metadata of the fields a class declares, before @dataclass sees it.

    `dataclasses.fields` would tell the same, but compiled code cannot call it on a class.
    """
    annotations = vars(cls).get("__annotations__", {})
    declared = {name: vars(cls).get(name) for name, kind in annotations.items() if "ClassVar" not in str(kind)}
    return {name: value.metadata if isinstance(value, dataclasses.Field) else {} for name, value in declared.items()}


class Record:
    """Base of frozen `eq=False` dataclasses whose fields are tensors, records, plain constants or None."""

    _fields: ClassVar[dict[str, Mapping[str, Any]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._fields = cls._fields | _own_fields(cls)
        pytree.register_pytree_node(
            cls,
            _flatten,
            lambda values, context: cls(**dict(zip(context[0], values, strict=True)), **dict(context[1])),
            serialized_type_name=f"{cls.__module__}.{cls.__qualname__}",
        )

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Apply `function` to every tensor, also inside nested records."""
        return dataclasses.replace(self, **{name: _apply(function, getattr(self, name)) for name in self._fields})  # type: ignore[type-var]

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """`Tensor.to` on every tensor."""
        return self.map(lambda tensor: tensor.to(*args, **kwargs))

    def detach(self) -> Self:
        return self.map(torch.Tensor.detach)

    def contiguous(self) -> Self:
        """`Tensor.contiguous` on every tensor: the order in which a file brings it back, since products round by it."""
        return self.map(torch.Tensor.contiguous)

    def replace(self, **changes: Any) -> Self:
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def tensors(self) -> dict[str, Tensor]:
        """The record's own tensors by name; absent ones (None) are left out."""
        values = {name: getattr(self, name) for name in self._fields}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    @property
    def nbytes(self) -> int:
        """Bytes held by the tensors, nested records included."""
        total = 0
        for name in self._fields:
            value = getattr(self, name)
            if isinstance(value, Tensor | Record):
                total += value.nbytes
        return total


class State(Record):
    """A record whose tensors share leading batch dimensions `*B`.

    Every field declares its event rank: `R: Tensor = field(metadata=rank(2))`.
    """

    _classes: ClassVar[dict[str, type[State]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        State._classes[cls.__name__] = cls

    @property
    def batch_shape(self) -> torch.Size:
        """The shared leading dimensions, from the first tensor's shape less its event rank."""
        name, tensor = next(iter(self.tensors().items()))
        return tensor.shape[: tensor.ndim - self._event_ranks()[name]]

    @classmethod
    def _event_ranks(cls) -> dict[str, int]:
        return {name: metadata["event_rank"] for name, metadata in cls._fields.items()}

    def __getitem__(self, index: Any) -> Self:
        """Index over the batch dimensions only; event dimensions stay whole."""
        key = index if isinstance(index, tuple) else (index,)
        if not any(part is Ellipsis for part in key):
            key = (*key, Ellipsis)
        ranks = self._event_ranks()
        used = sum(1 for part in key if part is not None and part is not Ellipsis)
        if used > len(self.batch_shape):
            raise ValueError(
                f"{type(self).__name__}[...]: expected at most {len(self.batch_shape)} batch indices "
                f"(batch shape {tuple(self.batch_shape)}), got {used}; index the tensors themselves for more"
            )
        changes = {name: tensor[key + (slice(None),) * ranks[name]] for name, tensor in self.tensors().items()}
        return self.replace(**changes)

    def expand(self, batch_shape: tuple[int, ...]) -> Self:
        """The same state for every element of a batch, without copying. Shapes: (*B) -> (*batch_shape)"""
        ranks = self._event_ranks()
        return self.replace(
            **{
                name: tensor.expand(torch.Size(batch_shape) + tensor.shape[tensor.ndim - ranks[name] :])
                for name, tensor in self.tensors().items()
            }
        )

    @classmethod
    def stack(cls, states: Iterable[Self], dim: int = 0) -> Self:
        """Stack states of equal shape along a new batch dimension."""
        states = list(states)
        if not states:
            raise ValueError("stack: expected at least one state, got none")
        shapes = {tuple((name, tuple(t.shape)) for name, t in state.tensors().items()) for state in states}
        if len({type(state) for state in states}) > 1 or len(shapes) > 1:
            raise ValueError(f"stack: expected states of one class and shape, got {sorted(map(str, shapes))}")
        depth = len(states[0].batch_shape)
        if not -depth - 1 <= dim <= depth:
            raise ValueError(f"stack: expected dim between {-depth - 1} and {depth}, got {dim}")
        position = dim % (depth + 1)
        names = states[0].tensors()
        return states[0].replace(
            **{name: torch.stack([getattr(state, name) for state in states], dim=position) for name in names}
        )

    def save(self, path: str | os.PathLike[str], *, metadata: Mapping[str, str] | None = None) -> None:
        """Write as safetensors, atomically: an existing file is replaced only by a complete new one."""
        header = dict(metadata or {}) | {
            "format": FORMAT,
            "format_version": str(FORMAT_VERSION),
            "class": type(self).__name__,
        }
        # clones: safetensors refuses tensors that share memory, such as expanded ones
        tensors = {
            name: tensor.detach().clone(memory_format=torch.contiguous_format)
            for name, tensor in self.tensors().items()
        }
        with atomic_path(path) as temporary:
            save_file(tensors, temporary, metadata=header)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str | torch.device = "cpu") -> Self:
        """Read a state saved by `save`; on `State` itself, whatever class the file names."""
        path = Path(path)
        if path.is_dir():
            raise ValueError(f"load: expected a memory that was saved, got a folder, {path}; name the file")
        try:
            with safe_open(path, framework="pt", device=str(device)) as file:
                header = file.metadata() or {}
                # clones: a file's tensors begin anywhere, and products round by where their factors begin
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        except FileNotFoundError:
            raise ValueError(f"load: expected a memory that was saved, got no file {path}; check the path") from None
        except (SafetensorError, OSError) as error:
            raise ValueError(
                f"load: {path} is not a whole safetensors file ({error}); write it again with save"
            ) from error
        kind = cls._class_of(path, header)
        missing = {
            f.name
            for f in dataclasses.fields(kind)  # type: ignore[arg-type]
            if f.name not in tensors and f.default is dataclasses.MISSING
        }
        unknown = tensors.keys() - kind._event_ranks().keys()
        if missing or unknown:
            raise ValueError(
                f"load: {path} does not fit {kind.__name__}: missing {sorted(missing)}, unknown {sorted(unknown)}"
            )
        return kind(**tensors)

    @classmethod
    def _class_of(cls, path: Path, header: Mapping[str, str]) -> type[Self]:
        if header.get("format") != FORMAT:
            raise ValueError(
                f"load: {path} holds tensors, but no memory of this library; expected a file made by State.save"
            )
        if header.get("format_version") != str(FORMAT_VERSION):
            raise ValueError(
                f"load: {path} has format version {header.get('format_version')}, this library reads "
                f"{FORMAT_VERSION}; use the version of mnemon that wrote it"
            )
        kind = State._classes.get(header.get("class", ""))
        if kind is None or not issubclass(kind, cls):
            raise ValueError(f"load: expected a {cls.__name__} in {path}, got {header.get('class')}")
        return kind


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[str]:
    """A temporary path beside `path` that takes its place only if the block ends without an error."""
    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"save: expected an existing folder, got {path.parent}; create it first")
    if path.is_dir():
        raise ValueError(f"save: expected a file, got {path}, which is a folder; name a file in it")
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _apply(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    if isinstance(value, Tensor):
        return function(value)
    return value.map(function) if isinstance(value, Record) else value
