"""The C++ runtime: Vulkan devices, memory, transfers and compiled plans.

In: plain Python data (ints, bytes, dicts). Out: DLPack capsules, numbers, exceptions.
Forbidden: torch types on this side; the runtime knows addresses, not tensors.

Addresses are device addresses (VkDeviceAddress) unless a name says "host". Sizes are in bytes.
All functions may be called from any thread; calls that may wait release the GIL. In a forked child
every call raises the registered ``vulkan_error``.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

class MemoryHeap(TypedDict):
    size: int
    device_local: bool

class CooperativeMatrixShape(TypedDict):
    """A (m x k) times B (k x n) plus C (m x n), with the dtypes of all three by torch's names."""

    m: int
    n: int
    k: int
    a: str
    b: str
    c: str

class ExecutableReport(TypedDict):
    name: str
    subgroup_size: int
    statistics: dict[str, int | float | bool]
    representations: dict[str, str]

def register_exceptions(
    vulkan_error: type[Exception],
    device_lost: type[Exception],
    out_of_memory: type[Exception],
    device_assert: type[Exception],
) -> None:
    """Set the exception classes that the runtime raises; each is called with one string."""

def physical_devices() -> list[DeviceProfile]:
    """All Vulkan devices: discrete, integrated, virtual, other, cpu; null hardware last.

    Opens the Vulkan instance on the first call. Raises ``vulkan_error`` without a loader or driver.
    """

def required_features() -> list[str]:
    """Every feature a device must have, in the words of ``DeviceProfile.missing``."""

def device(
    index: int, pipeline_cache_path: str | None = None, torch_index: int | None = None
) -> Device:
    """Open device ``index`` of `physical_devices()`; later calls return the same object.

    ``pipeline_cache_path`` is read now and written by `Device.save_pipeline_cache` and at exit.
    ``torch_index`` (default: ``index``) is the device index that tensors carry.
    Raises ``vulkan_error`` when the device lacks something required (``DeviceProfile.missing``).
    """

def validation_messages() -> list[str]:
    """Warnings and errors of the validation layer (``TORCHVK_VALIDATION=1``), oldest first."""

def shutdown() -> None:
    """Wait for all devices and free everything. Registered with `atexit`; safe to call twice."""

class DeviceProfile:
    """What one physical device can do. Sizes in bytes, times in nanoseconds."""

    @property
    def index(self) -> int:
        """Position in `physical_devices()`."""
    @property
    def name(self) -> str: ...
    @property
    def vendor_id(self) -> int: ...
    @property
    def device_id(self) -> int: ...
    @property
    def device_type(self) -> str:
        """``"discrete"``, ``"integrated"``, ``"virtual"``, ``"cpu"`` or ``"other"``."""
    @property
    def driver_name(self) -> str: ...
    @property
    def driver_info(self) -> str: ...
    @property
    def driver_id(self) -> int:
        """VkDriverId."""
    @property
    def api_version(self) -> str: ...
    @property
    def device_uuid(self) -> str: ...
    @property
    def driver_uuid(self) -> str: ...
    @property
    def pipeline_cache_uuid(self) -> str: ...
    @property
    def subgroup_size(self) -> int: ...
    @property
    def min_subgroup_size(self) -> int: ...
    @property
    def max_subgroup_size(self) -> int: ...
    @property
    def subgroup_size_control(self) -> bool: ...
    @property
    def full_subgroups(self) -> bool: ...
    @property
    def subgroup_extended_types(self) -> bool:
        """Subgroup operations on 8-, 16- and 64-bit types."""
    @property
    def subgroup_shuffle(self) -> bool: ...
    @property
    def max_workgroup_size(self) -> tuple[int, int, int]: ...
    @property
    def max_workgroup_invocations(self) -> int: ...
    @property
    def max_workgroup_count(self) -> tuple[int, int, int]: ...
    @property
    def shared_memory_bytes(self) -> int: ...
    @property
    def max_allocation_bytes(self) -> int: ...
    @property
    def max_buffer_bytes(self) -> int: ...
    @property
    def uniform_offset_alignment(self) -> int: ...
    @property
    def max_uniform_bytes(self) -> int:
        """Largest argument structure of a kernel."""
    @property
    def timestamp_period_ns(self) -> float: ...
    @property
    def timestamp_valid_bits(self) -> int: ...
    @property
    def float16(self) -> bool: ...
    @property
    def float64(self) -> bool: ...
    @property
    def int8(self) -> bool: ...
    @property
    def int16(self) -> bool: ...
    @property
    def int64(self) -> bool: ...
    @property
    def storage8(self) -> bool: ...
    @property
    def storage16(self) -> bool: ...
    @property
    def int64_atomics(self) -> bool: ...
    @property
    def float_atomic_add(self) -> bool:
        """float32 additions in buffers."""
    @property
    def float_atomic_add_shared(self) -> bool:
        """float32 additions in shared memory."""
    @property
    def memory_model(self) -> bool:
        """The Vulkan memory model, with device scope."""
    @property
    def cooperative_matrix(self) -> bool: ...
    @property
    def cooperative_matrix_shapes(self) -> list[CooperativeMatrixShape]:
        """What a subgroup multiplies together; empty without cooperative matrices."""
    @property
    def bfloat16(self) -> bool: ...
    @property
    def nan_preserve(self) -> list[int]:
        """Float widths in bits for which shaders can keep signed zeros, infinities and NaNs."""
    @property
    def denorm_preserve(self) -> list[int]:
        """Float widths in bits for which shaders can be asked to keep subnormals, all together."""
    @property
    def pipeline_executable_properties(self) -> bool: ...
    @property
    def memory_budget(self) -> bool: ...
    @property
    def compute_units(self) -> int:
        """Compute units (AMD), multiprocessors (NVIDIA) or CPU threads; 0 if unknown."""
    @property
    def heaps(self) -> list[MemoryHeap]: ...
    @property
    def missing(self) -> list[str]:
        """Required features that are absent, in words; empty means usable."""
    @property
    def null_hardware(self) -> bool:
        """Compiles pipelines, executes nothing."""
    def to_dict(self) -> dict[str, Any]: ...

class Device:
    """One opened device. All work goes to one ordered stream."""

    @property
    def profile(self) -> DeviceProfile: ...
    @property
    def index(self) -> int:
        """The device index that tensors carry."""
    @property
    def lost(self) -> bool: ...
    def empty(
        self,
        shape: Sequence[int],
        strides: Sequence[int],
        dl_code: int,
        dl_bits: int,
        nbytes: int,
    ) -> Any:
        """A ``"dltensor"`` capsule (kDLExtDev) over ``nbytes`` of uninitialised device memory.

        Shape and strides in elements. Raises ``out_of_memory``.
        """
    def upload(self, dst_address: int, host_address: int, nbytes: int) -> None:
        """Copy host memory to the device. The host memory may be reused on return."""
    def download(self, src_address: int, host_address: int, nbytes: int) -> None:
        """Wait for all earlier work, then copy to the host. Raises ``device_assert``."""
    def copy(self, dst_address: int, src_address: int, nbytes: int) -> None:
        """Copy on the device, asynchronously. Overlapping ranges behave like memmove."""
    def fill(self, address: int, nbytes: int, pattern_bytes: bytes) -> None:
        """Repeat a pattern of 1, 2, 4, 8 or 16 bytes, asynchronously."""
    def synchronize(self) -> None:
        """Wait for all work. Raises ``device_assert`` and ``device_lost``."""
    def query(self) -> bool:
        """Has the device finished everything?"""
    def build_plan(self, spec: dict[str, Any]) -> Plan:
        """Compile a plan's kernels. Raises ValueError for an inconsistent specification."""
    def register_assert(self, message: str) -> int:
        """The id (> 0) that a kernel writes to the error buffer to raise ``message``.

        ``{0}``, ``{1}`` and ``{2}`` in the message become the three words beside the id, as signed numbers.
        """
    def memory_stats(self) -> dict[str, int]:
        """Allocator statistics under the names of `torch.cuda.memory_stats`."""
    def reset_peak_memory_stats(self) -> None: ...
    def reset_accumulated_memory_stats(self) -> None: ...
    def empty_cache(self) -> None:
        """Give cached memory back to the driver, after waiting for the device."""
    def set_memory_limit(self, nbytes: int) -> None:
        """Reserve at most ``nbytes`` from the driver; 0 removes the limit."""
    def memory_limit(self) -> int: ...
    def mem_get_info(self) -> tuple[int, int]:
        """Free and total bytes."""
    def counters(self) -> dict[str, int]:
        """Work done since the device was opened: dispatches, submissions, uploaded_bytes, …"""
    def set_profiling(self, enabled: bool) -> None:
        """Take timestamps around every step of plans run from now on."""
    def take_timings(self) -> list[tuple[str, str, float, float]]:
        """(plan, step, start_ns, duration_ns) of every profiled step since the last call."""
    def save_pipeline_cache(self) -> None:
        """Write the pipeline cache atomically. Raises ``vulkan_error`` if that fails."""
    def pipeline_statistics(
        self, spirv: bytes, entry: str, subgroup_size: int = 0
    ) -> list[ExecutableReport]:
        """What the driver's compiler says about one kernel, ISA text included.

        Raises ``vulkan_error`` without VK_KHR_pipeline_executable_properties.
        """

class OperatorCalls:
    """Calls of eager operators that were compiled before, found by their arguments and launched in C++."""

    def __init__(
        self,
        tensor_from_capsule: Callable[[Any], Any],
        settings: tuple[Callable[[], object], ...],
        listeners: list[Any],
        is_logged: Callable[[], bool],
        launched: Callable[[Any], None],
        watchers: list[Any],
        in_backward_pass: Callable[[], bool],
    ) -> None:
        """``settings`` are asked at every call: what they return belongs to its signature.

        While ``listeners`` is not empty, or ``is_logged`` returns True, every call is left to Python.
        ``launched`` is told the label of every call that is not. While ``watchers`` is not empty, such calls are
        kept for `take_watched`; ``in_backward_pass`` says of each whether autograd made it.
        """

    def kernel(self, operation: object, otherwise: Callable[..., Any]) -> Callable[..., Any]:
        """A function that runs known calls of ``operation``, and hands all others to ``otherwise``."""

    def fallback(self, otherwise: Callable[..., Any]) -> Callable[..., Any]:
        """As `kernel`, of the operator that is its first argument; so it is ``otherwise``'s."""

    def add(
        self,
        operation: object,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        plan: Plan,
        label: object,
        call: object,
        inputs: Sequence[int],
        values: list[int],
        item_bytes: Sequence[int],
        returns: str,
        results: Sequence[int],
    ) -> bool:
        """Remember that calls with arguments like these are computed by ``plan``.

        ``call`` is what `take_watched` calls them. ``inputs`` says for every input of the plan which of the
        call's tensors it is, ``values`` are the plan's; ``item_bytes`` has the size of an element of each tensor
        if the call writes any. ``returns`` is "nothing", "argument" (the tensor at ``results[0]``), "one",
        "tuple" or "list" (of the plan's outputs ``results``).
        Returns False if the arguments cannot be told apart, or if too many calls are known.
        """

    def take_watched(self) -> list[tuple[Any, int, int, int, bool]]:
        """The calls made while ``watchers`` was not empty, since this was last asked.

        Each is its ``call``, begin and end in nanoseconds of `time.perf_counter_ns`, the native number of its
        thread, and whether autograd made it.
        """

    def clear(self) -> None: ...
    def __len__(self) -> int: ...

class Plan:
    """A compiled graph; see `torchvk_compile.plan` for the specification."""

    @property
    def name(self) -> str: ...
    @property
    def dispatch_count(self) -> int: ...
    @property
    def barrier_count(self) -> int: ...
    def run(self, inputs: Sequence[int], values: list[int]) -> list[Any]:
        """Submit the plan once; returns one ``"dltensor"`` capsule per output, before it is done.

        ``inputs`` are addresses, ``values`` the dynamic scalars (up to 64 bits, either sign).
        Raises ValueError when a count is wrong, ``out_of_memory`` with nothing submitted.
        """
