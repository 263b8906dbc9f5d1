#!/usr/bin/env python3
"""Counts what docs/design.md promises of the house: python3 tools/census.py [--build build] [--verbose]

    include cycles      between files, and between rooms (folders of src, at any depth)
    call cycles         the same of functions and tables that one object file takes from another; tables of
                        registries (*.def) are the exception: they name every entry, and entries may look
                        one another up
    rooms               files of the largest folder of src
    types               names that are defined as a type in two files
    names of operators  compared as strings outside ops/ and import/
    arena               lines above device/ that turn a slot into an address

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


def pairs(edges):
    """A file and its header are one: what is between .c and .h of one name does not count."""
    stem = lambda path: path.rpartition(".")[0]
    of = collections.defaultdict(set)
    for a, others in edges.items():
        of[stem(a)] |= {stem(b) for b in others} - {stem(a)}
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
    where = collections.defaultdict(set)
    for path in sources():
        for name in re.findall(r"^(?:typedef )?(?:struct|enum|union) (\w+) \{", text(path), re.M):
            where[name].add(path)
        for name in re.findall(r"^\} (\w+);", text(path), re.M):
            where[name].add(path)
    return sorted(f"{name}: {' '.join(sorted(p))}" for name, p in where.items() if len(p) > 1)


def operators():
    return set(re.findall(r"^\s*X\((\w+)", text("ops/ops.def"), re.M)) if os.path.exists(
        os.path.join(SRC, "ops/ops.def")) else set()


def compared_names():
    names = operators()
    found = []
    for path in sources():
        if path.split("/")[0] in ("ops", "import", "zoo"):
            continue
        for i, line in enumerate(text(path).splitlines(), 1):
            for word in re.findall(r'(?:strcmp|same|is_op|op_is|meg_is)\([^;]*?"(\w+)"', line):
                if word in names:
                    found.append(f"{path}:{i}: {line.strip()[:90]}")
    return found


def arena_pointers():
    found = []
    for path in sources():
        if path.split("/")[0] in ("exec", "train", "cli", "plan"):
            for i, line in enumerate(text(path).splitlines(), 1):
                if re.search(r"\barena(?:\.|->)(?:base|memory|data|bytes_at)|meg_engine_address|"
                             r"\baddress_of\(|slot_address", line):
                    found.append(f"{path}:{i}: {line.strip()[:90]}")
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
    arguments = parser.parse_args()
    include, call = includes(), calls(arguments.build)
    if not call:
        raise SystemExit(f"census: there are no objects in {arguments.build}: ./do build")
    for title, found in (
            ("include cycles between files", cycles(pairs(include))),
            ("include cycles between rooms", cycles(rooms(include))),
            ("call cycles between files", cycles(pairs(call))),
            ("call cycles between rooms", cycles(rooms(call))),
            ("rooms of more than 20 files", largest_room()),
            ("names of types that are defined twice", twice_defined()),
            ("operators' names compared outside ops, import and zoo", compared_names()),
            ("addresses in the arena above device", arena_pointers())):
        tell(title, found, arguments.verbose)


if __name__ == "__main__":
    main()
