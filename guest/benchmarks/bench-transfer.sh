# Sends or receives a fixed amount through the driver's interface, from a server of the host (iperf3).
# Variables: SERVER_PORT, PROTOCOL (tcp or udp), DIRECTION (send or receive), BYTES, and of UDP: LENGTH, RATE (bits per second; 0 for all there is).
# POLICY, where it is not empty, is that of a guarded driver.

HOST=10.0.2.2

up() {
    ip link set lo up && ip link set "$INTERFACE" up && wait_for_link || return 1
    ip address add 10.0.2.15/24 dev "$INTERFACE" && ip route add default via $HOST
}

transfer() {
    set -- --client $HOST --port "$SERVER_PORT" --json
    case $DIRECTION in
    send) set -- "$@" --bytes "$BYTES" ;;
    # It is the host that sends: it does so for as long as that takes.
    receive) set -- "$@" --reverse --bytes "$BYTES" ;;
    esac
    [ "$PROTOCOL" = tcp ] || set -- "$@" --udp --length "$LENGTH" --bitrate "$RATE"
    iperf3 "$@" >/tmp/transfer 2>&1 || { tail -n 3 /tmp/transfer && return 1; }
}

# Of the last sum in the report: what arrived.
figure() { grep "\"$1\":" /tmp/transfer | tail -n 1 | sed 's/[^0-9.]*\([0-9]*\).*/\1/'; }

set_policy() { [ -z "$POLICY" ] || echo "$POLICY" >/sys/module/guardrail/parameters/policy; }

step interface find_interface
step policy set_policy
step up up
step work transfer
step worked true
step "moved-$(figure bytes)-$(figure packets)-$(figure lost_packets)" true
table_of_rights
step down ip link set "$INTERFACE" down
