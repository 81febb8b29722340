# Files on vfat are written, read and synchronized, while the file system is killed and comes again, twice.

IMAGE=/tmp/image
MOUNTED=/tmp/mounted
BOUND=/tmp/bound
MOST=5000

make() {
    truncate -s 32M $IMAGE && mkdosfs $IMAGE && mkdir -p $MOUNTED $BOUND && mount -t vfat -o loop,iocharset=ascii,uid=7,umask=022 $IMAGE $MOUNTED || return 1
    mkdir $MOUNTED/folder && seq 1 20000 >$MOUNTED/folder/before && seq 1 20000 >/tmp/before && mount -o bind $MOUNTED/folder $BOUND && sync
}

# One process has the file open all the time, and is in a folder of the file system.
write() {
    (
        cd $MOUNTED/folder && exec 3>"a file with a long name" || exit 1
        line=0
        while [ ! -e /tmp/enough ] && [ $line -lt $MOST ]; do
            line=$((line + 1))
            echo "this is line $line" >&3 || break
            [ $((line % 5)) != 0 ] || sync -d "a file with a long name" || break
        done 2>/tmp/errors
        [ ! -e /tmp/enough ] || echo $line >/tmp/written
        touch /tmp/ended
    ) &
}

# Another makes files, and removes some of them.
work() {
    (
        n=0
        while [ ! -e /tmp/enough ] && [ $n -lt $MOST ]; do
            n=$((n + 1))
            seq 1 $((n % 50 * 20)) >"$MOUNTED/folder/file $n" && cat "$MOUNTED/folder/file $n" >/dev/null || break
            ls -l $MOUNTED/folder >/dev/null && [ -e $BOUND/before ] || break
            [ $((n % 3)) = 0 ] || [ $n -lt 8 ] || rm -f "$MOUNTED/folder/file $((n - 4))"
        done 2>/tmp/errors-of-work
        [ ! -e /tmp/enough ] || echo $n >/tmp/worked
        touch /tmp/ended-work
    ) &
}

# Files that cannot be handed over: those of a program, and a disk's image, which only the kernel has open. Below a folder something else is mounted.
hold() {
    mkdir $MOUNTED/below && mount -t tmpfs below $MOUNTED/below && touch $MOUNTED/below/file || return 1
    dd if=/dev/zero of=$MOUNTED/disk bs=1M count=1 && losetup -f >/tmp/disk && losetup "$(cat /tmp/disk)" $MOUNTED/disk || return 1
    dd if=/dev/urandom of="$(cat /tmp/disk)" bs=64k count=1 conv=fsync || return 1
    /guardrail/holds $MOUNTED /tmp/holds /tmp/use /tmp/used >/tmp/errors-of-holds 2>&1 &
    until_there 100 "files cannot be held" /tmp/holds || { cat /tmp/errors-of-holds && return 1; }
}
# Uses them: all give errors, and no harm is done.
used() {
    touch /tmp/use
    until_there 100 "files that were held do not fail" /tmp/used || { cat /tmp/errors-of-holds && return 1; }
    disk=$(cat /tmp/disk)
    ! dd if=/dev/zero of="$disk" bs=64k count=1 conv=fsync || { echo "a disk writes without its image" && return 1; }
    dd if="$disk" of=/dev/null bs=64k
    losetup -d "$disk" && [ ! -e $MOUNTED/below/file ] || return 1
    said 1 ': 2 open files are in no table of descriptors' && said 1 'mounted on 1 of its folders cannot be reached'
}

written() {
    touch /tmp/enough
    until_there 600 "work does not end" /tmp/ended /tmp/ended-work || return 1
    [ -e /tmp/written ] && [ -e /tmp/worked ] || { cat /tmp/errors /tmp/errors-of-work && return 1; }
    n=$(cat /tmp/written)
    seq 1 "$n" | sed 's/^/this is line /' >/tmp/all
}

same() { cmp /tmp/all "$MOUNTED/folder/a file with a long name" && cmp /tmp/before $MOUNTED/folder/before && cmp /tmp/before $BOUND/before; }
# A file that was written and not synchronized before, and read by who had it open.
unsynchronized() { seq 1 3000 >$MOUNTED/unsynchronized && exec 4<$MOUNTED/unsynchronized; }
as_written() { seq 1 3000 | cmp - $MOUNTED/unsynchronized && cat <&4 >/tmp/read && seq 1 3000 | cmp - /tmp/read && exec 4<&-; }
mounted() { grep " $MOUNTED " /proc/mounts | grep vfat | grep -q uid=7 && [ "$(stat -c %u $MOUNTED/folder/before)" = 7 ]; }
mounted_again() { umount $BOUND && umount -l $MOUNTED && mount -t vfat -o loop $IMAGE $MOUNTED && mount -o bind $MOUNTED/folder $BOUND && same && umount $BOUND && umount $MOUNTED; }

step make make
step hold hold
step write write
step work work
for turn in 1 2; do
    usleep 300000
    step "unsynchronized-$turn" unsynchronized
    step "kill-$turn" tell killed_by "$FUNCTION"
    step "recovered-$turn" tell recovered $turn
    step "mounted-$turn" tell mounted
    step "as-written-$turn" tell as_written
done
step used tell used
step written tell written
step same tell same
step mounted-again tell mounted_again
step shown shown
