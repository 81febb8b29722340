# A file is written and synchronized, piece by piece, while the driver of its disk is killed and comes again, twice.

MOUNTED=/tmp/mounted
PIECES=256
MOST=2000

make() {
    /sbin/mke2fs -q -F -t ext4 "$DISK" && mkdir -p $MOUNTED && mount -t ext4 "$DISK" $MOUNTED &&
        dd if=/dev/urandom of=/tmp/source bs=16k count=$PIECES 2>/dev/null && cp /tmp/source $MOUNTED/before && touch $MOUNTED/file && sync
}

# One process has the file open all the time. Behind its last piece the source begins again.
write() {
    (
        exec 3>$MOUNTED/file
        piece=0
        while [ ! -e /tmp/enough ] && [ $piece -lt $MOST ]; do
            dd if=/tmp/source bs=16k count=1 skip=$((piece % PIECES)) conv=fsync 2>/tmp/errors >&3 || break
            piece=$((piece + 1))
            usleep 10000
        done
        [ ! -e /tmp/enough ] || echo $piece >/tmp/written
        touch /tmp/ended
    ) &
}

written() {
    touch /tmp/enough
    until_there 900 "writing does not end" /tmp/ended || return 1
    [ -e /tmp/written ] || { cat /tmp/errors && return 1; }
    size=$(($(cat /tmp/written) * 16384))
    while cat /tmp/source; do :; done 2>/dev/null | head -c $size >/tmp/all
}

# It reads what was written before from the disk, so that there is something to do for it as well.
read_again() {
    echo 3 >/proc/sys/vm/drop_caches
    dd if=$MOUNTED/before of=/tmp/again bs=32k iflag=direct 2>/tmp/errors && cmp /tmp/source /tmp/again
}

same() { echo 3 >/proc/sys/vm/drop_caches && cmp /tmp/all $MOUNTED/file && cmp /tmp/source $MOUNTED/before; }
no_error() { ! dmesg | grep -i 'i/o error\|ext4-fs error\|offline\|remounting\|aborting' || return 1; }
# Devices and host agree anew on how to transfer.
revalidated() { for target in /sys/class/spi_transport/target*/revalidate; do echo 1 >"$target" || return 1; done; said 2 'Ending Domain Validation'; }
used() { [ "$(cat /sys/module/sym53c8xx/refcnt)" "$1" 0 ]; }
mounted_again() { umount $MOUNTED && used = && mount -t ext4 "$DISK" $MOUNTED && used -gt && same && umount $MOUNTED; }

# The driver does not come, so that commands fail; then somebody loads it.
no_loader() { printf '#!/bin/sh\n[ "$1" = -r ] && rmmod "$2"\n' >/tmp/loader; }
failed() {
    said 1 'recovery of domain 1 failed' && until_there 300 "writing goes on" /tmp/ended || return 1
    [ ! -e /tmp/written ] && dmesg | grep -q 'its devices are offline'
}
# When it looks for devices, and again when it is told of those that are there.
killed_twice() {
    echo recover >$parameters/policy
    { echo '- - -' >/sys/class/scsi_host/host0/scan; } &
    said 2 'is killed'
    echo log >$parameters/policy
    dmesg | grep -q 'is killed.*slave_alloc\|is killed.*sdev_init'
}
comes() { insmod /guardrail/driver.ko && said 1 'has its driver again'; }
as_synchronized() {
    umount $MOUNTED && used = && mount -t ext4 "$DISK" $MOUNTED || return 1
    size=$(($(stat -c %s $MOUNTED/file) / 16384 * 16384))
    while cat /tmp/source; do :; done 2>/dev/null | head -c $size >/tmp/all
    head -c $size $MOUNTED/file | cmp - /tmp/all && cmp /tmp/source $MOUNTED/before && umount $MOUNTED
}

step disk find_disk
step make make
step write write
case $FAULT in
loader)
    step no-loader no_loader
    usleep 300000
    step kill tell killed_by "$FUNCTION"
    step failed tell failed
    step comes tell comes
    step as-synchronized tell as_synchronized
    step shown shown
    exit
    ;;
often)
    echo recover >$parameters/policy
    step failed tell failed
    echo log >$parameters/policy
    step unload rmmod sym53c8xx
    step comes tell comes
    step as-synchronized tell as_synchronized
    step shown shown
    exit
    ;;
probe)
    step kill tell killed_twice
    step recovered tell recovered 1
    step written tell written
    step same tell same
    step no-error tell no_error
    step mounted-again tell mounted_again
    step shown shown
    exit
    ;;
esac
for turn in 1 2; do
    usleep 300000
    step "kill-$turn" tell killed_by "$FUNCTION"
    step "read-$turn" tell read_again
    step "recovered-$turn" tell recovered $turn
done
step revalidate tell revalidated
step written tell written
step same tell same
step no-error tell no_error
step used used -gt
step mounted-again tell mounted_again
step shown shown
