# Carries out a program in syzkaller's text form, each round in a process of its own.
# Variables: ROUNDS, CALL_SECONDS (how long a call may wait).

rounds() {
    [ "$ROUNDS" -gt 0 ] && [ "$CALL_SECONDS" -gt 0 ] ||
        { echo "ROUNDS and CALL_SECONDS have to be numbers above 0" && return 1; }
    round=0
    while [ $round -lt "$ROUNDS" ]; do
        round=$((round + 1))
        [ "$ROUNDS" = 1 ] || echo "round $round"
        /tmp/syz /tmp/operations "$CALL_SECONDS" || return
    done
}

mkdir -p /root
step build build syz
step exec program rounds
