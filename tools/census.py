#!/usr/bin/env python3
"""Counts what docs/design.md promises of the house: python3 tools/census.py [--build build] [--verbose] [--check]

    include cycles      between files, and between rooms (folders of src, at any depth)
    call cycles         the same of functions and tables that one object file takes from another; tables of
                        registries (*.def) are the exception: they name every entry, and entries may look
                        one another up
    rooms               files of the largest folder of src
    types               names with the prefix meg_ that are defined as a type in two files; a type that a
                        header leaves open (typedef struct x x) may have a body in each of its kinds
    walkers             functions outside plan/program/walk.c that go through the lines of an entry
    names of operators  compared as strings outside ops/, import/ and zoo/
    arena               lines above device/ that can turn a place of the arena into an address
    files of an operator  of src that speak of an operator which has all (a plain kernel, a fast one, ONNX both
                        ways), besides those that bear its name, and networks of zoo/ that use it; at most 4

With --check the status is 1 where a count is not 0, or above its bound (tools/check-census.sh, a test).

It reads the sources, and the symbols of the objects that the build left, so build first.
"""
import argparse
import collections
import glob
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SRC = os.path.join(ROOT, "src")


def sources(pattern=r".*\.[ch]$"):
    for folder, _, names in os.walk(SRC):
        for name in sorted(names):
            if re.match(pattern, name):
                yield os.path.relpath(os.path.join(folder, name), SRC)


def text(path):
    with open(os.path.join(SRC, path), encoding="utf-8") as f:
        return f.read()


# ---- graphs ----

def includes():
    edges = collections.defaultdict(set)
    for path in sources():
        for other in re.findall(r'^ *# *include "([^"]+\.h)"', text(path), re.M):
            edges[path].add(other)
    return edges


def registries():
    """Files that include a table of entries."""
    return {path for path in sources() if re.search(r'# *include "[^"]+\.def"', text(path))}


def calls(build):
    """Of sources: whose functions and tables does each use, but for the tables of registries?"""
    defines, uses = {}, collections.defaultdict(set)
    for path in glob.glob(os.path.join(build, "CMakeFiles/*/src/**/*.o"), recursive=True):
        source = path.split("/src/", 1)[1].removesuffix(".o")
        if not os.path.exists(os.path.join(SRC, source)):
            continue  # of a file that has moved since
        for line in subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines():
            kind, name = line[17:18], line[19:]
            if kind in "TDRBV":
                defines[name] = source
            elif kind == "U":
                uses[source].add(name)
    tables = registries()
    return {source: {defines[n] for n in names if n in defines} - {source}
            for source, names in uses.items() if source not in tables}


def rooms(edges):
    """The same between folders."""
    of = collections.defaultdict(set)
    for a, others in edges.items():
        for b in others:
            if os.path.dirname(a) != os.path.dirname(b):
                of[os.path.dirname(a)].add(os.path.dirname(b))
    return of


def cycles(edges):
    """Sets of nodes that reach each other: Tarjan's algorithm, without recursion."""
    index, low, stack, on, found, count = {}, {}, [], set(), [], 0
    for root in sorted(edges):
        if root in index:
            continue
        work = [(root, iter(sorted(edges.get(root, ()))))]
        index[root] = low[root] = count
        count += 1
        stack.append(root)
        on.add(root)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = count
                    count += 1
                    stack.append(other)
                    on.add(other)
                    work.append((other, iter(sorted(edges.get(other, ())))))
                    break
                if other in on:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = []
                    while not part or part[-1] != node:
                        part.append(stack.pop())
                        on.discard(part[-1])
                    if len(part) > 1:
                        found.append(sorted(part))
    return found


# ---- counts ----

def twice_defined():
    where, open_types = collections.defaultdict(set), set()
    for path in sources():
        for name in re.findall(r"^(?:typedef )?(?:struct|enum|union) (meg_\w+) \{", text(path), re.M):
            where[name].add(path)
        for name in re.findall(r"^\} (meg_\w+);", text(path), re.M):
            where[name].add(path)
        open_types |= set(re.findall(r"^typedef struct (meg_\w+) \1;", text(path), re.M))
    return sorted(f"{name}: {' '.join(sorted(p))}" for name, p in where.items()
                  if len(p) > 1 and name not in open_types)


def lines_with(pattern, rooms, besides=()):
    """path:line: text of every match in files of these folders."""
    found = []
    for path in sources():
        if path.split("/")[0] in rooms and path not in besides:
            for i, line in enumerate(text(path).splitlines(), 1):
                if re.search(pattern, line):
                    found.append(f"{path}:{i}: {line.strip()[:90]}")
    return found


ABOVE = ("exec", "train", "cli", "plan")


def walkers():
    """Lowering writes the lines, and print shows them as they are."""
    return lines_with(r"(?:->|\.)lines\b.*(?:\+\+|--)|entry->lines", ABOVE,
                      ("plan/program/walk.c", "plan/lower/lower.c", "plan/program/program.c"))


def compared_names():
    names = "|".join(re.findall(r"^MEG_OP\((\w+)\)", text("ops/ops.def"), re.M))
    return lines_with(rf'strcmp\(.*"(?:{names})"', ("graph", "device", "comm", "data", *ABOVE))


def arena_pointers():
    """Only device/arena.h has addresses; above, there are places. `far` finds at run time what this does not."""
    return lines_with(r"device/arena\.h|meg_arena_(?:address|near)\(", (*ABOVE, "comm", "data"))


OPERATOR, FILES_MOST = "prelu", 4
TABLES = ("ops/ops.def", "device/cpu/kernels.def", "device/cpu/simd/kernels.def", "import/onnx/operators.def")


def files_of_operator():
    """Of one that is in all tables, by the name that it has here; to add another touches the same."""
    name = re.compile(rf"(?<![a-z]){OPERATOR}(?![a-z])")
    found = [path for path in sources(r".*\.([ch]|def)$")
             if name.search(text(path)) and not path.startswith("zoo/")
             and os.path.basename(path).split(".")[0] != OPERATOR]
    missing = [table for table in TABLES if table not in found]
    if missing:
        raise SystemExit(f"census: {OPERATOR} is not in {' '.join(missing)}: name an operator that has all")
    return found


def largest_room():
    count = collections.Counter(os.path.dirname(p) for p in sources())
    return [f"{n} {room}" for room, n in count.most_common() if n > 20]


def tell(title, found, verbose):
    print(f"{len(found):5}  {title}")
    if verbose:
        for entry in found:
            print("          " + (entry if isinstance(entry, str) else f"{len(entry)}: " + " ".join(entry)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--verbose", action="store_true", help="what was counted, too")
    parser.add_argument("--check", action="store_true", help="status 1 where a count is above its bound")
    arguments = parser.parse_args()
    include, call = includes(), calls(arguments.build)
    if not call:
        raise SystemExit(f"census: there are no objects in {arguments.build}: ./do build")
    wrong = []
    for title, found, most in (
            ("include cycles between files", cycles(include), 0),
            ("include cycles between rooms", cycles(rooms(include)), 0),
            ("call cycles between files", cycles(call), 0),
            ("call cycles between rooms", cycles(rooms(call)), 0),
            ("rooms of more than 20 files", largest_room(), 0),
            ("names of types that are defined twice", twice_defined(), 0),
            ("walks over a program besides the one", walkers(), 0),
            ("operators' names compared outside ops, import and zoo", compared_names(), 0),
            ("addresses in the arena above device", arena_pointers(), 0),
            (f"files of {OPERATOR} besides its own, at most {FILES_MOST}", files_of_operator(), FILES_MOST)):
        bad = arguments.check and len(found) > most
        tell(title, found, arguments.verbose or bad)
        wrong += [title] if bad else []
    if wrong:
        raise SystemExit("census: too many: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
