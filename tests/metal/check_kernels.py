"""The kernels of the Metal backend as source: constructs that MSL does not have, indices of arguments, address spaces.

check_kernels.py SOURCE CLANG KERNELS: SOURCE is the root of the tree, KERNELS the source that the program contains."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE, CLANG, KERNELS = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
SHADERS = SOURCE / "src/backend/metal/shaders"
ORDER = ["start"] + re.search(r"foreach\(name ([\w ]+)\)", (SHADERS.parent / "CMakeLists.txt").read_text()).group(1).split()

# C++ that clang accepts and the Metal Shading Language does not, and constructors that this header does not have.
REFUSED = {
    r"\b(double|long double|wchar_t)\b": "there is no double",
    r"\b(static|thread_local|extern|virtual|new|delete|throw|try|catch|goto|dynamic_cast|typeid|asm)\b": "not in MSL",
    r"\bstd::": "the library is metal::",
    r"\[[&=]?\]\s*\(": "lambdas need Metal 3.2",
    r"\b(float|half|int|uint|short|ushort|char|uchar|ulong|bool)[234]\s*\(": "vectors are made with braces here",
    r"\b(malloc|free|memcpy|printf|assert)\s*\(": "there is no C library",
    r"#include\s+\"": "one source without files beside it",
    r"\blong long\b": "there is no long long",
    r"(?<![\w.])(\d+\.\d*|\d+(?=e)|\.\d+)(e[+-]?\d+)?(?![\w.])": "C++ computes with a double, MSL with a float",
}

# A pointer or a reference to a type that is no parameter of a template, and what must precede the type.
POINTER = re.compile(r"\b(float|half|bool|void|u?(?:char|short|int|long)|step_header|step_run|device_sampler|sampling|rope_angle|"
                     r"projected_matrix|simdgroup_float8x8|\w+_arguments)\s*(const\s*)?[*&]\s*[\w)(]")
ADDRESS_SPACE = re.compile(r"\b(device|constant|threadgroup|thread|FOR_HOST)\s+(const\s+)?$")

# Names of the namespace metal, all of which kernels see. A type or a function of the same name is ambiguous to the compiler.
OF_METAL = set("""
access address array array_ref atomic atomic_bool atomic_float atomic_int atomic_uint atomic_ulong bfloat bias border_color command_buffer
compare_func component compute_command coord depth2d depth2d_array depth2d_ms depthcube depthcube_array filter gradient2d gradient3d
gradientcube half imageblock integral_constant interpolant intersection_params intersector level lod_clamp mag_filter matrix max_anisotropy
mem_flags memory_order mesh min_filter min_lod_clamp mip_filter numeric_limits packed_vec patch_control_point quad_vote r_address ray
reduction render_command s_address sampler simd_vote simdgroup_matrix t_address texture1d texture1d_array texture2d texture2d_array
texture2d_ms texture3d texture_buffer texturecube texturecube_array thread_scope uniform vec
abs absdiff acos acosh addsat all any as_type asin asinh atan atan2 atanh ceil clamp clz copysign cos cosh cospi cross ctz determinant
distance distance_squared divide dot exp exp10 exp2 extract_bits fabs faceforward fast fdim floor fma fmax fmax3 fmedian3 fmin fmin3 fmod
fract frexp hadd ilogb insert_bits isfinite isinf isnan isnormal isordered isunordered ldexp length length_squared log log10 log2 mad24
madhi madsat make_filled_simdgroup_matrix max max3 median3 min min3 mix modf mul24 mulhi nextafter normalize popcount pow powr precise
reflect refract reverse_bits rhadd rint rotate round rsqrt saturate select sign signbit sin sincos sinh sinpi smoothstep sqrt step subsat
tan tanh tanpi transpose trunc
""".split())
DEFINITION = re.compile(r"^(?:template <[^>]*>\s*)?(?:struct (\w+) \{|inline [\w \t*&]*?[\s*&](\w+)\(|constant \w+ (\w+)\b)", re.M)


def code_of(text):
    return re.sub(r"/\*.*?\*/", lambda found: "\n" * found.group(0).count("\n"), text, flags=re.S)


def refusals(text):
    text = code_of(text)
    return ([f"{why}: {found.group(0)}" for pattern, why in REFUSED.items() for found in re.finditer(pattern, text)] +
            [f"no address space: {found.group(0)}" for found in POINTER.finditer(text)
             if not ADDRESS_SPACE.search(text[max(0, found.start() - 30):found.start()])] +
            [f"a name of Metal: {name}" for names in DEFINITION.findall(text) for name in names if name in OF_METAL])


def compiles(extra="", options=(), source=None):
    files = "".join(f'#include "backend/metal/shaders/{name}.metal"\n' for name in ORDER)
    command = [CLANG, "-std=c++17", "-fsyntax-only", "-fsigned-char", "-DMSL_ADDRESS_SPACES", *options, "-Wno-everything", "-x", "c++",
               f"-I{SOURCE}/tests/metal/fake/headers", f"-I{SOURCE}/tests", f"-I{SOURCE}/src", "-"]
    source = source or f'#include <metal_stdlib>\n#include "backend/metal/metal_shared.h"\n{files}{extra}'
    result = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    return result.returncode == 0, result.stderr


DECLARED = "constant type name [[function_constant(index)]];"


def numbers(prefix):
    """Of metal_shared.h, by their names without METAL_."""
    text = (SHADERS.parent / "metal_shared.h").read_text(encoding="utf-8")
    return {name: int(value) for name, value in re.findall(rf"#define METAL_({prefix}\w*) +(\d+)", text)}


def arrays_in_memory(kernel, unknown=False, **constants):
    """Arrays of floats that an optimiser leaves in the memory of a thread of this kernel, with these function constants: those
    that it finds no constant index for. A device's compiler inlines functions, and optimises again when it makes the pipeline."""
    values = [0] * numbers("CONSTANTS")["CONSTANTS"]
    for name, value in {"LANES": 8, "TOKENS": 1, "ROWS": 1, "SIMDGROUPS": 2, "SUMS": 1, **constants}.items():
        values[numbers("CONSTANT_")["CONSTANT_" + name]] = value
    source = KERNELS.read_text(encoding="utf-8").replace("[[threadgroup(0)]]", "").replace(f"kernel void {kernel}(", f"void {kernel}(")
    source = source.replace(DECLARED, "extern const type name;" if unknown else "static const type name = VALUES[index];")
    source = re.sub("^inline ", "inline __attribute__((always_inline)) ", source, flags=re.M)
    source = f"constexpr unsigned VALUES[] = {{{','.join(map(str, values))}}};\n{source}"
    for language in ("c++", "ir"):
        command = [CLANG, "-O2", "-S", "-emit-llvm", "-Wno-everything", "-o", "-", "-x", language]
        if language == "c++":
            command += ["-std=c++17", "-fsigned-char", "-DMSL_ADDRESS_SPACES", "-D__METAL_VERSION__=240", "-DMETAL_FAST_MATH",
                        *(f"-I{SOURCE}/{folder}" for folder in ("tests/metal/fake/headers", "tests", "src"))]
        source = subprocess.run([*command, "-"], input=source, capture_output=True, text=True, check=True).stdout
    return re.findall(r"= (alloca \[.*float.*)", source)


class Kernels(unittest.TestCase):
    def test_nothing_that_msl_does_not_have(self):
        self.assertEqual(sorted(ORDER), sorted(path.stem for path in SHADERS.glob("*.metal")))
        for path in SHADERS.glob("*.metal"):
            self.assertEqual(refusals(path.read_text()), [], path.name)

    def test_what_the_lint_refuses(self):
        for line in ("double x;", "static int x;", "float4(1, 2, 3, 4)", 'auto f = [&](int x) {', 'std::min(1, 2)', '#include "a.h"',
                     "x * 0.5", "1e-5 * x", ".5", "inline void set(float *x)", "const step_run &run", "(ushort *)bytes",
                     "struct sampler {", "inline float mix(float a, float b)", "constant float bias[2] = {0, 1};"):
            self.assertTrue(refusals(line), line)
        for line in ("/* static double */ float x;", "x * 0.5f + 1e-5f / 720", "inline device uint *words(device step_header *step)",
                     "kernel void rotate(constant rope_arguments &arguments", "thread const float *own = &x;", "device const float *bias"):
            self.assertEqual(refusals(line), [], line)

    def test_arguments_are_bound_in_order(self):
        kernels = [found for name in ORDER for found in
                   re.findall(r"kernel void (\w+)\((.*?)\)\n\{", code_of((SHADERS / f"{name}.metal").read_text()), re.S)]
        table = (SOURCE / "tests/metal/fake/emulated_kernels.cpp").read_text()
        self.assertEqual(sorted(name for name, _ in kernels), sorted(re.findall(r"\bKERNEL\((\w+)\)[,}]", table)))
        for name, arguments in kernels:
            indices = [int(index) for index in re.findall(r"\[\[buffer\((\d+)\)\]\]", arguments)]
            self.assertEqual(indices, list(range(len(indices))), name)
            self.assertRegex(arguments, r"^constant \w+_arguments &arguments", name)

    def test_selectors_that_no_header_declares(self):
        declared = """
@property (readonly, getter=isRemovable) BOOL removable;
@property (readonly) NSUInteger maxBufferLength API_AVAILABLE(macos(10.14));
- (nullable id <MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options;
- (nullable id <MTLBuffer>)newBufferWithBytesNoCopy:(void *)pointer length:(NSUInteger)length
    options:(MTLResourceOptions)options deallocator:(void (^ __nullable)(void *pointer, NSUInteger length))deallocator;
- (void)endEncoding;
@property (readwrite, nonatomic) BOOL fastMathEnabled;
- (void)setBytes:(const void *)bytes length:(NSUInteger)length index:(NSUInteger)index;
"""
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "a.h").write_text(declared, encoding="utf-8")
            result = subprocess.run([SOURCE / "scripts/check-selectors", folder], capture_output=True, text=True, check=False)
        missing = re.findall(r"declares (\S+)", result.stderr)
        self.assertEqual(result.returncode, 1)
        self.assertIn("setBytes:length:atIndex:", missing)
        self.assertEqual({"maxBufferLength", "newBufferWithLength:options:", "endEncoding", "setFastMathEnabled:",
                          "newBufferWithBytesNoCopy:length:options:deallocator:"} & set(missing), set())
        self.assertRegex(result.stdout, f"^5 of {5 + len(missing)} selectors")

    def test_address_spaces(self):
        self.assertEqual(compiles(), (True, ""))
        self.assertEqual(compiles(options=("-DMETAL_FAST_MATH",)), (True, ""))
        self.assertEqual(compiles(options=("-DMETAL_SYSTEM_SCOPE",)), (True, ""))
        # As the device's compiler gets it: one text, in which types are declared before they are used. C++ has no constants
        # that get their value later, and address spaces are macros here.
        source = KERNELS.read_text(encoding="utf-8")
        self.assertEqual(source.count(DECLARED), 1)
        source = source.replace(DECLARED, "extern " + DECLARED).replace("[[threadgroup(0)]]", "")
        for options in ((), ("-DMETAL_FAST_MATH",), ("-DMETAL_SYSTEM_SCOPE",)):
            self.assertEqual(compiles(options=("-D__METAL_VERSION__=240", *options), source=source), (True, ""))
        for mixed in ("device float *mixed(threadgroup float *x) { return x; }",
                      "device float *mixed(device const float *x) { return x; }",
                      "threadgroup float *mixed(thread float *x) { return x; }"):
            self.assertFalse(compiles(mixed + "\n")[0], mixed)

    def test_arrays_are_in_registers(self):
        kinds = numbers("(?:F|BF|Q|IQ|MXFP)[0-9]")
        for name in ("F32", "Q5_1", "MXFP4", "Q8_0", "Q2_K", "Q3_K", "Q5_K", "Q6_K", "IQ4_XS"):
            self.assertEqual(arrays_in_memory("embed", KIND=kinds[name]), [], name)
        for constants in ({"KIND": kinds["F16"], "TOKENS": 8, "SUMS": 2}, {"KIND": kinds["Q4_K"], "NORMS": 1, "GATES": 1, "ROWS": 4},
                          {"KIND": kinds["Q4_0"], "GATES": 1, "ROWS": 4, "SUMS": 2}):
            self.assertEqual(arrays_in_memory("matmul", **constants), [], constants)
        for dim in (8, 64, 512):
            projects = {"KIND": kinds["Q4_0"], "NORMS": 1, "ROTATES": 1, "PROJECTS": 1, "SUMS": 2} if dim == 64 else {}
            self.assertEqual(arrays_in_memory("attend", DIM=dim, CACHE=kinds["F16"], **projects), [], dim)
        self.assertEqual(arrays_in_memory("wkv7", DIM=64), [])
        self.assertEqual(len(arrays_in_memory("wkv7", unknown=True)), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
