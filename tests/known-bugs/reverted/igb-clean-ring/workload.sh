# Changes the packet size, again and again, soon after something was received: the driver stops and cleans its rings for
# that without the packets that the kernel sends before an interface goes down.

for entry in /sys/class/net/*; do
    case $(readlink -f "$entry") in */"$DEVICE"/*) INTERFACE=${entry##*/} ;; esac
done

link_up() {
    ip link set "$INTERFACE" up
    tries=0
    until [ "$(cat "/sys/class/net/$INTERFACE/carrier")" = 1 ]; do
        tries=$((tries + 1))
        [ $tries -lt 150 ] || return 1
        usleep 100000
    done
}

change_after_traffic() {
    for size in 1400 1500 1400 1500 1400 1500; do
        link_up || return 1
        ping -c 8 -i 0.2 -W 1 10.0.2.2
        ip link set "$INTERFACE" mtu $size || return 1
    done
}

step up link_up
step address ip address add 10.0.2.15/24 dev "$INTERFACE"
step change-after-traffic change_after_traffic
