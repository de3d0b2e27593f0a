"""Slang to SPIR-V: both ways to run the compiler, the cache between, and errors that help."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchvk_compile import cache, config, shaders
from torchvk_compile.errors import ShaderCompileError
from torchvk_compile.shaders import location, module, spirv

TWO_KERNELS = """
struct ScaleArgs { float* x; half* h; int8_t* b; int64_t n; float alpha; };
[[vk::binding(0, 0)]] ConstantBuffer<ScaleArgs> scaleArgs;
groupshared float shared[64];

[shader("compute")] [numthreads(64, 1, 1)]
void scale(uint3 id : SV_DispatchThreadID, uint3 local : SV_GroupThreadID)
{
    shared[local.x] = WaveActiveSum(scaleArgs.x[id.x]) + float(scaleArgs.h[id.x]);
    GroupMemoryBarrierWithGroupSync();
    if (int64_t(id.x) < scaleArgs.n)
        scaleArgs.x[id.x] = shared[63 - local.x] * scaleArgs.alpha + float(scaleArgs.b[id.x]);
    float4* p = (float4*)((uint64_t)scaleArgs.x + (uint64_t)(id.x * 16u));
    storeAligned<16>(p, loadAligned<16>(p));
}

struct CountArgs { int64_t* x; double* d; uint n; };
[[vk::binding(0, 0)]] ConstantBuffer<CountArgs> countArgs;

[shader("compute")] [numthreads(64, 1, 1)]
void count(uint3 id : SV_DispatchThreadID)
{
    uint before;
    if (id.x < countArgs.n)
        InterlockedCompareExchange(*(uint*)countArgs.x, 1u, 2u, before);
    countArgs.d[id.x] *= 2.0L;
}
"""
NAMES = ["scale", "count"]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """An empty cache."""
    with config.patch(cache_dir=tmp_path / "cache"):
        yield tmp_path


@pytest.fixture(params=["in process", "executable"])
def way(request: pytest.FixtureRequest, directory: Path) -> Iterator[str]:
    """Both ways to run Slang."""
    compiler = shaders.find_compiler()
    chosen = compiler.library if request.param == "in process" else compiler.executable
    if chosen is None:
        pytest.skip(f"the {compiler.origin} compiler cannot be used {request.param}")
    with config.patch(slangc=chosen):
        yield request.param


def test_several_kernels_in_one_valid_module(way: str, directory: Path) -> None:
    binary = shaders.compile_module(TWO_KERNELS, NAMES)
    assert spirv.entry_points(binary) == NAMES
    validator = shutil.which("spirv-val")
    if validator is not None:
        path = directory / "module.spv"
        path.write_bytes(binary)
        command = [validator, "--target-env", "vulkan1.2", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_both_ways_give_the_same_module(directory: Path) -> None:
    compiler = shaders.find_compiler()
    if compiler.library is None or compiler.executable is None:
        pytest.skip("only one way to run Slang here")
    results = []
    for chosen in (compiler.library, compiler.executable):
        with config.patch(slangc=chosen, cache_dir=directory / chosen.name):
            results.append(shaders.compile_module(TWO_KERNELS, NAMES))
    assert results[0] == results[1]


def test_error_shows_diagnostics_and_keeps_the_source(way: str) -> None:
    source = TWO_KERNELS.replace("WaveActiveSum", "WaveActiveSun")
    with pytest.raises(ShaderCompileError, match="WaveActiveSun") as caught:
        shaders.compile_module(source, NAMES, name="forward 0")
    assert "forward_0.slang:9" in str(caught.value)
    assert caught.value.source_path is not None
    assert caught.value.source_path.read_text() == source
    assert str(caught.value.source_path) in str(caught.value)


def test_compiler_is_usable_after_an_error(way: str) -> None:
    with pytest.raises(ShaderCompileError):
        shaders.compile_module("import no_such_module;", [])
    assert shaders.compile_module(TWO_KERNELS, NAMES)


def test_entry_points_must_be_the_named_ones(directory: Path) -> None:
    with pytest.raises(ShaderCompileError, match=r"\['scale', 'count'\], expected \['scale'\]"):
        shaders.compile_module(TWO_KERNELS, ["scale"])


def test_second_compilation_comes_from_the_disk(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = shaders.compile_module(TWO_KERNELS, NAMES)
    monkeypatch.setattr(module, "_compile", None)
    assert shaders.compile_module(TWO_KERNELS, NAMES) == first


def test_log_tells_what_is_compiled(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    shaders.compile_module(TWO_KERNELS, NAMES, name="quiet")
    with config.patch(log="info"):
        shaders.compile_module(TWO_KERNELS + "// again\n", NAMES, name="step")
    told = [message for message in caplog.messages if message.startswith("compiled ")]
    assert len(told) == 1 and told[0].startswith("compiled step: 2 kernels, ")


def test_corrupt_cache_entry_is_compiled_again(directory: Path) -> None:
    first = shaders.compile_module(TWO_KERNELS, NAMES)
    (entry,) = [path for path in (directory / "cache" / "spirv").rglob("*") if path.is_file()]
    entry.write_bytes(entry.read_bytes()[:-4])
    before = cache.statistics().corrupt
    assert shaders.compile_module(TWO_KERNELS, NAMES) == first
    assert cache.statistics().corrupt == before + 1


USES_LIBRARY = (
    "import scaling;\nstruct Args { float* x; half* h; };\n"
    "[[vk::binding(0, 0)]] ConstantBuffer<Args> args;\n"
    '[shader("compute")] [numthreads(1, 1, 1)] void k()\n'
    "{ args.x[0] = scaled(args.x[0]); args.h[0] = scaled<half>(args.h[0]); }"
)


@pytest.fixture
def library(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Library modules of our own: ``scaling`` needs ``factors``."""
    lib = directory / "templates" / "lib"
    lib.mkdir(parents=True)
    (lib / "scaling.slang").write_text(
        "module scaling;\nimport factors;\n"
        "public T scaled<T : __BuiltinFloatingPointType>(T x) { return x * T(factor()); }\n"
    )
    (lib / "factors.slang").write_text("module factors;\npublic float factor() { return 2.0; }\n")
    monkeypatch.setattr(module, "template_root", lambda: directory / "templates")
    return lib


def test_imported_modules_are_part_of_the_key(way: str, library: Path) -> None:
    first = shaders.compile_module(USES_LIBRARY, ["k"])
    factors = library / "factors.slang"
    factors.write_text(factors.read_text().replace("2.0", "3.0"))
    assert shaders.compile_module(USES_LIBRARY, ["k"]) != first
    (library / "unrelated.slang").write_text("module unrelated;\n")
    misses = cache.statistics().misses
    shaders.compile_module(USES_LIBRARY, ["k"])
    assert cache.statistics().misses == misses


def test_precompiled_modules_give_the_code_their_source_gives(way: str, library: Path) -> None:
    slang = module.load_compiler(shaders.find_compiler())
    options = [*module._OPTIONS, "-I", str(library)]
    from_source = slang.compile(USES_LIBRARY, options, "graph")
    assert shaders.compile_module(USES_LIBRARY, ["k"]) == spirv.without_source_language(from_source)


def test_damaged_precompiled_module_is_replaced(way: str, library: Path, directory: Path) -> None:
    first = shaders.compile_module(USES_LIBRARY, ["k"])
    for path in (directory / "cache").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert shaders.compile_module(USES_LIBRARY, ["k"]) == first


def test_unwritable_cache_still_compiles(library: Path, directory: Path) -> None:
    (directory / "file").write_text("")
    with (
        config.patch(cache_dir=directory / "file" / "cache"),
        pytest.warns(RuntimeWarning, match="cannot write its cache"),
    ):
        assert shaders.compile_module(USES_LIBRARY, ["k"])


def test_error_inside_a_library_module_names_it(way: str, library: Path) -> None:
    (library / "factors.slang").write_text("public float factor() { return two; }\n")
    with pytest.raises(ShaderCompileError, match=r"factors.slang:1"):
        shaders.compile_module(USES_LIBRARY, ["k"])


def test_circular_imports_are_slangs_error(directory: Path, library: Path) -> None:
    (library / "factors.slang").write_text("import scaling;\npublic float factor() { return 2; }\n")
    with pytest.raises(ShaderCompileError, match="scaling"):
        shaders.compile_module(USES_LIBRARY, ["k"])


def test_threads_may_compile_at_once(directory: Path) -> None:
    results: dict[int, bytes] = {}

    def compile_one(number: int) -> None:
        source = TWO_KERNELS + f"// {number}\n"
        results[number] = shaders.compile_module(source, NAMES)

    threads = [threading.Thread(target=compile_one, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6
    assert len(set(results.values())) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_forked_child_can_compile(directory: Path) -> None:
    shaders.compile_module(TWO_KERNELS, NAMES)
    child = os.fork()
    if child == 0:
        try:
            shaders.compile_module(TWO_KERNELS + "// in the child\n", NAMES)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_dump_writes_source_and_binary_also_on_a_cache_hit(directory: Path) -> None:
    binary = shaders.compile_module(TWO_KERNELS, NAMES)
    with config.patch(dump_shaders=directory / "dump"):
        shaders.compile_module(TWO_KERNELS, NAMES, name="step")
    assert (directory / "dump" / "step.slang").read_text() == TWO_KERNELS
    assert (directory / "dump" / "step.spv").read_bytes() == binary


def test_missing_compiler_says_what_to_install(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHVK_SLANGC", raising=False)
    monkeypatch.delenv("VULKAN_SDK", raising=False)
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.setattr(location.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ShaderCompileError, match="pip install slangtorch"):
        shaders.compile_module(TWO_KERNELS, NAMES)


@pytest.mark.parametrize("kind", ["missing", "empty directory", "not executable"])
def test_unusable_choice_is_named(directory: Path, kind: str) -> None:
    path = directory / "chosen"
    if kind == "empty directory":
        path.mkdir()
    elif kind == "not executable":
        path.write_text("")
    with (
        config.patch(slangc=path),
        pytest.raises(ShaderCompileError, match=f"TORCHVK_SLANGC={path}"),
    ):
        shaders.compile_module(TWO_KERNELS, NAMES)


def test_unloadable_library_gives_way_to_the_executable(directory: Path) -> None:
    compiler = shaders.find_compiler()
    if compiler.executable is None or compiler.library is None:
        pytest.skip("needs library and executable")
    broken = directory / compiler.library.name
    broken.write_bytes(b"not a library")
    mixed = location.SlangCompiler(broken, compiler.executable, "wheel")
    assert spirv.entry_points(module._compile(mixed, TWO_KERNELS, {}, "graph")) == NAMES


def test_search_order(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def install(place: Path) -> Path:
        place.mkdir(parents=True)
        executable = place / location._EXECUTABLE
        executable.write_text("#!/bin/sh\n")
        executable.chmod(0o755)
        return executable

    monkeypatch.delenv("TORCHVK_SLANGC", raising=False)
    monkeypatch.setenv("VULKAN_SDK", str(directory / "sdk"))
    sdk = install(directory / "sdk" / "bin")
    on_path = install(directory / "path")
    assert shaders.find_compiler().origin == "wheel"
    monkeypatch.setattr(location.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(directory / "path"))
    assert shaders.find_compiler().executable == on_path
    monkeypatch.setenv("PATH", str(directory))
    assert shaders.find_compiler().executable == sdk


@pytest.mark.parametrize("data", [b"", b"\x03\x02\x23\x07" + bytes(20), b"junk" * 10])
def test_what_is_not_spirv_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a SPIR-V module"):
        spirv.entry_points(data)


def test_every_kernel_asks_for_the_float_controls_it_can_use() -> None:
    plain = shaders.compile_module(TWO_KERNELS, NAMES)
    controls = shaders.FloatControls(nan_preserve=(16, 32), denorm_preserve=(32, 64))
    marked = spirv.with_float_controls(plain, controls)
    assert spirv.entry_points(marked) == spirv.entry_points(plain)
    words = array("I", marked)
    # A mode for every kernel and width, one capability of each sort.
    assert [words.count(mode) for mode in (4461, 4459)] == [2 * len(NAMES)] * 2
    assert [words.count(capability) for capability in (4466, 4464)] == [1, 1]
    assert spirv.with_float_controls(plain, shaders.FloatControls((128,))) == plain
