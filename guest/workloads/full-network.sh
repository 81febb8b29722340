# What a network driver goes through besides: the link is pulled, settings change, interfaces go down and up under
# traffic. The basic workload's functions stand before this.

again() {
    INTERFACE=
    tries=0
    until find_interface; do
        tries=$((tries + 1))
        [ $tries -lt 30 ] || return 1
        usleep 100000
    done
    ip link set "$INTERFACE" up && wait_for_link || return 1
    ip address show dev "$INTERFACE" | grep -q 10.0.2.15 || address || ip route add default via $HOST
    timeout 20 ping -c 1 -W 10 $HOST
}

load() {
    case $1 in
    0) timeout 10 wget -q -T 5 -O /dev/null "http://$HOST:$PORT/bytes/4000000" ;;
    *)
        {
            printf 'PUT /upload HTTP/1.0\r\nContent-Length: %d\r\n\r\n' $((UPLOADS * $(stat -c %s /bin/busybox)))
            body
        } | timeout 10 nc $HOST "$PORT"
        timeout 5 ping -c 10 -i 0.01 -s 1400 -W 1 $HOST
        ;;
    esac
}

carrier_is() {
    tries=0
    until [ "$(cat "/sys/class/net/$INTERFACE/carrier")" = "$1" ]; do
        tries=$((tries + 1))
        [ $tries -lt 80 ] || { echo "the carrier did not become $1" && return 1; }
        usleep 100000
    done
}

pull_link() {
    ask link-down
    carrier_is 0
    result=$?
    ask link-up
    carrier_is 1 && return $result
}

up_and_down() {
    start_load
    for turns in 1 2 3; do
        usleep 700000
        ip link set "$INTERFACE" down
        usleep 100000
        ip link set "$INTERFACE" up
        wait_for_link
    done
    stop_load
}

settings_loaded() {
    start_load
    usleep 300000
    for turns in 1 2 3; do
        promiscuous
        ip link set "$INTERFACE" allmulticast on
        ip link set "$INTERFACE" allmulticast off
        ip link set "$INTERFACE" mtu $((1300 + turns))
        timeout 5 ethtool -S "$INTERFACE" >/dev/null
        timeout 5 ethtool -d "$INTERFACE" >/dev/null
        usleep 200000
    done
    ip link set "$INTERFACE" mtu 1500
    stop_load
}

new_address() {
    old=$(cat "/sys/class/net/$INTERFACE/address")
    ip link set "$INTERFACE" down
    ip link set "$INTERFACE" address 52:54:00:65:43:21
    result=$?
    ip link set "$INTERFACE" up
    ip link set "$INTERFACE" down
    ip link set "$INTERFACE" address "$old"
    ip link set "$INTERFACE" up
    wait_for_link
    return $result
}

# Writes a byte of the EEPROM back as it is; the magic numbers are those that drivers want.
eeprom() {
    magic=0x$(cut -c 3- "$DEVICE_FOLDER/device")$(cut -c 3- "$DEVICE_FOLDER/vendor")
    timeout 10 ethtool -e "$INTERFACE" offset 16 length 1 raw on >/tmp/byte || return 1
    value=$(hexdump -e '/1 "0x%02x"' /tmp/byte)
    for number in "$magic" 0x1234; do
        timeout 10 ethtool -E "$INTERFACE" magic "$number" offset 16 value "${value:-0}" && return 0
    done
    return 1
}

set_and_back() {
    timeout 10 ethtool "$1" "$INTERFACE" $2 || return 1
    [ -z "$3" ] || timeout 10 ethtool "$1" "$INTERFACE" $3
    usleep 300000
    wait_for_link
}

class_steps() {
    try up-once-more bounded 40 again
    try pull-link bounded 30 pull_link
    try offload bounded 30 set_and_back -K 'rx off tx off sg off tso off gso off gro off' 'rx on tx on sg on tso on gso on gro on'
    try vlan-offload bounded 30 set_and_back -K 'rxvlan off txvlan off' 'rxvlan on txvlan on'
    try receive-all bounded 30 set_and_back -K 'rx-all on' 'rx-all off'
    try rings bounded 30 set_and_back -G 'rx 128 tx 128' 'rx 256 tx 256'
    try coalesce bounded 30 set_and_back -C 'rx-usecs 50' 'rx-usecs 3'
    try pause bounded 30 set_and_back -A 'autoneg off rx on tx on' 'autoneg on'
    try channels bounded 30 set_and_back -L 'combined 1' 'combined 2'
    try wake bounded 30 set_and_back -s 'wol g' 'wol d'
    try speed bounded 40 set_and_back -s 'speed 100 duplex full autoneg off' 'autoneg on'
    try messages bounded 30 set_and_back -s 'msglvl 0x7' 'msglvl 0x0'
    try negotiate bounded 30 set_and_back -r '' ''
    try eeprom bounded 20 eeprom
    try dump-link bounded 20 timeout 10 ethtool -m "$INTERFACE"
    try flow-rules bounded 20 timeout 10 ethtool -n "$INTERFACE"
    try hash bounded 20 timeout 10 ethtool -x "$INTERFACE"
    try energy bounded 20 timeout 10 ethtool --show-eee "$INTERFACE"
    try identify bounded 20 timeout 10 ethtool -p "$INTERFACE" 1
    try self-test bounded 45 timeout 40 ethtool -t "$INTERFACE" offline
    try after-self-test bounded 40 again
    try new-address bounded 40 new_address
    try up-and-down bounded 50 up_and_down
    try settings-loaded bounded 40 settings_loaded
    try after-settings bounded 40 again
}

# A network driver can be unloaded while packets fly.
at_end() {
    start_load
    usleep 1000000
}
