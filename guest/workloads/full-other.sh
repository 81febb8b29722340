# What drivers of the smaller classes go through: their device nodes are opened, read and written, from two processes.

# nodes: the device nodes that the driver may have made.
nodes() {
    case $CLASS in
    watchdog) ls /dev/watchdog0 ;;
    ipmi) ls /dev/ipmi* ;;
    i2c) ls /dev/i2c-* ;;
    serial) ls /dev/ttyUSB* ;;
    display) ls /dev/fb* /dev/dri/* ;;
    virtio) ls /dev/hwrng /dev/hvc0 /dev/vport* ;;
    esac 2>/dev/null
}

use() {
    for node in $(nodes); do
        case $node in
        /dev/watchdog*) timeout 3 sh -c "echo >$node; printf V >$node" ;;
        /dev/i2c-*)
            bus=${node#/dev/i2c-}
            timeout 15 i2cdetect -y "$bus"
            timeout 15 i2cdump -y "$bus" 0x50 b
            timeout 5 i2cget -y "$bus" 0x50 0
            timeout 5 i2cget -y "$bus" 0x50 0 w
            timeout 5 i2cset -y "$bus" 0x50 0 0x42 b
            ;;
        /dev/ttyUSB*)
            timeout 3 stty -F "$node" 9600 raw -echo
            timeout 3 dd if=/dev/zero of="$node" bs=64 count=8
            timeout 1 head -c 1 "$node"
            timeout 3 stty -F "$node" 115200 cs7 parenb
            ;;
        /dev/fb* | /dev/dri/*) timeout 5 dd if=/dev/zero of="$node" bs=64k count=8 ;;
        /dev/hwrng) timeout 5 dd if="$node" of=/dev/null bs=100 count=10 ;;
        /dev/hvc* | /dev/vport*) timeout 3 sh -c "echo hello >$node" ;;
        *) timeout 2 sh -c ": <$node" ;;
        esac
    done >/dev/null 2>&1
    [ "$CLASS$(nodes)" != "$CLASS" ] || [ "$CLASS" = none ] || echo "the driver made no device node"
}

again() { use; }

load() { use; }

# A watchdog that nobody feeds barks; the host ignores it.
unfed() {
    timeout -s KILL 8 watchdog -F -t 2 -T 4 /dev/watchdog0
    exec 4>/dev/watchdog0 && usleep 3000000
    printf V >&4
    exec 4>&-
}

balloon() {
    ask balloon-small
    usleep 2500000
    ask balloon-large
    usleep 1500000
}

screens() {
    for status in /sys/class/drm/*/status; do
        [ -w "$status" ] && echo detect >"$status"
        cat "${status%/*}/edid" "${status%/*}/modes" >/dev/null
    done
}

class_steps() {
    try use bounded 50 use
    case $CLASS in
    watchdog) try unfed bounded 30 unfed ;;
    virtio) try balloon bounded 20 balloon ;;
    display) try screens bounded 20 screens ;;
    esac
}
