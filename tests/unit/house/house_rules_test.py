#!/usr/bin/env python3
"""Checks the rules of the house that no compiler checks; src/README.md states them.

    python3 house_rules_test.py REPOSITORY

- which layer includes which, and where the headers of MPI, HDF5, CUDA and their like may appear;
- what stands at the top level, and that source files and folders are named in snake_case;
- that no class, struct, union or enum and no function of our namespaces is defined twice;
- that only `comm` and `config` list the dimensions of the grid one by one;
- that who calls an algorithm of the standard library includes <algorithm>;
- that no comment begins with Of, As or By: one begins with what a thing is or does;
- that every relative link of a page points to something that exists, and to a heading of it;
- that the front page and the map of the code stay short;
- that each table of perf/raw says what, where and when it was measured;
- that every file of tests is run by its folder's CMakeLists.txt, and unit tests lie in a folder of their layer;
- that pages and recipes name the version of CMakeLists.txt, and modules/CHANGES.md begins with it;
- that tests/bad_input.tsv is what the tests say (tests/bad_input_table.py).

The planted violations below show that each rule can fail.
"""
import json
import posixpath
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import bad_input_table  # noqa: E402

# The layers, and what each may include besides base and itself; the rest follows transitively.
LAYERS = {
    "base": [],
    "tensor": [],
    "comm": ["tensor"],
    "io": ["comm"],
    "ops": ["tensor"],
    "topology": ["comm"],
    "nn": ["ops", "comm"],
    "models": ["nn"],
    "tasks": ["io", "models"],
    "optim": ["nn"],
    "parallel": ["nn", "optim"],
    "plan": ["models", "parallel", "topology"],
    "config": ["io", "models", "optim"],
    "report": ["config", "tasks", "topology"],
    "setup": ["config", "plan", "tasks"],
    "inference": ["setup"],
    "weights": ["setup"],
    "job": ["setup"],
    "doctor": ["io", "ops", "topology"],
    "train": ["inference", "report"],
    "study": ["train"],
    "cli": ["study", "weights", "job", "doctor"],
}

# Headers of others, and the folders that alone may include them. No public header does.
FOREIGN = [
    (re.compile(r"mpi(o|cxx)?\.h$"), ["src/comm", "io"]),
    (re.compile(r"nccl"), ["src/comm/nccl"]),
    (re.compile(r"(hdf5|H5)"), ["io"]),
    (re.compile(r"(oneapi/)?dnnl|(blis|cblas|lapacke|mkl)\b"), ["src/ops"]),
    (re.compile(r"(cuda|cublas|cudnn|curand|cupti|nvml)"), ["src/tensor", "src/ops", "src/comm"]),
    (re.compile(r"sentencepiece|(pcre2|utf8proc|turbojpeg|jpeglib|png|archive|archive_entry|zlib|simdjson)\.h$"), ["io"]),
    (re.compile(r"(lz4|snappy-c|zstd)\.h$"), ["io/parquet"]),
    (re.compile(r"nlohmann"), ["src/base"]),
    (re.compile(r"(yaml-cpp/|hwloc)"), ["src/topology"]),
]

TOP_LEVEL = {"CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", "src", "include",
             "jobs", "modules", "io", "tests", "perf",
             # What tools look for there.
             ".ci", ".clang-format", ".clang-tidy", ".editorconfig", ".githooks", ".github", ".gitignore"}

# What newcomers read; detail belongs on the pages of the folders, and in headers.
PAGE_LINES = {"README.md": 130, "src/README.md": 200}

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
SNAKE_CASE = re.compile(r"[a-z][a-z0-9_]*$")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SOURCE = {".h", ".cc", ".cu", ".cuh"}

# What the search for definitions need not see: comments, texts, directives.
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
                     r"|(?<!\w)'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:\\\n|[^\n])*", re.DOTALL | re.MULTILINE)
NAMESPACE = re.compile(r"\bnamespace(?:\s+([\w:]+))?\s*$")
TYPE = re.compile(r"(?:^|[\s>])(?:class|struct|union|enum(?:\s+(?:class|struct))?)"
                  r"\s+([A-Za-z_][\w:]*(?:<[^{}()]*>)?)(?:\s+final)?\s*(?::[^:].*)?$", re.DOTALL)
FUNCTION = re.compile(r"([~\w:]+\s*\([^{}]*\))[\w\s]*(?:->[^{]*|:[^:].*)?$", re.DOTALL)
# Files that take the place of others in a program: stubs of a backend, and what stands in for one
# in tests.
STANDS_IN = re.compile(r"(.*/)?no_[a-z_]+\.cc$|tests/support/")


def reachable(layer):
    """The layers that `layer` may include."""
    found = {"base", layer}
    for below in LAYERS[layer]:
        found |= reachable(below)
    return found


def layer_of(path):
    """The layer of a source file, None for one that belongs to none (tests, benchmarks)."""
    parts = path.split("/")
    if parts[0] == "io":
        return "io"
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    if parts[:2] == ["include", "trireme"]:
        return parts[2] if len(parts) > 3 else ""
    return None


def inside(path, folders):
    return any(path.startswith(folder + "/") for folder in folders)


def check_include(path, layer, header):
    """What is wrong with one include directive, or None."""
    for pattern, folders in FOREIGN:
        if pattern.match(header) and not inside(path, folders):
            return f"{path}: <{header}> may only be included in {' and '.join(folders)}"
    if header.startswith("trireme/"):
        target = header.split("/")[1]
        if target not in reachable(layer):
            return f"{path}: layer {layer} may not include {header}"
        return None
    owner = header.split("/")[0] if "/" in header else layer
    if header.startswith("."):
        owner = layer_of(posixpath.normpath(posixpath.join(posixpath.dirname(path), header)))
    if owner != layer and (header.startswith(".") or owner in LAYERS):
        return f"{path}: {header} is private to another layer"
    return None


def check_includes(root, files):
    for path in files:
        layer = layer_of(path)
        if Path(path).suffix not in SOURCE or layer is None:
            continue
        if layer not in LAYERS:
            yield f"{path}: no layer is called '{layer}'"
            continue
        for header in INCLUDE.findall((root / path).read_text(encoding="utf-8")):
            problem = check_include(path, layer, header)
            if problem:
                yield problem


def check_names(files):
    for top in sorted({path.split("/")[0] for path in files}):
        if top not in TOP_LEVEL:
            yield f"{top}: nothing of this name belongs at the top level"
    for path in files:
        parts = Path(path)
        if path.startswith(".") or parts.suffix not in SOURCE | {".py", ".sh"}:
            continue
        for name in [*parts.parts[:-1], parts.stem]:
            if not SNAKE_CASE.match(name):
                yield f"{path}: '{name}' is not snake_case"


def definitions(text):
    """(name, is a type) of each type and function that `text` defines in a named namespace."""
    scopes = []  # the namespaces that are open: None for an unnamed one and for any other brace
    head = ""
    for piece in re.findall(r"[{};]|[^{};]+", NO_CODE.sub('""', text)):
        if piece == "{":
            namespace = NAMESPACE.search(head)
            named = scopes and None not in scopes and not namespace
            found = TYPE.search(head) if named else None
            where = "::".join(scope or "" for scope in scopes)
            if found:
                yield f"{where}::{found.group(1)}", True
            elif named and "static" not in head.split():
                found = FUNCTION.search(head)
                if found:
                    yield f"{where}::{' '.join(found.group(1).split())}", False
            scopes.append(namespace.group(1) if namespace else None)
            head = ""
        elif piece == "}":
            if scopes:
                scopes.pop()
            head = ""
        elif piece == ";":
            head = ""
        else:
            head += piece


def check_definitions(root, files):
    """Two definitions of one name with different layouts break the one-definition rule: the linker
    takes either, and the program does anything."""
    places = {}
    for path in files:
        if Path(path).suffix not in SOURCE:
            continue
        for name, is_type in definitions((root / path).read_text(encoding="utf-8")):
            if is_type or not STANDS_IN.match(path):
                places.setdefault(name, set()).add(path)  # twice in one file: in two branches
    for name, paths in places.items():
        paths = sorted(paths)
        if len(paths) > 1:
            yield f"{paths[0]}: {name} is also defined in {' and '.join(paths[1:])}"


# What names the axes of each dimension of the grid.
DIMENSIONS = [re.compile(r"\bk(DataAxes|Replicate|Shard)\b"), re.compile(r"\bkPipeline\b"),
              re.compile(r"\bkTensor\b")]


def check_dimensions(root, files):
    """A statement that names all dimensions would miss the next one that is added."""
    for path in files:
        if Path(path).suffix not in SOURCE or layer_of(path) in (None, "comm", "config"):
            continue
        for statement in NO_CODE.sub('""', (root / path).read_text(encoding="utf-8")).split(";"):
            if all(name.search(statement) for name in DIMENSIONS):
                yield f"{path}: a statement lists the dimensions of the grid: use kGridDimensions"


# What answers no for a file that cannot be read now, as for one that is absent.
LOOKS = re.compile(r"\b(ifstream|fopen|(?:fs|filesystem)::exists|directory_iterator|is_regular_file|is_directory"
                   r"|file_size|equivalent|canonical)\s*[({ ]")


def check_looks(root, files):
    """Files are looked at, read and listed in one way, which tells absent from unreadable."""
    for path in files:
        if Path(path).suffix not in SOURCE or layer_of(path) in (None, "base"):
            continue
        for found in LOOKS.findall(NO_CODE.sub('""', (root / path).read_text(encoding="utf-8"))):
            yield f"{path}: {found}: use base/files.h, or base/kernel_files.h for /proc and /sys"


# What only <algorithm> declares; another standard library includes it by chance in other headers.
ALGORITHM = re.compile(r"\bstd::(?:ranges::)?(adjacent_find|(?:all|any|none)_of|binary_search|clamp|copy(?:_if)?"
                       r"|count(?:_if)?|equal|fill|find(?:_if)?|for_each|is_sorted|(?:lower|upper)_bound"
                       r"|(?:min|max|minmax)(?:_element)?|mismatch|nth_element|partial_sort|partition|remove_if|replace"
                       r"|reverse|rotate|shuffle|(?:stable_)?sort|transform|unique)\(")


def check_algorithm(root, files):
    """A source that compiles with one standard library must compile with the other."""
    for path in files:
        if Path(path).suffix not in SOURCE:
            continue
        text = (root / path).read_text(encoding="utf-8")
        found = ALGORITHM.search(NO_CODE.sub('""', text))
        if found and "#include <algorithm>" not in text:
            yield f"{path}: {found.group(1)} is declared in <algorithm>, which it does not include"


# Where the rule on comments holds.
COMMENTED = ("include/", "src/", "io/", "tests/")
COMMENT_MARK = {**dict.fromkeys(SOURCE | {".inc"}, "//"),
                **dict.fromkeys((".py", ".sh", ".cmake", "CMakeLists"), "#")}
BEGINS_WITH = re.compile(r"(Of|As|By)\b")


def comment_begins(text, mark):
    """(number, comment) of each line that begins a paragraph of a comment with lines of its own."""
    above = ""
    for number, line in enumerate(text.splitlines(), 1):
        indent, found, comment = line.partition(mark)
        goes_on = above[len(indent):].startswith(mark + " ")  # also a comment that began behind code
        if found and not indent.strip() and not goes_on:
            yield number, comment.strip()
        above = line


def check_comments(root, files):
    """What begins so says neither what a thing is nor what it does, and has no verb."""
    for path in files:
        mark = COMMENT_MARK.get("CMakeLists" if path.endswith("CMakeLists.txt") else Path(path).suffix)
        if mark is None or not path.startswith(COMMENTED):
            continue
        for number, comment in comment_begins((root / path).read_text(encoding="utf-8"), mark):
            if BEGINS_WITH.match(comment):
                yield f"{path}:{number}: a comment begins with what a thing is or does, not with {comment.split()[0]}"


def prose(path):
    """A page without its blocks of code."""
    return re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page):
    """What links may name after `#`: the headings, as GitHub names them."""
    for heading in re.findall(r"^#+ +(.*)$", prose(page), re.MULTILINE):
        words = LINK.sub(lambda link: link[0][1:link[0].index("]")], heading)
        yield re.sub(r"[^\w -]", "", words.strip().lower()).replace(" ", "-")


def check_links(root, files):
    for path in files:
        if not path.endswith(".md"):
            continue
        for link in LINK.findall(prose(root / path)):
            target, _, anchor = link.partition("#")
            page = (root / path).parent / target if target else root / path
            if ":" in link:
                continue
            if not page.exists():
                yield f"{path}: the link to {target} leads nowhere"
            elif anchor and page.suffix == ".md" and anchor not in anchors(page):
                yield f"{path}: the link to {link} names no heading"


def check_short_pages(root, files):
    for page, most in PAGE_LINES.items():
        lines = len((root / page).read_text(encoding="utf-8").splitlines()) if page in files else 0
        if lines > most:
            yield f"{page}: has {lines} lines, may have {most}: move detail to pages of folders and to headers"


RAW_KEYS = {"name", "section", "command", "machine", "date", "columns", "rows"}


def check_raw_figures(root, files):
    """perf/README.md describes the tables."""
    for path in files:
        if not re.fullmatch(r"perf/raw/\w+\.json", path):
            continue
        page = (root / "perf/RESULTS.md").read_text(encoding="utf-8")
        sections = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
                    for title in re.findall(r"^## (.+)$", page, re.MULTILINE)}
        for table in json.loads((root / path).read_text(encoding="utf-8")):
            name = table.get("name", "a table")
            if set(table) - {"note"} != RAW_KEYS:
                yield f"{path}: {name} needs {', '.join(sorted(RAW_KEYS))}"
            elif table["section"] not in sections:
                yield f"{path}: {name}: perf/RESULTS.md has no section '{table['section']}'"
            elif any(len(row) != len(table["columns"]) for row in table["rows"]):
                yield f"{path}: {name}: a row is not as long as columns"


TEST_FILE = re.compile(r"tests/(?:[a-z_]+/)+([a-z0-9_]+_test)\.(cc|py|sh)$")


def check_tests_run(root, files):
    for path in files:
        found = TEST_FILE.match(path)
        if not found:
            continue
        declared = root / Path(path).parent / "CMakeLists.txt"
        name = found[1].removesuffix("_test")  # a loop may add the rest
        if not declared.is_file() or not re.search(rf"\b{name}(_test)?\b", declared.read_text(encoding="utf-8")):
            yield f"{path}: no line of its folder's CMakeLists.txt runs it"


# Folders of tests/unit that are of no layer: `house` is for scripts about the repository itself.
NO_LAYERS = {"house"}


def check_unit_folders(root, files):
    """Who changes a layer finds its tests in one folder, and they run."""
    page = root / "tests/unit/CMakeLists.txt"
    code = re.sub(r"#.*", "", page.read_text(encoding="utf-8")) if page.is_file() else ""
    added = set(re.findall(r"\w+", code))
    for path in files:
        folder = Path(path).parts[2] if path.startswith("tests/unit/") else None
        if folder is None or folder == page.name:
            continue
        if folder not in LAYERS.keys() | NO_LAYERS:
            yield f"{path}: tests of a layer belong in its folder, tests/unit/LAYER"
        elif path.endswith("/CMakeLists.txt") and folder not in added:
            yield f"{path}: no line of tests/unit/CMakeLists.txt adds its folder"


VERSION = re.compile(r"^project\(\w+ VERSION ([0-9.]+)", re.MULTILINE)
NAMED_VERSION = re.compile(r"(?:trireme[-_@/](?=\d+\.\d+\.\d)|find_package\(trireme )([\d.]*\d)", re.IGNORECASE)


def check_version(root, files):
    if "CMakeLists.txt" not in files:
        return
    version = VERSION.search((root / "CMakeLists.txt").read_text(encoding="utf-8"))[1]
    for path in files:
        if not path.endswith(".md") and not path.startswith(("modules/", "tests/install/")):
            continue
        text = (root / path).read_text(encoding="utf-8")
        for other in sorted(set(NAMED_VERSION.findall(path + "\n" + text)) - {version, version.rpartition(".")[0]}):
            yield f"{path}: names version {other}; this is {version}"
        if path == "modules/CHANGES.md" and re.findall(r"^## (.*)$", text, re.MULTILINE)[:1] != [version]:
            yield f"{path}: does not begin with {version}"


def files_of(root):
    """What git tracks, as paths relative to root; without git every file but hidden folders."""
    if (root / ".git").exists():
        git = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True,
                             check=False)
        if git.returncode == 0:
            tracked = [name for name in git.stdout.decode().split("\0") if name]
            return [name for name in tracked if (root / name).is_file()]
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    left_out = ("build", "runs", "data")
    return sorted(path.as_posix() for path in found
                  if not any(part.startswith(".") for part in path.parts[:-1])
                  and not path.parts[0].startswith(left_out))


def problems(root):
    files = files_of(root)
    return [*check_includes(root, files), *check_names(files), *check_definitions(root, files),
            *check_dimensions(root, files), *check_looks(root, files), *check_algorithm(root, files),
            *check_comments(root, files), *check_links(root, files), *check_short_pages(root, files),
            *check_raw_figures(root, files), *check_tests_run(root, files), *check_unit_folders(root, files),
            *check_version(root, files)]


class PlantedViolations(unittest.TestCase):
    def found(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            return problems(root)

    def expect(self, files, *messages):
        self.assertEqual(self.found(files), list(messages))

    def test_a_clean_tree_passes(self):
        self.expect({
            "src/parallel/a.cc": '#include "trireme/tensor/t.h"\n#include "own.h"\n#include <map>',
            "src/comm/mpi/a.cc": '#include <mpi.h>\n#include "../b.h"',
            "src/ops/b.cc": '#include "ops/check.h"\n#include <sys/stat.h>',
            "src/cli/main.cc": '#include "trireme/io/dataset.h"',
            "src/ops/matmul_cpu.cc": "#include <oneapi/dnnl/dnnl.hpp>\n#include <blis.h>",
            "io/file.cc": "#include <hdf5.h>\n#include <sentencepiece_processor.h>",
            "io/README.md": "# Files\n## The `part.json` of [it](file.cc)\n[code](file.cc#L1) "
                            "[web](https://example.org) [here](#the-partjson-of-it) [there](../jobs/a.md#b)",
            "jobs/a.md": "# B",
            ".ci/run": "",
        })

    def test_a_lower_layer_includes_a_higher_one(self):
        self.expect({"src/tensor/a.cc": '#  include "trireme/comm/runtime.h"'},
                    "src/tensor/a.cc: layer tensor may not include trireme/comm/runtime.h")
        self.expect({"include/trireme/optim/a.h": "#include <trireme/models/family.h>"},
                    "include/trireme/optim/a.h: layer optim may not include trireme/models/family.h")
        self.expect({"io/a.cc": '#include "trireme/ops/norm.h"'},
                    "io/a.cc: layer io may not include trireme/ops/norm.h")

    def test_private_header_of_another_layer(self):
        self.expect({"src/nn/a.cc": '#include "../ops/b.h"'},
                    "src/nn/a.cc: ../ops/b.h is private to another layer")
        self.expect({"src/nn/a.cc": '#include "ops/b.h"'},
                    "src/nn/a.cc: ops/b.h is private to another layer")

    def test_foreign_header_outside_its_folder(self):
        for path, header, where in [
                ("src/train/a.cc", "mpi.h", "src/comm and io"),
                ("include/trireme/comm/a.h", "mpi.h", "src/comm and io"),
                ("src/comm/a.cc", "nccl.h", "src/comm/nccl"),
                ("src/comm/a.cc", "hdf5.h", "io"),
                ("src/comm/a.cc", "H5Fpublic.h", "io"),
                ("io/a.cc", "cblas.h", "src/ops"),
                ("src/nn/a.cc", "dnnl.hpp", "src/ops"),
                ("src/nn/a.cu", "cuda_runtime.h", "src/tensor and src/ops and src/comm"),
                ("src/study/a.cc", "cupti.h", "src/tensor and src/ops and src/comm"),
                ("src/cli/a.cc", "sentencepiece_trainer.h", "io"),
                ("src/cli/a.cc", "turbojpeg.h", "io"),
                ("io/a.cc", "nlohmann/json.hpp", "src/base")]:
            self.expect({path: f'#include <{header}>'},
                        f"{path}: <{header}> may only be included in {where}")

    def test_unknown_layer(self):
        self.expect({"src/misc/a.cc": ""}, "src/misc/a.cc: no layer is called 'misc'")
        self.expect({"include/trireme/a.h": ""}, "include/trireme/a.h: no layer is called ''")

    def test_names(self):
        self.expect({"docs/a.txt": ""}, "docs: nothing of this name belongs at the top level")
        self.expect({".editorconfig": "", ".envrc": ""}, ".envrc: nothing of this name belongs at the top level")
        self.expect({"tests/unit/io/MyTest.cc": ""}, "tests/unit/io/MyTest.cc: 'MyTest' is not snake_case")
        self.expect({"jobs/quick-start.sh": ""},
                    "jobs/quick-start.sh: 'quick-start' is not snake_case")

    def test_a_type_that_is_defined_twice(self):
        for first, second in [
                ("class Clock final : public Base<int> {\n int now_;\n};", "struct Clock {};"),
                ("template <class T>\nclass Clock {};", "class Clock {};"),
                ("enum class Clock : int { kWall };", "enum Clock { kWall };")]:
            self.expect({"src/comm/a.h": f"namespace trireme {{\n{first}\n}}",
                         "tests/support/b.cc": f"namespace trireme {{\n{second}\n}}"},
                        "src/comm/a.h: trireme::Clock is also defined in tests/support/b.cc")
        self.expect({"src/comm/a.h": "namespace trireme {\nclass A {};\nclass B;\n}",
                     "io/a.h": "namespace trireme {\nnamespace {\nclass A {};\n}\nclass B {};\n}",
                     "io/b.h": "namespace trireme::io {\nclass A {};\n}",
                     "io/c.h": "namespace trireme {\nclass C {\n  class A {};\n};\n// class A {\n}"})

    def test_a_function_that_is_defined_twice(self):
        text = "namespace trireme {\nint add(int a, int b) { return a + b; }\n}"
        self.expect({"src/comm/a.cc": text, "io/b.cc": text},
                    "io/b.cc: trireme::add(int a, int b) is also defined in src/comm/a.cc")
        self.expect({"src/comm/a.cc": text, "src/comm/no_gpu.cc": text, "tests/support/b.cc": text,
                     "io/c.cc": text.replace("int b", "long b"),
                     "io/d.cc": text.replace("int add", "static int add")})

    def test_a_list_of_the_grid_s_dimensions(self):
        text = "f({grid[Axis::kReplicate], grid[Axis::kPipeline],\n   grid[Axis::kTensor]});"
        self.expect({"src/train/a.cc": text, "src/comm/a.cc": text, "tests/mpi/a.cc": text},
                    "src/train/a.cc: a statement lists the dimensions of the grid: use kGridDimensions")
        self.expect({"src/train/a.cc": "f(kDataAxes); g(Axis::kPipeline); h(Axis::kTensor);"})

    def test_another_way_to_look_at_files(self):
        text = 'std::ifstream file(path);  // exists(path)\nprint("exists(x)"); return std::filesystem::exists(p);'
        self.expect({"src/base/a.cc": text, "src/train/a.cc": text, "io/b.cc": "std::ofstream(path); exists(path);"},
                    "src/train/a.cc: ifstream: use base/files.h, or base/kernel_files.h for /proc and /sys",
                    "src/train/a.cc: filesystem::exists: use base/files.h, or base/kernel_files.h for /proc and /sys")

    def test_an_algorithm_without_its_header(self):
        self.expect({"src/base/a.cc": "#include <vector>\nint a = std::max(b, c);",
                     "tests/mpi/b.cc": "auto d = std::ranges::count(e, f);  // std::min(g)",
                     "src/base/c.cc": "#include <algorithm>\nint a = std::max(b, c);",
                     "src/base/d.cc": "// std::max(b)\nint a = std::numeric_limits<int>::max(); std::remove(p); std::move(q);"},
                    "src/base/a.cc: max is declared in <algorithm>, which it does not include",
                    "tests/mpi/b.cc: count is declared in <algorithm>, which it does not include")

    def test_a_comment_that_begins_with_of_as_or_by(self):
        message = "a comment begins with what a thing is or does, not with"
        self.expect({"src/base/a.cc": "// Of the process.\nint a;  // as b\n  // By name.\n//\n  // By\n  // name.\n",
                     "tests/mpi/CMakeLists.txt": "# Runs it.\n#\n# As below.\n"},
                    f"src/base/a.cc:1: {message} Of", f"src/base/a.cc:3: {message} By",
                    f"src/base/a.cc:5: {message} By", f"tests/mpi/CMakeLists.txt:3: {message} As")
        self.expect({"src/base/a.cc": "// The names,\n// By rank.\nint a;  // a number\n        // Of b.\n// Ofen\n",
                     "src/base/b.md": "# By name\n"})

    def test_link_to_nothing(self):
        self.expect({"README.md": "see [it](src/none.md)"},
                    "README.md: the link to src/none.md leads nowhere")
        self.expect({"README.md": "# A\nsee [it](src/b.md#a), [here](#b)", "src/b.md": "# B\n```\n# a\n```"},
                    "README.md: the link to src/b.md#a names no heading",
                    "README.md: the link to #b names no heading")

    def test_long_pages(self):
        self.expect({"README.md": "a\n" * 130, "src/README.md": "a\n" * 200, "src/cli/README.md": "a\n" * 201})
        for page, most in (("README.md", 130), ("src/README.md", 200)):
            self.expect({page: "a\n" * (most + 1)}, f"{page}: has {most + 1} lines, may have {most}: move detail to pages "
                        "of folders and to headers")

    def test_raw_figures_that_do_not_say_what_they_are(self):
        table = {"name": "steps", "section": "a-cpu", "command": "x", "machine": "A", "date": "2026-11-28",
                 "columns": ["T", "s"], "rows": [[64, 1.5]]}
        for change, message in [({}, None), ({"note": "quiet"}, None),
                                ({"date": None}, "steps needs columns, command, date, machine, name, rows, section"),
                                ({"section": "gpu"}, "steps: perf/RESULTS.md has no section 'gpu'"),
                                ({"rows": [[64]]}, "steps: a row is not as long as columns")]:
            changed = {key: value for key, value in {**table, **change}.items() if value is not None}
            self.expect({"perf/RESULTS.md": "# Results\n\n## A CPU\n", "perf/raw/steps.json": json.dumps([changed])},
                        *([f"perf/raw/steps.json: {message}"] if message else []))

    def test_a_test_that_nothing_runs(self):
        cmake = "trireme_test(b_test SOURCES b_test.cc)\nforeach(script c_test)"
        self.expect({"tests/unit/CMakeLists.txt": "io", "tests/unit/io/CMakeLists.txt": cmake,
                     "tests/unit/io/a_test.cc": "", "tests/unit/io/b_test.cc": "", "tests/unit/io/c_test.py": "",
                     "tests/mpi/b_test.py": "", "tests/unit/io/helper.cc": ""},
                    "tests/mpi/b_test.py: no line of its folder's CMakeLists.txt runs it",
                    "tests/unit/io/a_test.cc: no line of its folder's CMakeLists.txt runs it")

    def test_a_folder_of_unit_tests_that_is_of_no_layer(self):
        cmake = "# Not io\nforeach(folder comm house)\n"
        self.expect({"tests/unit/CMakeLists.txt": cmake, "tests/unit/comm/CMakeLists.txt": "a_test",
                     "tests/unit/comm/a_test.cc": "", "tests/unit/house/CMakeLists.txt": "", "tests/unit/b.cc": "",
                     "tests/unit/misc/c.cc": "", "tests/unit/io/CMakeLists.txt": "", "tests/unit/io/words/d.py": ""},
                    "tests/unit/b.cc: tests of a layer belong in its folder, tests/unit/LAYER",
                    "tests/unit/io/CMakeLists.txt: no line of tests/unit/CMakeLists.txt adds its folder",
                    "tests/unit/misc/c.cc: tests of a layer belong in its folder, tests/unit/LAYER")

    def test_another_version(self):
        cmake = "project(Trireme VERSION 0.2.0 LANGUAGES CXX)"
        self.expect({"CMakeLists.txt": cmake, "modules/CHANGES.md": "# Changes\n\n## 0.2.0\n\n## 0.1.0\n",
                     "modules/easybuild/Trireme-0.2.0-gmpich.eb": "trireme-0.2.0.tar.gz, fmt 10.1.0",
                     "jobs/a.md": "module load trireme/1.0, find_package(Trireme 0.2)", "perf/a.txt": "trireme_0.1.0.deb"})
        self.expect({"CMakeLists.txt": cmake, "modules/CHANGES.md": "## 0.1.0\n",
                     "modules/Trireme-0.1.0.eb": "", "README.md": "/opt/trireme/0.1.0, find_package(Trireme 0.3)"},
                    "README.md: names version 0.1.0; this is 0.2.0", "README.md: names version 0.3; this is 0.2.0",
                    "modules/CHANGES.md: does not begin with 0.2.0",
                    "modules/Trireme-0.1.0.eb: names version 0.1.0; this is 0.2.0")

    def test_layers_have_no_cycle(self):
        for layer, below in LAYERS.items():
            for other in below:
                self.assertNotIn(layer, reachable(other))


class BadInputTable(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)
        (self.root / "tests/unit/io").mkdir(parents=True)
        self.write("tests/unit/io/CMakeLists.txt", "trireme_test(a_test SOURCES a_test.cc)\nforeach(t b)\n")

    def write(self, path, text):
        (self.root / path).write_text(text, encoding="utf-8")

    def table(self, *rows):
        lines = [["Input", "Message", "Status", "Test"], *rows]
        self.write("tests/bad_input.tsv", "".join("\t".join(line) + "\n" for line in lines))

    def test_a_row_comes_from_the_comments_of_all_its_tests(self):
        self.write("tests/unit/io/a_test.cc", "  // bad input: `x`: a | it is\n  // wrong | 2\n  EXPECT_EQ(1, 2);\n")
        self.write("tests/unit/io/b_test.py", "# bad input: `x`: a | it is wrong | 2\nself.expect_refusal()\n")
        self.table(["`x`: a", "it is wrong", "2", "a_test, b_test"])
        self.assertEqual([], bad_input_table.check(self.root))
        self.table(["`x`: a", "it is wrong", "3", "a_test, b_test"])
        self.assertEqual(1, len(bad_input_table.check(self.root)))

    def test_what_shows_nothing_is_refused(self):
        self.table(["`x`", "y", "2", "a_test"])
        self.write("tests/unit/io/a_test.cc", "// bad input: `x` | y | 2\nint f();\n")
        self.assertEqual(["tests/unit/io/a_test.cc:1: no assertion stands below it"], bad_input_table.check(self.root))
        self.write("tests/unit/io/a_test.cc", "// bad input: `x` | y\nEXPECT_EQ(1, 2);\n")
        self.assertIn("tests/unit/io/a_test.cc:1: expected INPUT | MESSAGE | STATUS", bad_input_table.check(self.root))
        self.write("tests/unit/io/a_test.cc", "")
        self.write("tests/unit/io/c_test.cc", "// bad input: `x` | y | 2\nEXPECT_EQ(1, 2);\n")
        self.assertIn("tests/unit/io/c_test.cc: no CMakeLists.txt of tests/ knows this test",
                      bad_input_table.check(self.root))


class Repository(unittest.TestCase):
    root = Path()

    def test_follows_the_rules(self):
        files = files_of(self.root)
        self.assertIn("include/trireme/base/error.h", files, "this is not the repository")
        self.assertEqual([], problems(self.root))
        self.assertEqual([], bad_input_table.check(self.root))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: house_rules_test.py REPOSITORY")
    Repository.root = Path(sys.argv.pop())
    unittest.main()
