# Copies blocks from one part of the disk to another, in several streams at a time; they are written past all caches. FAULT and SEED choose what
# the driver does wrong; a stream ends at its first error.
# Variables: RESET_AFTER (microseconds until the guest resets itself, or nothing), FAULT, SEED, STREAMS, and of each stream N: STREAM_N_SIZE, STREAM_N_FROM, STREAM_N_TO, STREAM_N_COUNT.

find_disk() {
    tries=0
    while [ $tries -lt 100 ]; do
        [ -b /dev/zd0 ] && return
        tries=$((tries + 1))
        usleep 100000
    done
    echo "the driver made no disk"
    return 1
}

plant() {
    echo "$SEED" >/sys/module/gate_disk/parameters/seed &&
        echo "$FAULT" >/sys/module/gate_disk/parameters/fault
}

fetch() {
    number=0
    while [ $number -lt "$STREAMS" ]; do
        eval "dd if=/dev/zd0 of=/tmp/stream-$number bs=\$STREAM_${number}_SIZE skip=\$STREAM_${number}_FROM \
            count=\$STREAM_${number}_COUNT" || return 1
        number=$((number + 1))
    done
}

stream() {
    eval "dd if=/tmp/stream-$1 of=/dev/zd0 oflag=direct conv=notrunc bs=\$STREAM_$1_SIZE seek=\$STREAM_$1_TO \
        count=\$STREAM_$1_COUNT"
}

copy() {
    [ -z "$RESET_AFTER" ] || (usleep "$RESET_AFTER"; echo b >/proc/sysrq-trigger) &
    processes=
    number=0
    while [ $number -lt "$STREAMS" ]; do
        stream $number &
        processes="$processes $!"
        number=$((number + 1))
    done
    failed=0
    for process in $processes; do
        wait "$process" || failed=1
    done
    return $failed
}

step disk find_disk
step fetch fetch
[ -z "$FAULT" ] || step plant plant
try copy copy
# It is skipped where the mistake found no request to be made at.
[ -z "$FAULT" ] || try planted grep Y /sys/module/gate_disk/parameters/planted
