#!/bin/sh
# The program that README shows is examples/fashion.c, and its commands exist. docs/cli.md names every
# command, every word of the tables that several commands take, and every plan with a name.
# Arguments: source folder, build folder.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed -n '/^```c$/,/^```$/p' "$1/README.md" | sed '1d;$d' > "$work/shown.c"
diff -u "$1/examples/fashion.c" "$work/shown.c"
for command in $(sed -n 's|^    build/megalith \([a-z]*\) .*|\1|p' "$1/README.md" | sort -u); do
    "$2/megalith" help "$command" > /dev/null || { echo "no command $command"; exit 1; }
done

for command in $("$2/megalith" help | sed -n 's/^  \([a-z]*\)  *[a-z].*/\1/p' | grep -v megalith); do
    grep -q "^| \`$command[ \`]" "$1/docs/cli.md" ||
        { echo "docs/cli.md does not say what $command does"; exit 1; }
done
for table in device plan 'plan file' trainer ranks; do
    row=$(grep "^| $table | \`" "$1/docs/cli.md") || { echo "docs/cli.md: no table $table"; exit 1; }
    for word in $("$2/megalith" help train |
                  sed -n "/^words of $table:/,/^\$/s/^  \([a-z_0-9]*\)=.*/\1/p"); do
        echo "$row" | tr '`' ' ' | grep -q " $word[ ,]" ||
            { echo "docs/cli.md: table $table lacks $word"; exit 1; }
    done
done
for plan in $("$2/megalith" list plans | sed -n 's/^\([a-z0-9-]*\): .*/\1/p'); do
    grep -q "^| \`$plan\` | " "$1/docs/cli.md" || { echo "docs/cli.md lacks plan $plan"; exit 1; }
done
