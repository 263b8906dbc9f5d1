#!/bin/sh
# The counts of tools/census.py that must be 0, or below a bound: cycles, rooms, names of types, walks,
# operators' names, addresses above device/, files that an operator touches. Usage: check-census.sh [SOURCE_DIR [BUILD_DIR]]
command -v python3 > /dev/null || { echo "no python3: not counted"; exit 77; }
exec python3 "${1:-.}/tools/census.py" --check --build "${2:-${1:-.}/build}"
