# Makes the user's root file system ready at /guardrail/root, for what runs in it. An image is a disk with the serial number
# $ROOT_SERIAL; ROOT_TYPE and ROOT_OPTIONS say how it is mounted. What is written to the root is in the guest's memory.

root=/guardrail/root

# The disk with the image.
root_disk() {
    tries=0
    while [ $tries -lt 100 ]; do
        for entry in /sys/block/*; do
            for serial in "$entry/serial" "$entry/device/serial"; do
                [ "$(cat "$serial" 2>/dev/null | tr -d ' ')" != "$ROOT_SERIAL" ] || { echo "/dev/${entry##*/}" && return; }
            done
        done
        tries=$((tries + 1))
        usleep 100000
    done
    return 1
}

# The image below, and what is written above it.
mount_image() {
    disk=$(root_disk) || { echo "the disk with the image does not appear" && return 1; }
    mkdir -p /guardrail/below /guardrail/above
    mount -t "$ROOT_TYPE" -o "$ROOT_OPTIONS" "$disk" /guardrail/below ||
        { echo "the guest's kernel cannot mount the image as $ROOT_TYPE" && return 1; }
    mount -t tmpfs above /guardrail/above && mkdir /guardrail/above/upper /guardrail/above/work &&
        mount -t overlay -o lowerdir=/guardrail/below,upperdir=/guardrail/above/upper,workdir=/guardrail/above/work above $root
}

# folder NAME: a folder of the root, which must be no link: the guest's own files would be mounted over.
folder() {
    [ ! -L "$root/$1" ] || { echo "/$1 of the root is a link; the guest needs a folder there" && return 1; }
    mkdir -p "$root/$1"
}

# What every root has from its kernel. The driver's devices appear in /dev as they do outside.
mount_kernels() {
    for place in dev proc sys run tmp; do
        folder $place || return 1
    done
    mount -t devtmpfs dev $root/dev && mount -t proc proc $root/proc && mount -t sysfs sys $root/sys &&
        mount -t tmpfs run $root/run && mount -t tmpfs -o mode=1777 tmp $root/tmp || return 1
    mount -t debugfs debug $root/sys/kernel/debug 2>/dev/null
    mkdir -p $root/dev/pts $root/dev/shm
    mount -t devpts pts $root/dev/pts 2>/dev/null
    mount -t tmpfs shm $root/dev/shm 2>/dev/null
    # The kernel makes none of these; what is written to a missing one would become a file in the guest's memory.
    ln -sfn /proc/self/fd $root/dev/fd
    for stream in 0:stdin 1:stdout 2:stderr; do
        ln -sf "fd/${stream%:*}" "$root/dev/${stream#*:}"
    done
    return 0
}

# The files of --file, which are in the folder $1. Folders of the root may be links, but lead to folders of the root.
copy_files() {
    [ -d "$1" ] || return 0
    (cd "$1" && find . -type d) >/tmp/folders
    while IFS= read -r name; do
        mkdir -p "$root/$name" || return 1
        case $(readlink -f "$root/$name")/ in
        $root/*) ;;
        *) echo "$name leads out of the root" && return 1 ;;
        esac
    done </tmp/folders
    (cd "$1" && find . ! -type d) >/tmp/files
    while IFS= read -r name; do
        rm -rf "${root:?}/$name" && cp -dp "$1/$name" "$root/$name" || return 1
    done </tmp/files
}

make_root() {
    [ -z "$ROOT_TYPE" ] || mount_image || return 1
    mount_kernels && copy_files /guardrail/files
}

# The script of the user's, for the root's shell.
bring_script() { mkdir -p $root/run/guardrail && cp "$1" $root/run/guardrail/workload; }

# in_root COMMAND...: runs it in the root, with the variables of the run in its environment.
in_root() {
    for name in $(sed -n 's/^\([A-Za-z_][A-Za-z_0-9]*\)=.*/\1/p' /guardrail/config); do
        export "${name?}"
    done
    export DEVICE INTERFACE DISK HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    exec chroot $root "$@"
}

# Mounts of the root would keep the driver's devices open.
leave_root() {
    sed -n "s|^[^ ]* \($root[^ ]*\) .*|\1|p" /proc/mounts | sort -r | while read -r place; do
        umount "$place" 2>/dev/null || umount -l "$place" 2>/dev/null
    done
}
