#!/bin/sh
# No variable outside a function unless const: ranks may be threads of one process (comm/threads.c), and state
# hangs on the context. Looks for symbols in writable sections of the archive; constant tables of
# pointers are in .data.rel.ro and pass. Usage: check-globals.sh SOURCE_DIR BUILD_DIR
archive=${2:-build}/libmegalith.a
test -f "$archive" || { echo "$archive is not there: build first"; exit 1; }
if nm "$archive" 2>/dev/null | grep -q __asan_; then
    echo "a sanitizer build has variables of its own: not checked"
    exit 77
fi
# A symbol's line: address, flags and section; a tab; size and name.
objdump -t "$archive" | awk -F '\t' '
/^[^ ]*\.o: / { member = $1; sub(":.*", "", member); objects++ }
NF == 2 {
    section = $1; sub(".* ", "", section)
    name = $2; sub("^[0-9a-f]+ +", "", name)
    writable = section ~ /^\.(data|bss|tdata|tbss)/ || section == "*COM*"
    if (writable && section !~ /^\.data\.rel\.ro/ && name != section) {
        print member " " name " (" section "): make it const, or hang it on the context"
        count++
    }
}
END {
    if (!objects) { print "the archive is empty"; exit 1 }
    printf "%d objects, %d changeable variables\n", objects, count
    exit count > 0
}'
