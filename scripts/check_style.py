"""Checks the rules of our style that need no judgement. Prints one line per breach; status 1 if there is one."""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

SOURCE = (".cpp", ".h", ".inc", ".cu", ".cuh")
LAYERS = ("ggml", "src", "common", "tools")

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
MAX_KERNEL_LINES = 120  # straight-line kernels
MAX_TYPE_FILES = 4
SLOW_UNIT_SECONDS = 60
RECENT_HEADERS = 80

# The few places that may allocate by hand, each with its reason.
ALLOCATORS = {
    "ggml/src/cpu/device.cpp",  # host buffers of the CPU device
    "ggml/src/cuda/resources.cpp",  # memory of a card, and host memory that it reads
}
ENVIRONMENT_FILE = "common/args/environment.cpp"
# Not formats but names of C types; and q8_0, which is also the form of activations and of cached keys and values.
PLAIN_TYPES = {"f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64", "q8_0"}

problems = []


def report(where, what):
    problems.append(f"{where}: {what}")


def tracked(*suffixes):
    out = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split("\n")
    return [f for f in out if f.endswith(suffixes) and os.path.exists(f) and not f.startswith("third_party/")]


def is_test(path):
    return path.startswith(("tests/", "bench/")) or re.search(r"_(test|bench|fuzz)\.cpp$|_test_support\.h$|/test_\w+\.(h|cpp)$", path) is not None


def read(path):
    return pathlib.Path(path).read_text(encoding="utf-8")


def without_comments(text, keep_strings=False):
    if not keep_strings:
        text = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', text)
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.S)


def check_sizes(path, text):
    lines = text.split("\n")
    if len(lines) - 1 > MAX_FILE_LINES:
        report(path, f"{len(lines) - 1} lines, at most {MAX_FILE_LINES}: split it by concept")
    limit = MAX_KERNEL_LINES if path.startswith("ggml/src/cpu/") or is_test(path) else MAX_FUNCTION_LINES
    # clang-format puts the head of a function at the first column and its end, a bare brace, there too; what ends with
    # "};" or "}  // namespace" is something else.
    start = None
    for number, line in enumerate(lines, 1):
        if line == "}":
            if start is not None and number - start + 1 > limit:
                report(f"{path}:{start}", f"function of {number - start + 1} lines, at most {limit}")
            start = None
        elif line.startswith("}") or line.endswith(";") and not line.startswith(" "):
            start = None  # the end of a type, or a declaration
        elif start is None and re.match(r"[A-Za-z_\[]", line) and not line.startswith(("namespace", 'extern "C"')):
            start = number


def check_allocation(path, code):
    if is_test(path) or path in ALLOCATORS:
        return
    for number, line in enumerate(code.split("\n"), 1):
        # A class with a private constructor is made by `unique_ptr<T>(new T)`; cpp-httplib takes its queue by `new`.
        if re.search(r"unique_ptr<\w+>\s*\w*\(new |return new httplib::", line):
            continue
        if re.search(r"(?<![\w.>])new\s+[A-Za-z_:<]|\b(malloc|calloc|realloc|cudaMalloc\w*)\s*\(", line):
            report(f"{path}:{number}", "allocates by hand; use a container, unique_ptr or a buffer of the device")


def check_environment(path, code):
    if path == ENVIRONMENT_FILE or path.startswith("tests/") or is_test(path):
        return
    for number, line in enumerate(code.split("\n"), 1):
        if re.search(r"\b(getenv|secure_getenv)\s*\(", line):
            report(f"{path}:{number}", f"reads the environment; only {ENVIRONMENT_FILE} does")


def check_includes(path, text):
    """Layers include downwards only: tools -> common -> src -> ggml."""
    layer = path.split("/", 1)[0]
    if layer not in LAYERS or is_test(path):
        return
    allowed_json = layer in ("common", "tools")
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r'#include ["<]([^">]+)[">]', line)
        if not match:
            continue
        name = match.group(1)
        owner = "common" if name.startswith("common/") else "src" if name.startswith("llama/") else None
        if owner and LAYERS.index(owner) > LAYERS.index(layer):
            report(f"{path}:{number}", f"{layer} includes {name} of the layer above")
        if name.startswith(("nlohmann/", "fmt/", "spdlog/", "CLI/")) and not allowed_json:
            report(f"{path}:{number}", f"{layer} does not use {name}")
        if path.endswith(".h") and name.startswith(("fmt/", "spdlog/", "CLI/", "nlohmann/json.hpp", "httplib")):
            if "/include/" in path or layer == "common":
                report(f"{path}:{number}", f"a public header does not include {name}")


def check_paths(path, text):
    home = "/" + "home/|/" + "root/|/" + "work/"
    for number, line in enumerate(text.split("\n"), 1):
        if re.search(rf"(?<![\w.])({home})", line):
            report(f"{path}:{number}", "path of one machine")


def check_type_names(sources):
    rows = re.findall(r"^QTYPE\((\w+),", read("ggml/src/quant/types.def"), flags=re.M)
    for name in rows:
        if name in PLAIN_TYPES:
            continue
        pattern = re.compile(rf"\b({name}|{name.upper()}|Block{name.upper().replace('_', '_')})\b", re.I)
        files = [p for p, code in sources.items() if p.startswith(("ggml/", "src/")) and not is_test(p) and pattern.search(code)]
        if len(files) > MAX_TYPE_FILES:
            report("types.def", f"the name {name} is in {len(files)} files, at most {MAX_TYPE_FILES}: {' '.join(sorted(files))}")


def check_architecture_names():
    families = "src/model/families.def"
    if not os.path.exists(families):
        return
    names = set()
    for path in tracked(".cpp"):
        if path.startswith("src/model/families/"):
            names |= set(re.findall(r'\.arch\s*=\s*"([\w-]+)"', read(path)))
    for path in tracked(".cpp", ".h"):
        if not path.startswith(("ggml/", "src/", "common/")) or path.startswith("src/model/families") or is_test(path):
            continue
        # A tokenizer's pre-tokenizer and a chat format may share a name with an architecture.
        if path.startswith(("src/vocab/", "common/chat/")):
            continue
        for number, line in enumerate(without_comments(read(path), keep_strings=True).split("\n"), 1):
            for name in names:
                if f'"{name}"' in line:
                    report(f"{path}:{number}", f"names the architecture {name}; behaviour depends on properties")


def check_format_names():
    """A chat format is known by its own file and its row alone."""
    formats = "common/chat/formats/formats.def"
    if not os.path.exists(formats):
        return
    ids = [name for name in re.findall(r"^CHAT_FORMAT\((\w+)\)", read(formats), flags=re.M) if name != "plain"]
    pattern = re.compile(rf"\b({'|'.join(ids)})\b")
    for path in tracked(".cpp", ".h"):
        # A built-in template may be called like the format that it asks for.
        if not path.startswith(("common/", "tools/")) or is_test(path) or path == "common/chat/builtin_templates.cpp":
            continue
        if path.startswith("common/chat/formats/"):
            continue
        for number, line in enumerate(without_comments(read(path), keep_strings=True).split("\n"), 1):
            for name in pattern.findall(line):
                report(f"{path}:{number}", f"names the chat format {name}; behaviour depends on its description")


def check_isa_objects(build):
    """An inline function in a unit compiled for a higher ISA must not be the copy that the linker keeps."""
    root = pathlib.Path(build, "ggml/src/cpu/kernels")
    for obj in root.rglob("*.o") if root.exists() else ():
        if not re.search(r"/(avx2|avx512)\w*/", str(obj)):
            continue
        symbols = subprocess.run(["nm", "-C", "--defined-only", str(obj)], capture_output=True, text=True).stdout
        for line in symbols.split("\n"):
            match = re.match(r"[0-9a-f]+ ([WVu]) (.*)", line)
            if match and not match.group(2).startswith("DW.ref."):  # data that the unwinder shares
                report(obj.name, f"weak symbol in an ISA unit: {match.group(2)}")


def report_slow_units(build):
    log = pathlib.Path(build, ".ninja_log")
    if not log.exists():
        return
    times = {}
    for line in log.read_text().split("\n")[1:]:
        fields = line.split("\t")
        if len(fields) >= 4 and fields[3].endswith(".o"):
            times[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    slow = sorted(times.items(), key=lambda item: -item[1])[:10]
    print("slowest units (wall seconds): " + ", ".join(f"{pathlib.Path(n).name} {t:.1f}" for n, t in slow))
    for name, seconds in slow:
        if seconds > SLOW_UNIT_SECONDS:
            print(f"note: {name} took {seconds:.0f} s; a unit above {SLOW_UNIT_SECONDS} s of CPU is to be split")


def recent_headers(headers, limit):
    """Those of `headers` that recent commits touched, newest first, at most `limit`."""
    known = set(headers)
    changed = subprocess.run(["scripts/changed-files.sh"], capture_output=True, text=True, check=True).stdout.split("\n")
    return [path for path in changed if path in known][:limit]


def check_headers(limit=None):
    """Each header compiles alone: all of them, or those touched last."""
    headers = [h for h in tracked(".h") if not h.startswith("tests/")]
    if limit is not None:
        headers = recent_headers(headers, limit)
    flags = ["-std=c++20", "-fsyntax-only", "-w", "-I.", "-Iggml/include", "-Iggml/src", "-Isrc/include", "-Isrc",
             "-Ithird_party/cpp-httplib", "-Itests/support", "-Icommon", "-Iggml/src/cpu/kernels",
             "-Itools", "-Itools/server", "-Itools/gguf", "-mavx2", "-mfma", "-mf16c"]

    def compiles(header):
        result = subprocess.run(["g++", *flags, "-x", "c++", "-", f"-I{os.path.dirname(header)}"], input=f'#include "{header}"\n',
                                capture_output=True, text=True)
        return header, result.returncode, result.stderr

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for header, status, text in pool.map(compiles, headers):
            if status != 0:
                errors = [line for line in text.split("\n") if "error" in line]
                report(header, "does not compile alone: " + (errors[0] if errors else text.strip()))
    return len(headers)


def main():
    parser = argparse.ArgumentParser(prog="check-style.sh", description=__doc__)
    parser.add_argument("--no-headers", action="store_true", help="do not compile each header alone (the slow part)")
    parser.add_argument("--recent-headers", action="store_true", help=f"compile only the {RECENT_HEADERS} that were touched last")
    options = parser.parse_args()
    build = os.environ.get("BUILD", "build")
    sources = {}
    for path in tracked(*SOURCE):
        text = read(path)
        code = without_comments(text)
        sources[path] = without_comments(text) if not path.endswith(".def") else text
        check_sizes(path, text)
        check_allocation(path, code)
        check_environment(path, code)
        check_includes(path, text)
    for path in tracked(*SOURCE, ".txt", ".cmake", ".md", ".sh", ".py", ".json", ".def", ".yml"):
        check_paths(path, read(path))
    check_type_names(sources)
    check_architecture_names()
    check_format_names()
    check_isa_objects(build)
    if options.no_headers:
        headers = 0
    elif options.recent_headers:
        headers = check_headers(RECENT_HEADERS)
    else:
        headers = check_headers()
    report_slow_units(build)
    for line in problems:
        print(line)
    print(f"style: {len(sources)} files, {headers} headers alone, {len(problems)} breaches")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
