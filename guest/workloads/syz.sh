# Carries out a program in syzkaller's text form, each round in a process of its own.
# Variables: ROUNDS, CALL_SECONDS (how long a call may wait).

rounds() {
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
