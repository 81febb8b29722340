# Sends packets in several streams at a time. FAULT and SEED choose what the driver does wrong.
# Variables: RESET_AFTER (microseconds until the guest resets itself, or nothing), FAULT, SEED, STREAMS, COUNT, and of each stream N: STREAM_N_SIZE (bytes of payload), STREAM_N_FILL (their value).

find_card() {
    tries=0
    while [ $tries -lt 100 ]; do
        [ -d /sys/class/net/zn0 ] && return
        tries=$((tries + 1))
        usleep 100000
    done
    echo "the driver made no network device"
    return 1
}

# Nothing but the streams and the driver's beacons leaves: no IPv6, and a destination that needs no neighbor.
up() {
    echo 1 >/proc/sys/net/ipv6/conf/zn0/disable_ipv6
    ip link set zn0 up && ip addr add 10.9.0.1/24 dev zn0 && ip route add 239.0.0.0/8 dev zn0
}

plant() {
    echo "$SEED" >/sys/module/gate_net/parameters/seed &&
        echo "$FAULT" >/sys/module/gate_net/parameters/fault
}

# Nobody answers, which is no failure.
stream() {
    eval "ping -q -c $COUNT -i 0.01 -W 1 -w 20 -s \$STREAM_$1_SIZE -p \$STREAM_$1_FILL 239.0.0.$(($1 + 1))"
}

transmit() {
    [ -z "$RESET_AFTER" ] || (usleep "$RESET_AFTER"; echo b >/proc/sysrq-trigger) &
    processes=
    number=0
    while [ $number -lt "$STREAMS" ]; do
        stream $number &
        processes="$processes $!"
        number=$((number + 1))
    done
    for process in $processes; do
        wait "$process"
    done
    true
}

step card find_card
step up up
[ -z "$FAULT" ] || step plant plant
try transmit transmit
try down ip link set zn0 down
# It is skipped where the mistake found no request to be made at.
[ -z "$FAULT" ] || try planted grep Y /sys/module/gate_net/parameters/planted
