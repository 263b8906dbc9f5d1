#!/bin/sh
# The program that README shows is examples/fashion.c, and its commands exist.
# Arguments: source folder, build folder.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed -n '/^```c$/,/^```$/p' "$1/README.md" | sed '1d;$d' > "$work/shown.c"
diff -u "$1/examples/fashion.c" "$work/shown.c"
for command in $(sed -n 's|^    build/megalith \([a-z]*\) .*|\1|p' "$1/README.md" | sort -u); do
    "$2/megalith" help "$command" > /dev/null || { echo "no command $command"; exit 1; }
done
