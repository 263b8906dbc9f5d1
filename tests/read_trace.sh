# Sourced by tests: reads traces.
#
#     events FILE      one event a line: pid tid begin end tag bytes peer name
#     messages FILE    does each receive end after its send has begun, with the same bytes?
events()
{
    sed -n 's/.*"ph": "X", "pid": \([0-9]*\), "tid": \([0-9]*\), "ts": \([-0-9.]*\), "dur": \([-0-9.]*\), "name": "\([^"]*\)"\(.*\)/\1 \2 \3 \4 @\5@\6/p' "$1" |
        awk '{
            split($0, part, "@"); name = part[2]; rest = part[3]
            tag = bytes = peer = "-"
            if (match(rest, /"bytes": [0-9]+/)) bytes = substr(rest, RSTART + 9, RLENGTH - 9)
            if (match(rest, /"tag": [0-9]+/)) tag = substr(rest, RSTART + 7, RLENGTH - 7)
            if (match(rest, /"peer": [0-9]+/)) peer = substr(rest, RSTART + 8, RLENGTH - 8)
            printf "%d %d %.3f %.3f %s %s %s %s\n", $1, $2, $3, $3 + $4, tag, bytes, peer, name
        }'
}

# The k-th message of a sender, a receiver and a tag is the k-th that is received.
messages()
{
    events "$1" | sort -n -k 3 | awk '
        $8 == "send" { key = $1 - 1 " " $7 " " $5; begin[key, ++sent[key]] = $3; size[key, sent[key]] = $6 }
        $8 == "receive" { key = $7 " " $1 - 1 " " $5; n = ++got[key]; end[key, n] = $4; bytes[key, n] = $6; all++ }
        END {
            for (key in sent) if (sent[key] != got[key]) { print key ": sent " sent[key] ", received " got[key]; bad = 1 }
            for (at in end) {
                if (size[at] != bytes[at]) { print at ": " size[at] " bytes became " bytes[at]; bad = 1 }
                if (end[at] < begin[at]) { print at ": received " begin[at] - end[at] " us before it was sent"; bad = 1 }
            }
            print all " messages"
            exit bad || !all
        }'
}
