# A network interface changes while two processes send through it. In the end it must still pass packets.
# Variables: PORT (the host's server), CHANGES (the changes, in order), ROUNDS (of each).

HOST=10.0.2.2

link_up() {
    ip link set "$INTERFACE" up && wait_for_link
}

address() {
    ip address add 10.0.2.15/24 dev "$INTERFACE" && ip route add default via $HOST
}

# A device that was given back has a new interface, which lacks the address.
again() {
    INTERFACE=
    tries=0
    until find_interface; do
        tries=$((tries + 1))
        [ $tries -lt 50 ] || return 1
        usleep 100000
    done
    link_up || return 1
    ip address show dev "$INTERFACE" | grep -q 10.0.2.15 || address || ip route add default via $HOST
}

answers() {
    again && ping -c 3 -W 10 $HOST
}

# Sends packets of a process, and those that acknowledgments make the kernel send.
load() {
    timeout 5 ping -q -i 0.001 -s 1400 -w 2 $HOST &
    {
        printf 'PUT /upload HTTP/1.0\r\nContent-Length: %d\r\n\r\n' "$(stat -c %s /bin/busybox)"
        cat /bin/busybox
    } | timeout 3 nc $HOST "$PORT"
}

mtu() { ip link set "$INTERFACE" mtu 1400 && usleep 300000 && ip link set "$INTERFACE" mtu 1500; }

rings() { timeout 60 ethtool -G "$INTERFACE" rx 128 tx 128 && usleep 300000 && timeout 60 ethtool -G "$INTERFACE" rx 256 tx 256; }

channels() { timeout 60 ethtool -L "$INTERFACE" combined 1 && usleep 2500000 && timeout 60 ethtool -L "$INTERFACE" combined 2; }

selftest() { timeout 60 ethtool -t "$INTERFACE" offline; }

closed() { ip link set "$INTERFACE" down && usleep 100000 && ip link set "$INTERFACE" up; }

# All devices are suspended and resumed, without the machine going to sleep.
suspend() {
    echo 1 >/sys/module/suspend/parameters/pm_test_delay
    echo devices >/sys/power/pm_test || return 1
    echo mem >/sys/power/state
    result=$?
    echo none >/sys/power/pm_test
    return $result
}

# Other processes, one for each CPU, open the interface as soon as there is one.
rebind() {
    for link in /sys/module/"$DRIVER"/drivers/*/"$DEVICE"; do
        folder=$(readlink -f "${link%/*}")
    done
    for cpu in 0 1; do
        (
            taskset -p $((1 << cpu)) "$(exec sh -c 'echo $PPID')"
            until [ -e /tmp/opened ]; do ip link set "$INTERFACE" up; done
        ) >/dev/null 2>&1 </dev/null &
    done
    echo "$DEVICE" >"$folder/unbind" && usleep 300000 && echo "$DEVICE" >"$folder/bind"
    result=$?
    touch /tmp/opened
    usleep 300000
    rm -f /tmp/opened
    [ $result = 0 ] && again
}

ip link set lo up
step interface find_interface
step up link_up
step address address
step before answers
for change in $CHANGES; do
    round=0
    while [ $round -lt "$ROUNDS" ]; do
        round=$((round + 1))
        start_load
        usleep 700000
        try "$change-$round" "$change"
        usleep 500000
        stop_load
    done
done
step after answers
