"""The kernels of the Metal backend as source: constructs that MSL does not have, indices of arguments, address spaces.

check_kernels.py SOURCE CLANG: SOURCE is the root of the tree."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE, CLANG = pathlib.Path(sys.argv[1]), sys.argv[2]
SHADERS = SOURCE / "src/backend/metal/shaders"
ORDER = re.search(r"foreach\(name ([\w ]+)\)", (SHADERS.parent / "CMakeLists.txt").read_text()).group(1).split()

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
}


def code_of(text):
    return re.sub(r"/\*.*?\*/", lambda found: "\n" * found.group(0).count("\n"), text, flags=re.S)


def refusals(text):
    return [f"{why}: {found.group(0)}" for pattern, why in REFUSED.items() for found in re.finditer(pattern, code_of(text))]


def compiles(extra="", options=()):
    files = "".join(f'#include "backend/metal/shaders/{name}.metal"\n' for name in ORDER)
    command = [CLANG, "-std=c++17", "-fsyntax-only", "-fsigned-char", "-DMSL_ADDRESS_SPACES", *options, "-Wno-everything", "-x", "c++",
               f"-I{SOURCE}/tests/metal/fake/headers", f"-I{SOURCE}/tests", f"-I{SOURCE}/src", "-"]
    source = f'#include <metal_stdlib>\n#include "backend/metal/metal_shared.h"\n{files}{extra}'
    result = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    return result.returncode == 0, result.stderr


class Kernels(unittest.TestCase):
    def test_nothing_that_msl_does_not_have(self):
        self.assertEqual(sorted(ORDER), sorted(path.stem for path in SHADERS.glob("*.metal")))
        for path in SHADERS.glob("*.metal"):
            self.assertEqual(refusals(path.read_text()), [], path.name)

    def test_what_the_lint_refuses(self):
        for line in ("double x;", "static int x;", "float4(1, 2, 3, 4)", 'auto f = [&](int x) {', 'std::min(1, 2)', '#include "a.h"'):
            self.assertTrue(refusals(line), line)
        self.assertEqual(refusals("/* static double */ float x;"), [])

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
        for mixed in ("device float *mixed(threadgroup float *x) { return x; }",
                      "device float *mixed(device const float *x) { return x; }",
                      "threadgroup float *mixed(thread float *x) { return x; }"):
            self.assertFalse(compiles(mixed + "\n")[0], mixed)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
