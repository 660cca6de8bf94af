"""Flink's resource specifications: accepted without effect, as all slots of Spark are alike."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.common.text.memory_sizes import format_memory_size
from penstock.errors import InvalidJobError

__all__ = ["MemorySize", "SlotSharingGroup"]


@dataclass(frozen=True, slots=True, order=True)
class MemorySize:
    """A number of bytes."""

    bytes_size: int

    def __post_init__(self) -> None:
        """Check the size."""
        if not isinstance(self.bytes_size, int) or self.bytes_size < 0:
            message = f"a memory size is a whole number of bytes; got {self.bytes_size!r}"
            raise InvalidJobError(message)

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        """Return a size in mebibytes."""
        return MemorySize(mebi_bytes << 20)

    def get_bytes(self) -> int:
        """Return the bytes."""
        return self.bytes_size

    def get_kibi_bytes(self) -> int:
        """Return the whole kibibytes."""
        return self.bytes_size >> 10

    def get_mebi_bytes(self) -> int:
        """Return the whole mebibytes."""
        return self.bytes_size >> 20

    def get_gibi_bytes(self) -> int:
        """Return the whole gibibytes."""
        return self.bytes_size >> 30

    def get_tebi_bytes(self) -> int:
        """Return the whole tebibytes."""
        return self.bytes_size >> 40

    def __str__(self) -> str:
        return format_memory_size(self.bytes_size)


@dataclass(frozen=True, slots=True)
class SlotSharingGroup:
    """A name and the resources of the steps in this group."""

    name: str
    cpu_cores: float | None = None
    task_heap_memory: MemorySize | None = None
    task_off_heap_memory: MemorySize | None = None
    managed_memory: MemorySize | None = None
    external_resources: dict[str, float] = field(default_factory=dict, hash=False)

    def get_name(self) -> str:
        """Return the name."""
        return self.name

    def get_managed_memory(self) -> MemorySize | None:
        """Return the managed memory, if it was set."""
        return self.managed_memory

    def get_task_heap_memory(self) -> MemorySize | None:
        """Return the heap memory, if it was set."""
        return self.task_heap_memory

    def get_task_off_heap_memory(self) -> MemorySize | None:
        """Return the memory off the heap, if it was set."""
        return self.task_off_heap_memory

    def get_cpu_cores(self) -> float | None:
        """Return the cores, if they were set."""
        return self.cpu_cores

    def get_external_resources(self) -> dict[str, float]:
        """Return the other resources by name."""
        return dict(self.external_resources)

    @staticmethod
    def builder(name: str) -> SlotSharingGroup.Builder:
        """Create a builder."""
        return SlotSharingGroup.Builder(name)

    class Builder:
        """Builds a slot sharing group."""

        def __init__(self, name: str) -> None:
            self._group = SlotSharingGroup(name)

        def set_cpu_cores(self, cpu_cores: float) -> SlotSharingGroup.Builder:
            """Set the cores."""
            if not cpu_cores > 0:
                message = f"the cores of a slot sharing group must be above 0; got {cpu_cores!r}"
                raise InvalidJobError(message)
            self._group = replace(self._group, cpu_cores=float(cpu_cores))
            return self

        def set_task_heap_memory(self, task_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set the heap memory."""
            if not task_heap_memory.get_bytes():
                message = "the heap memory of a slot sharing group must be above 0"
                raise InvalidJobError(message)
            self._group = replace(self._group, task_heap_memory=task_heap_memory)
            return self

        def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set the heap memory in mebibytes."""
            return self.set_task_heap_memory(MemorySize.of_mebi_bytes(task_heap_memory_mb))

        def set_task_off_heap_memory(
            self, task_off_heap_memory: MemorySize
        ) -> SlotSharingGroup.Builder:
            """Set the memory off the heap."""
            self._group = replace(self._group, task_off_heap_memory=task_off_heap_memory)
            return self

        def set_task_off_heap_memory_mb(
            self, task_off_heap_memory_mb: int
        ) -> SlotSharingGroup.Builder:
            """Set the memory off the heap in mebibytes."""
            return self.set_task_off_heap_memory(MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

        def set_managed_memory(self, managed_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set the managed memory."""
            self._group = replace(self._group, managed_memory=managed_memory)
            return self

        def set_managed_memory_mb(self, managed_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set the managed memory in mebibytes."""
            return self.set_managed_memory(MemorySize.of_mebi_bytes(managed_memory_mb))

        def set_external_resource(self, name: str, value: float) -> SlotSharingGroup.Builder:
            """Set another resource."""
            others = {**self._group.external_resources, name: value}
            self._group = replace(self._group, external_resources=others)
            return self

        def build(self) -> SlotSharingGroup:
            """Return the group; Flink needs cores and heap memory, or no resources at all."""
            group = self._group
            optional = (group.task_off_heap_memory, group.managed_memory)
            needed = (group.cpu_cores, group.task_heap_memory)
            has_some = any(value is not None for value in (*optional, *needed))
            if (has_some or group.external_resources) and None in needed:
                message = (
                    f"slot sharing group {group.name!r} has some resources: set_cpu_cores() and "
                    "set_task_heap_memory() are needed then, or none of them"
                )
                raise InvalidJobError(message)
            return group
