# Exercises a network interface: traffic both ways with checksums, what ethtool reads, state changes.
# Variables: PORT (the host's server), DOWNLOAD_MB, REQUESTS, UPLOADS (each about 2 MB), PINGS.

HOST=10.0.2.2

link_up() {
    ip link set "$INTERFACE" up && wait_for_link
}

address() {
    ip address add 10.0.2.15/24 dev "$INTERFACE" && ip route add default via $HOST
}

get() { wget -q -T 120 -O - "http://$HOST:$PORT/$1"; }

checksum() { md5sum | cut -c 1-32; }

same() { [ "$1" = "$2" ] || { echo "the checksum is ${1:-absent}, expected ${2:-absent}" && return 1; }; }

download() {
    bytes=$((DOWNLOAD_MB * 1048576))
    if [ -n "$UNCHECKED" ]; then
        get "bytes/$bytes" >/dev/null
    else
        sum=$(set -o pipefail && get "bytes/$bytes" | checksum) || { echo "the download broke off" && return 1; }
        same "$sum" "$(get "sum/$bytes")"
    fi
}

requests() {
    count=0
    while [ $count -lt "$REQUESTS" ]; do
        get bytes/64 >/dev/null || return 1
        count=$((count + 1))
    done
}

body() {
    count=0
    while [ $count -lt "$UPLOADS" ]; do
        cat /bin/busybox
        count=$((count + 1))
    done
}

upload() {
    length=$((UPLOADS * $(stat -c %s /bin/busybox)))
    answer=$({
        printf 'PUT /upload HTTP/1.0\r\nContent-Length: %d\r\n\r\n' $length
        body
    } | nc $HOST "$PORT" | tail -n 1)
    same "$answer" "$(body | checksum)"
}

promiscuous() {
    ip link set "$INTERFACE" promisc on && ip link set "$INTERFACE" promisc off
}

mtu() {
    ip link set "$INTERFACE" mtu 1400 && ip link set "$INTERFACE" mtu 1500 && wait_for_link
}

down() { ip link set "$INTERFACE" down; }

ip link set lo up
step interface find_interface
step up link_up
step address address
step ping ping -c "$PINGS" -i 0.2 -W 10 $HOST
[ "$DOWNLOAD_MB" = 0 ] || step download download
[ "$REQUESTS" = 0 ] || step requests requests
[ "$UPLOADS" = 0 ] || step upload upload
for option in i S d k a c g e; do
    try "ethtool-$option" ethtool -$option "$INTERFACE"
done
try promiscuous promiscuous
try mtu mtu
step down down
step up-again link_up
step ping-again ping -c 1 -W 10 $HOST
step down-again down
