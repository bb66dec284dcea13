"""Every module is valid SPIR-V; every baseline shader becomes Metal (MSL 2.3) within what Apple's devices allow."""
import re
import shutil
import subprocess
import sys
from pathlib import Path

MOST_BUFFERS = 31
MOST_THREADGROUP_BYTES = 32 << 10
SIZES = {"float": 4, "uint": 4, "int": 4, "float2": 8, "uint2": 8, "float4": 16, "uint4": 16}
VARIANT = re.compile(r"_(subgroup|dot)$")  # for devices that offer more


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


def threadgroup_bytes(metal):
    constants = {name: int(value) for name, value in re.findall(r"constant uint (\w+) = (\d+)u", metal)}
    total = 0
    for kind, dimensions in re.findall(r"^\s*threadgroup (?:spvUnsafeArray<)?(\w+?)[>,]? \w+((?:\[[^\]]+\])*);", metal, re.M):
        count = 1
        for size in re.findall(r"\[([^\]]+)\]", dimensions):
            count *= int(size) if size.isdigit() else constants.get(size, 64)
        total += SIZES[kind] * count
    for kind, dimensions in re.findall(r"^\s*threadgroup spvUnsafeArray<(.+?)> \w+;", metal, re.M):
        numbers = re.findall(r", (\w+)>?", dimensions + ">")
        inner = re.search(r"(\w+),", dimensions.replace("spvUnsafeArray<", "")).group(1)
        count = 1
        for number in numbers:
            count *= int(number) if number.isdigit() else constants.get(number, 64)
        total += SIZES[inner] * count
    return total


def main(modules):
    if not shutil.which("spirv-val") or not shutil.which("spirv-cross"):
        print("spirv-val or spirv-cross is not installed")
        return 77
    failures, checked = [], 0
    for module in map(Path, modules):
        valid = run("spirv-val", "--target-env", "vulkan1.1", str(module))
        if valid.returncode:
            failures.append(f"{module.name}: {valid.stderr.strip()}")
        if VARIANT.search(module.stem):
            continue
        metal = run("spirv-cross", "--msl", "--msl-version", "20300", str(module))
        if metal.returncode:
            failures.append(f"{module.name}: {metal.stderr.strip()}")
            continue
        buffers = len(set(re.findall(r"\[\[buffer\((\d+)\)\]\]", metal.stdout)))
        memory = threadgroup_bytes(metal.stdout)
        print(f"{module.stem}: {buffers} buffers, {memory} bytes of threadgroup memory")
        if buffers > MOST_BUFFERS or memory > MOST_THREADGROUP_BYTES:
            failures.append(f"{module.name}: {buffers} buffers, {memory} bytes of threadgroup memory")
        checked += 1
    for failure in failures:
        print(failure, file=sys.stderr)
    if checked < 9:
        print(f"only {checked} baseline shaders", file=sys.stderr)
    return 1 if failures or checked < 9 else 0


sys.exit(main(sys.argv[1:]))
