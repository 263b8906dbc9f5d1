# Sourced by tests of the command, which are given the source and the build folder:
#
#     . "$1/tests/command.sh"
#     run 0 train cnn --steps 1       the exit code must be 0
#     has out '^trained cnn'          the last run's stdout (err: its stderr) has a line that matches
#     lacks err 'warning: '           and no line like this
#     refuses 1 'unknown' show cnnn   fails, says so on stderr, and prints nothing as a result
#     says 0 'accuracy' train cnn     the exit code, and a line of stdout or stderr
#     finish
#
# Sets $source, $build, $megalith; works in a folder of its own, which goes in the end. A test that wants
# words behind every command of run defines extra(), which is given the command's words and prints them.
source=$1 build=$2 megalith=$2/megalith
[ -x "$megalith" ] || { echo "there is no $megalith: build first"; exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/megalith-test.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work" || exit 1
failures=0 what=
: > out
: > err

extra() { :; }

fail()
{
    failures=$((failures + 1))
    echo "FAILED: $*"
    sed 's/^/    out: /;12q' out
    sed 's/^/    err: /;12q' err
}

run()
{
    want=$1
    shift
    what="megalith $*"
    "$megalith" "$@" $(extra "$@") > out 2> err
    code=$?
    [ $code = "$want" ] || fail "$what: exit code $code, not $want"
}

has() { grep -q -a -e "$2" "$1" || fail "$what: $1 has no '$2'"; }
lacks() { ! grep -q -a -e "$2" "$1" || fail "$what: $1 has a line like '$2'"; }

refuses()
{
    code_wanted=$1 pattern=$2
    shift 2
    run "$code_wanted" "$@"
    grep -q '^megalith: ' err || fail "$what: no message"
    has err "$pattern"
    [ ! -s out ] || fail "$what: prints results although it fails"
}

says()
{
    code_wanted=$1 pattern=$2
    shift 2
    run "$code_wanted" "$@"
    cat err >> out
    : > err
    has out "$pattern"
}

finish()
{
    [ $failures = 0 ] || { echo "$failures failures"; exit 1; }
    echo "all as it should be"
    exit 0
}
