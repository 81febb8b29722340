# For a driver on a synthetic device, of which nobody knows what it does: what the driver made of it is used as a user might,
# with answers that mean nothing. No step fails because the driver refuses.

# attributes FOLDER: reads all files about the device in sysfs.
attributes() {
    find "$1/" -type f -perm -0400 -size -65k ! -name remove ! -name rescan ! -name 'resource*' ! -name config ! -name rom |
        head -n 400 | while read -r file; do
        timeout 2 head -c 65536 "$file" >/dev/null 2>&1
    done
}

# The device nodes of what the driver made.
nodes() {
    find "$HERE/" -name uevent | while read -r file; do
        sed -n 's|^DEVNAME=|/dev/|p' "$file"
    done 2>/dev/null | head -n 32
}

# use NODE: opens, reads and writes it.
use() {
    timeout -s KILL 3 sh -c ": <'$1'"
    timeout -s KILL 3 head -c 4096 "$1"
    [ -b "$1" ] || timeout -s KILL 3 sh -c "head -c 64 /dev/zero >'$1'"
    case $1 in */ttyS* | */tty[A-Z]*) timeout -s KILL 3 stty -F "$1" 9600 raw -echo ;; esac
}

# traffic INTERFACE: up, packets, what ethtool asks for, down.
traffic() {
    timeout -s KILL 10 ip link set "$1" up
    ip addr add 192.0.2.1/24 dev "$1"
    timeout -s KILL 5 ping -c 3 -W 1 192.0.2.2
    for question in -i -d -e -S -k -g -a -c -l; do
        timeout -s KILL 3 ethtool $question "$1"
    done
    timeout -s KILL 5 ip link set "$1" mtu 1400
    timeout -s KILL 10 ip link set "$1" down
}

used() {
    for node in $(nodes); do
        use "$node"
    done
    for entry in "$HERE"/net/*; do
        [ ! -e "$entry" ] || traffic "${entry##*/}"
    done
    true
}

# The driver leaves the device, and is asked to take it with other answers, plan by plan.
taken_again() {
    # The last is one that it takes.
    for plan in 0 1 2 3 4 5 "${TAKEN:-0}"; do
        [ ! -e "$HERE/driver" ] || echo "$DEVICE" >"$HERE/driver/unbind"
        [ -z "$PLAN_AT" ] || answer "$HERE" "$plan"
        echo "$DEVICE" >"$BUS/drivers_probe"
        usleep 200000
    done
    true
}

# The device goes away while the driver has it.
unplugged() {
    # What a USB driver takes is an interface of a device, or a part of one.
    until [ -e "$HERE/remove" ]; do
        HERE=${HERE%/*}
        [ -n "$HERE" ] || { echo "the device cannot be unplugged" && return 1; }
    done
    echo 1 >"$HERE/remove"
    usleep 300000
}

# Without one, all of the guest would be read and written.
has_device() { [ -n "$DEVICE" ] && [ -n "$HERE" ] || { echo "the driver has no device" && return 1; }; }

HERE=
[ -z "$DEVICE" ] || HERE=$(readlink -f /sys/bus/*/devices/"$DEVICE")
step device has_device
BUS=$(readlink -f "$HERE/subsystem")
try wait usleep 300000
try attributes attributes "$HERE"
try used used
try taken-again taken_again
try unplugged unplugged
