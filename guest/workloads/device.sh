# Finds what the driver made of its device DEVICE; every workload of ours begins with it.

find_interface() {
    for entry in /sys/class/net/*; do
        case $(readlink -f "$entry") in */"$DEVICE"/*) INTERFACE=${entry##*/} ;; esac
    done
    [ -n "$INTERFACE" ] || { echo "the driver made no network interface" && return 1; }
}

wait_for_link() {
    tries=0
    until [ "$(cat "/sys/class/net/$INTERFACE/carrier")" = 1 ]; do
        tries=$((tries + 1))
        [ $tries -lt 150 ] || { echo "no carrier after 15 s" && return 1; }
        usleep 100000
    done
}

find_disk() {
    tries=0
    while [ $tries -lt 100 ]; do
        for entry in /sys/block/*; do
            case $(readlink -f "$entry") in */"$DEVICE"/*) DISK=/dev/${entry##*/} && return ;; esac
        done
        tries=$((tries + 1))
        usleep 100000
    done
    echo "the driver made no disk"
    return 1
}

# Keeps a process on each CPU busy with what the workload calls `load CPU`, until stop_load.
start_load() {
    rm -f /tmp/stop
    for cpu in 0 1; do
        (
            taskset -p $((1 << cpu)) "$(exec sh -c 'echo $PPID')"
            until [ -e /tmp/stop ]; do
                load $cpu
                usleep 10000
            done
        ) >/dev/null 2>&1 </dev/null &
    done
}

stop_load() {
    touch /tmp/stop
    usleep 500000
}

# Names a step after what the table of rights takes, where a guarded driver has one: pages of entries, pages to map them, writable bytes.
table_of_rights() {
    rights=/sys/kernel/debug/guardrail/domains
    [ -r $rights ] || return 0
    step "rights-$(sed -n 's/^table: \([0-9]*\) pages, \([0-9]*\) pages to map.*/\1-\2/p' $rights)-$(sed -n 's/.*: \([0-9]*\) writable bytes.*/\1/p' $rights |
        awk '{n += $1} END {print n + 0}')" true
}
