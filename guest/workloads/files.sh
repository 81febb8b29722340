# What a file system goes through, on a disk in memory. Files and folders with long and short names are made, renamed, shortened,
# mapped, synchronized and removed, by several processes too. There are settings, a full disk, and mounts that fail, and all of it is
# read again after another mount. It needs no device.
# Variables: FILESYSTEM, OPTIONS (of mount, each tried in turn), FILES, DISK_MB, STRESSORS (of stress-ng), OPERATIONS (of each).

IMAGE=/tmp/files/image
DISK=/tmp/disk

forget() { sync && echo 3 >/proc/sys/vm/drop_caches; }

make() {
    mkdir -p /tmp/files $DISK /dev/shm && { grep -q " /dev/shm " /proc/mounts || mount -t tmpfs shm /dev/shm; } &&
        rm -f $IMAGE && truncate -s "${1:-$DISK_MB}M" $IMAGE || return 1
    case $FILESYSTEM in
    vfat) mkdosfs $IMAGE ;;
    *) /sbin/mke2fs -q -F -t "$FILESYSTEM" $IMAGE ;;
    esac
}

mounted() { mount -t "$FILESYSTEM" -o "loop${1:+,$1}" $IMAGE $DISK; }

unmount() { umount $DISK; }

# Names that need one entry of a folder, two and many; contents that end within sectors, at their ends, and nowhere.
name_of() {
    case $(($1 % 4)) in
    0) echo "F$1.TXT" ;;
    1) echo "a longer name of file $1.data" ;;
    2) echo "$1 $(printf '%0120d' "$1") a very long name" ;;
    *) echo "MiXed$1.Txt" ;;
    esac
}

content_of() { seq 1 $(($1 * 37 % 3000)); }

fill() {
    mkdir "$1" || return 1
    i=0
    while [ $i -lt "$FILES" ]; do
        content_of $i >"$1/$(name_of $i)" || return 1
        i=$((i + 1))
    done
}

sums() { (cd "$1" && find . -type f -exec md5sum {} + | sort -k 2); }

remember() { sums $DISK >/tmp/files/sums && [ -s /tmp/files/sums ]; }

unchanged() {
    sums $DISK >/tmp/files/now && cmp /tmp/files/sums /tmp/files/now
}

rename_files() {
    mkdir -p $DISK/other/deep/er && cd $DISK/first || return 1
    for file in *; do
        case $file in
        F*) mv "$file" "../other/$file" || return 1 ;;
        MiXed*) mv "$file" "$(echo "$file" | tr a-z A-Z).tmp" || return 1 ;;
        *) [ $((${#file} % 2)) = 0 ] || mv "$file" "../other/deep/$file again" || return 1 ;;
        esac
    done
    # Over another, and folders with what is in them.
    echo one >$DISK/one && echo two >$DISK/two && mv -f $DISK/one $DISK/two && [ "$(cat $DISK/two)" = one ] &&
        mv $DISK/other/deep $DISK/first/deep && mv $DISK/first/deep $DISK/other/deeper && cd /
}

shorten() {
    file=$DISK/long
    dd if=/dev/urandom of=$file bs=4k count=300 2>/dev/null && cp $file /tmp/files/long || return 1
    for size in 1228000 700001 4096 4095 1 0 5000 600000; do
        truncate -s $size $file && truncate -s $size /tmp/files/long && cmp $file /tmp/files/long || return 1
    done
    echo more >>$file && echo more >>/tmp/files/long && dd if=/dev/zero of=$file bs=1k seek=900 count=1 conv=notrunc 2>/dev/null &&
        dd if=/dev/zero of=/tmp/files/long bs=1k seek=900 count=1 conv=notrunc 2>/dev/null && forget && cmp $file /tmp/files/long
}

synchronized() {
    dd if=/dev/zero of=$DISK/synchronized bs=3000 count=20 conv=fsync && dd if=/dev/zero of=$DISK/written bs=2000 count=20 conv=fsync &&
        dd if=/dev/zero of=$DISK/direct bs=64k count=8 oflag=direct && dd if=$DISK/direct of=/dev/null bs=64k iflag=direct && sync -f $DISK
}

times_and_modes() {
    touch -d '2019-03-04 05:06:07' $DISK/two && [ "$(date -r $DISK/two +%Y)" = 2019 ] && touch $DISK/two && chmod 444 $DISK/two &&
        chmod 755 $DISK/two && stat $DISK/two && stat -f $DISK && df $DISK && ls -lR $DISK >/dev/null || return 1
    [ "$FILESYSTEM" != vfat ] || { fatattr +h $DISK/two && fatattr -h $DISK/two && fatattr $DISK/two; }
}

# What must fail does, and does no harm.
refused() {
    ! mkdir $DISK/first && ! rmdir $DISK/first && ! ls $DISK/nothing && ! rmdir $DISK/two && ! mv $DISK/first $DISK/first/inside &&
        ! touch "$DISK/$(printf '%0300d' 1)" || { echo "it did not fail" && return 1; }
}

holes() { fallocate -l 100000 $DISK/ahead && rm $DISK/ahead; }

trim() { fstrim $DISK; }

full_disk() {
    ! dd if=/dev/zero of=$DISK/all bs=256k count=4000 && ! fill $DISK/too-much
    rm -rf $DISK/all $DISK/too-much && sync && echo fits >$DISK/fits && rm $DISK/fits
}

remounted() {
    mount -o remount,ro $DISK && ! touch $DISK/not && mount -o remount,rw $DISK && touch $DISK/not && rm $DISK/not
}

together() {
    for worker in 1 2; do
        (
            fill $DISK/worker$worker && rm -r $DISK/worker$worker && fill $DISK/worker$worker && mv $DISK/worker$worker $DISK/done$worker &&
                touch /tmp/files/done$worker
        ) &
    done
    for turn in 1 2 3; do
        usleep 200000
        forget
        find $DISK >/dev/null
    done
    wait
    for worker in 1 2; do
        rm /tmp/files/done$worker && rm -r $DISK/done$worker || return 1
    done
}

opened_and_removed() {
    exec 5>$DISK/open 6<$DISK/two
    echo something >&5
    rm $DISK/open $DISK/two
    echo more >&5
    cat <&6
    exec 5>&- 6<&-
    [ ! -e $DISK/open ]
}

stress() { stress-ng --"$1" 2 --"$1"-ops "$OPERATIONS" --timeout 4 --temp-path $DISK --seed 1 --oomable ${2:+"$2"}; }

each_option() {
    for option in $OPTIONS; do
        mounted "$option" || return 1
        unchanged && fill $DISK/option && rm -r $DISK/option || { unmount && return 1; }
        unmount || return 1
    done
}

bad_images() {
    truncate -s 8M /tmp/files/bad
    ! mount -t "$FILESYSTEM" -o loop /tmp/files/bad $DISK || return 1
    # What follows the begin of the image is lost.
    head -c 65536 $IMAGE >/tmp/files/bad
    mount -t "$FILESYSTEM" -o loop /tmp/files/bad $DISK && { ls -lR $DISK; unmount; }
    ! mounted no_such_option || { unmount && return 1; }
}

empty() { rm -rf ${DISK:?}/* && [ -z "$(ls $DISK)" ]; }

step make make
step mount mounted
step fill fill $DISK/first
step rename rename_files
step shorten shorten
step synchronize synchronized
step times times_and_modes
step refused refused
step remember remember
step forget forget
step unchanged unchanged
try holes holes
try trim trim
step full full_disk
step remount remounted
step still-unchanged unchanged
step together together
for stressor in $STRESSORS; do
    try "stress-$stressor" stress "$stressor"
done
try stress-mmap-file stress mmap --mmap-file
rm -rf $DISK/tmp-stress*
step compare unchanged
step unmount unmount
step mount-again mounted
step same-again unchanged
step removed-while-open opened_and_removed
step remember-again remember
step unmount-again unmount
try options each_option
try bad-images bad_images
step mount-last mounted
step same-at-last unchanged
step remove empty
table_of_rights
step unmount-last unmount
