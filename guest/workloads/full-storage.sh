# What a disk's driver goes through besides: sectors that fail, resets, new scans, discards, and both CPUs at once.
# The basic workload's functions stand before this. Beyond DISK_MB lies a part of the disk that nobody verifies.
# Variables: BAD_READ, BAD_WRITE (sectors that fail, if the host makes them fail).

again() {
    DISK=
    find_disk && true_node && forget && timeout 30 dd if="$DISK" of=/dev/null bs=64k count=16
}

# A write that comes when the disk has just gone makes a plain file of its name, and then the next disk gets no node.
true_node() {
    [ -b "$DISK" ] && return
    rm -f "$DISK"
    mknod "$DISK" b $(tr : ' ' <"$(block)/dev")
}

load() {
    [ -b "$DISK" ] || { find_disk && true_node; } || return
    case $1 in
    0) timeout 10 dd if="$DISK" of=/dev/null bs=64k count=32 skip=$(($$ % 16)) iflag=direct ;;
    *) timeout 10 dd if=/dev/zero of="$DISK" bs=16k count=64 seek=$(((DISK_MB + 3) * 64)) oflag=direct conv=notrunc ;;
    esac
    timeout 10 dd if="$DISK" of=/dev/null bs=4k count=100 2>/dev/null
    forget
}

block() { echo "/sys/block/${DISK##*/}"; }

fails() { ! "$@" || { echo "it did not fail" && return 1; }; }

bad_read() {
    [ -n "$BAD_READ" ] || { echo "the host makes nothing fail" && return 1; }
    [ -b "$DISK" ] || { echo "there is no disk" && return 1; }
    fails timeout 30 dd if="$DISK" of=/dev/null bs=512 count=1 skip="$BAD_READ" iflag=direct
}

bad_write() {
    [ -n "$BAD_WRITE" ] || { echo "the host makes nothing fail" && return 1; }
    [ -b "$DISK" ] || { echo "there is no disk" && return 1; }
    fails timeout 30 dd if=/dev/zero of="$DISK" bs=4096 count=1 seek=$((BAD_WRITE / 8)) conv=notrunc,fsync
}

beyond_end() { fails timeout 20 dd if=/dev/zero of="$DISK" bs=1M count=1 seek=100000 conv=notrunc; }

odd_sizes() {
    for size in 512 1536 5120 130560; do
        timeout 20 dd if="$DISK" of=/dev/null bs=$size count=20 skip=1 iflag=direct || return 1
    done
}

discard() { timeout 20 blkdiscard -o $(((DISK_MB + 3) << 20)) -l 1048576 "$DISK"; }

partition() { timeout 20 blockdev --rereadpt "$DISK" && timeout 20 blockdev --flushbufs "$DISK"; }

queue() {
    folder=$(block)/queue
    for scheduler in $(tr -d '[]' <"$folder/scheduler"); do
        echo "$scheduler" >"$folder/scheduler"
        timeout 20 dd if="$DISK" of=/dev/null bs=64k count=8 iflag=direct
    done
    for pair in nr_requests=16 max_sectors_kb=64 read_ahead_kb=32 rq_affinity=2 nomerges=2 "write_cache=write through" \
        iostats=0 iostats=1 "write_cache=write back" nomerges=0; do
        echo "${pair#*=}" >"$folder/${pair%%=*}"
        timeout 20 dd if="$DISK" of=/dev/null bs=64k count=4 iflag=direct
    done
    true
}

each_host() {
    found=1
    for host in /sys/class/scsi_host/*; do
        case $(readlink -f "$host") in */"$DEVICE"/*) ;; *) continue ;; esac
        "$@" "$host" && found=0
    done
    [ $found = 0 ] || { echo "it has no such host" && return 1; }
}

scan_host() { echo '- - -' >"$1/scan"; }
reset_host() { [ -e "$1/host_reset" ] && echo adapter >"$1/host_reset"; }

scsi_device() {
    folder=$(block)/device
    [ -e "$folder/delete" ] || { echo "it is no SCSI disk" && return 1; }
    echo 1 >"$folder/rescan"
    echo 20 >"$folder/timeout"
    echo 2 >"$folder/queue_depth"
    timeout 20 dd if="$DISK" of=/dev/null bs=64k count=8 iflag=direct
    echo 1 >"$folder/delete"
    usleep 300000
    each_host scan_host
    usleep 1000000
    again
}

reset_controller() {
    for name in reset_controller rescan_controller; do
        for file in "$DEVICE_FOLDER"/nvme/nvme*/$name; do
            [ -w "$file" ] || { echo "it has no such file" && return 1; }
            echo 1 >"$file"
        done
    done
    usleep 500000
    again
}

policy() {
    for host in /sys/class/scsi_host/*; do
        [ -w "$host/link_power_management_policy" ] || continue
        for policy in min_power medium_power max_performance; do
            echo $policy >"$host/link_power_management_policy"
            usleep 100000
        done
        again
        return
    done
    echo "it has no link power management"
    return 1
}

reset_loaded() {
    start_load
    usleep 500000
    each_host reset_host
    result=$?
    usleep 500000
    stop_load
    return $result
}

class_steps() {
    try beyond-end bounded 30 beyond_end
    try odd-sizes bounded 40 odd_sizes
    try discard bounded 30 discard
    try partition bounded 40 partition
    try queue bounded 55 queue
    try reset-controller bounded 40 reset_controller
    try link-power bounded 40 policy
    try scan bounded 40 each_host scan_host
    try scsi-device bounded 40 scsi_device
    try reset-host bounded 40 each_host reset_host
    try after-reset bounded 40 again
    try reset-loaded bounded 45 reset_loaded
    try after-reset-loaded bounded 40 again
}

# Errors come last: a driver that does not survive them has shown everything else before. A disk behind a cable can be
# pulled out.
at_end() {
    try bad-read bounded 40 bad_read
    try bad-write bounded 40 bad_write
    try after-errors bounded 40 again
    sync
    [ "$CLASS" = usb ] || return
    start_load
    usleep 500000
    try pull-out bounded 20 pull_out
    stop_load
}

pull_out() {
    ask unplug
    usleep 2000000
}
