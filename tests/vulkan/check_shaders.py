"""Every module is valid SPIR-V; every baseline shader becomes Metal (MSL 2.3) within what Apple's devices allow. The host chooses the number of invocations of a workgroup: test_vulkan checks every pipeline."""
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

MOST_BUFFERS = 31
MOST_THREADGROUP_BYTES = 32 << 10
SIZES = {"float": 4, "uint": 4, "int": 4, "float2": 8, "uint2": 8, "float4": 16, "uint4": 16}
# Device features that variants need. Variants need not compile for Metal: there is a baseline shader for each.
VARIANTS = {"subgroup": "subgroups", "dot": "integer dot products", "coop": "cooperative matrices",
            "storage16": "16-bit storage", "storage8": "8-bit storage",
            "emulated": "nothing of its own, but tests"}
# Arrays that are as long as a constant of the pipeline says: what the host gives at most, by shader and number.
LARGEST = {("wkv7", 3): 256}


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


def constants_of(metal, stem):
    """Constants by name; None for constants that the host chooses and that have no limit here."""
    constants = {name: int(value) for name, value in re.findall(r"constant uint (\w+) = (\d+)u", metal)}
    chosen = r"constant uint (\w+?)(?:_tmp)? (?:\[\[function_constant\(|= SPIRV_CROSS_CONSTANT_ID_)(\d+)"
    for name, number in re.findall(chosen, metal):
        constants[name] = LARGEST.get((stem, int(number)))
    return constants


def threadgroup_bytes(metal, stem):
    constants = constants_of(metal, stem)
    total = 0
    for declaration in re.findall(r"^\s*threadgroup (.+);", metal, re.M):
        kind = re.search(r"(?:spvUnsafeArray<)*(\w+)", declaration).group(1)
        sizes = re.findall(r", (\w+)>", declaration) + re.findall(r"\[(\w+)\]", declaration)
        count = SIZES[kind]
        for size in sizes:
            length = int(size) if size.isdigit() else constants.get(size)
            if length is None:
                raise ValueError(f"{stem}: how long is {declaration}?")
            count *= length
        total += count
    return total


def main(modules):
    if not shutil.which("spirv-val") or not shutil.which("spirv-cross"):
        print("spirv-val or spirv-cross is not installed")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        return check([binary_of(module, folder) for module in modules])


def binary_of(numbers, folder):
    """The module whose words the build wrote as a list of numbers, as a file."""
    words = [int(word, 0) for word in Path(numbers).read_text().split(",") if word.strip()]
    module = Path(folder, Path(numbers).stem + ".spv")
    module.write_bytes(struct.pack(f"<{len(words)}I", *words))
    return module


def check(modules):
    failures, baseline = [], set()
    for module in modules:
        valid = run("spirv-val", "--target-env", "vulkan1.1", str(module))
        if valid.returncode:
            failures.append(f"{module.name}: {valid.stderr.strip()}")
        stem, _, variant = module.stem.rpartition("_")
        if variant in VARIANTS:
            print(f"{module.stem}: exempt, for devices with {VARIANTS[variant]}; baseline: {stem}")
            if stem not in {other.stem for other in modules}:
                failures.append(f"{module.name} has no baseline")
            continue
        baseline.add(module.stem)
        metal = run("spirv-cross", "--msl", "--msl-version", "20300", str(module))
        if metal.returncode:
            failures.append(f"{module.name}: {metal.stderr.strip()}")
            continue
        buffers = len(set(re.findall(r"\[\[buffer\((\d+)\)\]\]", metal.stdout)))
        memory = threadgroup_bytes(metal.stdout, module.stem)
        print(f"{module.stem}: {buffers} buffers, {memory} bytes of threadgroup memory")
        if buffers > MOST_BUFFERS or memory > MOST_THREADGROUP_BYTES:
            failures.append(f"{module.name}: {buffers} buffers, {memory} bytes of threadgroup memory")
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures or len(baseline) < 9 else 0


sys.exit(main(sys.argv[1:]))
