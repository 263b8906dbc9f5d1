#!/bin/sh
# Hashes of the programs of all ranks over the zoo's plans, its meshes and 200 + 200 random cases:
# ./do hashes [--no-tags] [--except TEXT]... [FILE]
#
# Without FILE they are printed; where FILE does not exist they are written to it; else they are compared
# with it: cases that changed are listed, FILE.new has the new list, and the status is 1.
#
#     --no-tags      tags of messages may differ
#     --except TEXT  cases with this text in their name may differ in all (balance=memory)
#
# What is in a hash: tests/canonical.h. Two builds' texts of a case are compared so:
#
#     build/tests/dump_programs --matrix --only 'NAME' --print > one.txt
build=$1 file='' tags=1 except=''
shift
while [ $# -gt 0 ]; do
    case $1 in
    --no-tags) tags=0 ;;
    --except)
        [ $# -gt 1 ] || { echo "hashes: --except wants a text" >&2; exit 2; }
        except=$except${except:+'
'}$2
        shift
        ;;
    -*) echo "hashes: no option '$1': there are --no-tags, --except TEXT" >&2; exit 2 ;;
    *) file=$1 ;;
    esac
    shift
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

list()
{
    status=0
    "$build/tests/dump_programs" "$@" >> "$work/list" || status=$?
    [ $status = 0 ] && return
    echo "hashes: dump_programs $* ended with status $status; its last case was:" >&2
    tail -n 1 "$work/list" >&2
    exit 2
}
list --matrix
list --mesh-list
list --fuzz 200 1
list --fuzz-mesh 200 1

if [ -z "$file" ]; then
    cat "$work/list"
    exit
fi
if [ ! -e "$file" ]; then
    cp "$work/list" "$file.new" && mv "$file.new" "$file" || exit 2
    echo "$(wc -l < "$file") cases written to $file"
    exit
fi
EXCEPT=$except awk -F '\t' -v tags=$tags '
function free(name,    i) # may it differ?
{
    for (i = 1; i <= excepts; i++)
        if (index(name, except[i])) return 1
    return 0
}
function other(a, b) # as texts: 1e2 is not 100
{
    return (a "") != (b "")
}
function tell(name, what)
{
    print what ": " name
    changed++
}
BEGIN { excepts = split(ENVIRON["EXCEPT"], except, "\n") }
FNR == NR { ranks[$1] = $2; program[$1] = $3; tag[$1] = $4; bytes[$1] = $5; next }
{
    cases++
    seen[$1] = 1
    if (free($1)) { left++; next }
    if (!($1 in program)) { tell($1, "new"); next }
    what = ""
    if (other($2, ranks[$1])) what = what " ranks"
    if (other($3, program[$1])) what = what " program"
    if (other($5, bytes[$1])) what = what " bytes"
    if (tags && other($4, tag[$1])) what = what " tags"
    if (what != "") tell($1, substr(what, 2))
}
END {
    for (name in program)
        if (!(name in seen) && !free(name)) tell(name, "missing")
    printf "%d cases, %d differ", cases, changed
    if (left) printf ", %d not compared", left
    print tags ? "" : "; tags not compared"
    exit changed > 0
}' "$file" "$work/list" && exit
cp "$work/list" "$file.new" && echo "the new list is $file.new"
exit 1
