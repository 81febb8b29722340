# What an input device's driver goes through: keys are pressed by the host while two processes read them.

find_event() {
    EVENT=
    for entry in /sys/class/input/event*; do
        case $(readlink -f "$entry") in */"$DEVICE"/*) EVENT=/dev/input/${entry##*/} ;; esac
    done
    [ -c "$EVENT" ] || { echo "the driver made no input device" && return 1; }
}

# Keys until something arrives.
keys() {
    timeout 6 head -c 24 "$EVENT" >/tmp/events &
    reader=$!
    for turns in 1 2 3 4; do
        usleep 300000
        ask key
    done
    wait $reader
    [ -s /tmp/events ] || { echo "no key arrived" && return 1; }
}

again() {
    tries=0
    until find_event; do
        tries=$((tries + 1))
        [ $tries -lt 50 ] || return 1
        usleep 100000
    done
    keys
}

load() {
    find_event
    ask key
    timeout 1 cat "$EVENT" >/dev/null
}

lights() {
    for light in /sys/class/leds/*/brightness; do
        [ -w "$light" ] || continue
        echo 1 >"$light" && echo 0 >"$light"
    done
}

class_steps() {
    try keys bounded 30 again
    try lights bounded 20 lights
}
