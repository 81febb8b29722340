# A driver violates what it may not, in a call of its user's and while it receives, and a transfer goes on.

HOST=10.0.2.2

set_up() {
    ip link set "$INTERFACE" address 52:54:00:65:43:21
    ip link set "$INTERFACE" mtu 1450
    ip link set "$INTERFACE" promisc on
    ip link set "$INTERFACE" name wan0 && INTERFACE=wan0
    ip link set "$INTERFACE" up && wait_for_link || return 1
    ip address add 10.0.2.15/24 dev "$INTERFACE" && ip address add 10.9.9.9/24 dev "$INTERFACE" || return 1
    ip route add default via $HOST && ip route add 10.8.0.0/16 via 10.0.2.3
}

settings() {
    cat /sys/class/net/wan0/address /sys/class/net/wan0/mtu /sys/class/net/wan0/ifindex
    ip -o link show dev wan0 | grep -o 'PROMISC\|,UP'
    ip -o -4 address show dev wan0 | sed 's/^[0-9]*: //'
    ip route | sort
}

get() { wget -q -T 60 -O - "http://$HOST:$PORT/$1"; }
transfer() {
    rm -f /tmp/sum
    { get bytes/12000000 | md5sum | cut -c 1-32 >/tmp/sum.new; mv /tmp/sum.new /tmp/sum; } &
    sleep 1
}
transferred() {
    until_there 900 "the transfer does not end" /tmp/sum || return 1
    [ "$(cat /tmp/sum)" = "$(get sum/12000000)" ] || { echo "the transfer is damaged" && return 1; }
}

in_a_call() { echo "$1" >$parameters/policy && { timeout 20 ethtool -a wan0; true; }; }
as_before() { settings >/tmp/after; diff /tmp/before /tmp/after; }

ip link set lo up
step interface find_interface
step set-up set_up
settings >/tmp/before
case $FAULT in
call)
    step fail in_a_call fail
    echo log >$parameters/policy
    step transfer transfer
    step kill in_a_call recover
    echo log >$parameters/policy
    ;;
receive)
    step transfer transfer
    step kill tell killed_by clean_rx
    ;;
esac
step recovered tell recovered 1
step same tell as_before
step transferred tell transferred
step shown shown
