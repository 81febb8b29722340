# A server that somebody outside puts under load: web, memcached, stream (iperf3) or request (sockperf).
# Variables: SERVER, CONTROL (a port of the host: the program that listens there gives the load and says "done" after it; without
# one the server is only started and asked once by the guest itself).

HOST=10.0.2.2

up() {
    ip link set lo up && ip link set "$INTERFACE" up && wait_for_link || return 1
    ip address add 10.0.2.15/24 dev "$INTERFACE" && ip route add default via $HOST
}

serve() {
    case $SERVER in
    web) web ;;
    memcached) memcached -d -u root -m 256 -t 1 -c 512 ;;
    stream) iperf3 --server --daemon ;;
    request)
        sockperf server --tcp -i 0.0.0.0 -p 11111 >/dev/null 2>&1 &
        sockperf server -i 0.0.0.0 -p 11112 >/dev/null 2>&1 &
        ;;
    *) echo "there is no server named '$SERVER'" && return 1 ;;
    esac
}

port() {
    case $SERVER in
    web) echo 80 ;;
    memcached) echo 11211 ;;
    stream) echo 5201 ;;
    request) echo 11111 ;;
    esac
}

# The connection stays open, and still, until the load is over.
load() {
    answer=$(echo ready | nc $HOST "$CONTROL")
    [ "$answer" = done ] || { echo "the load did not end well: ${answer:-no answer}" && return 1; }
}

quit() {
    end_servers
    ip link set "$INTERFACE" down
}

step interface find_interface
step up up
step serve serve
step listening listening "$(port)"
[ -z "$CONTROL" ] || step work load
step quit quit
