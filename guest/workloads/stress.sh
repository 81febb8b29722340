# stress-ng over its classes memory, filesystem, network and scheduler, and over its mappings: two of each stressor at a time,
# on an ext4 file system in memory.
# Left out is what computes only, what wants devices, modules or more memory than the guest has, and what runs until time is up.
# Variables: CLASSES, STRESSORS (these alone), OPERATIONS (of each, at most), SECONDS (of each, at most).

memory="bad-altstack context malloc mcontend membarrier memfd mincore pipeherd remap rmap stack stackmmap tlb-shootdown tmpfs vm
    vm-addr vm-rw vm-segv mmap mmapmany mlock mremap msync shm shm-sysv"
filesystem="access chdir chmod chown copy-file dentry dir dirdeep dup eventfd fallocate fcntl fiemap filename flock fpunch fsize
    fstat getdent handle hdd inode-flags inotify io lease link lockf lockofd mknod open rename symlink sync-file touch
    utime xattr"
network="epoll netdev ping-sock rawsock rawudp sock sockabuse sockdiag sockfd sockmany sockpair udp udp-flood"
scheduler="affinity clone close daemon exec exit-group fork futex hrtimers kill mmapfork mq msg mutex nanosleep nice poll
    resched schedpolicy sem sem-sysv session spawn switch tee vfork wait yield zombie"

disk() {
    mkdir -p /dev/shm /tmp/stress && mount -t tmpfs shm /dev/shm && truncate -s 96M /tmp/stress.image && /sbin/mke2fs -q -F -t ext4 /tmp/stress.image &&
        mount -o loop /tmp/stress.image /tmp/stress
}

# Failures are printed last.
stress_once() {
    stress-ng --"$1" 2 --"$1"-ops "$OPERATIONS" --timeout "$SECONDS" --temp-path /tmp/stress --seed 1 --oomable >/tmp/said 2>&1
    status=$?
    cat /tmp/said
    [ $status -eq 0 ] || { grep "error:" /tmp/said; grep "fail:\|skipped" /tmp/said; }
    return $status
}

# Some stressors judge by time, which a slow guest has little of; only what fails twice counts.
stress() { stress_once "$1" || stress_once "$1"; }

undisk() { umount /tmp/stress; }

ip link set lo up
step disk disk
if [ -n "$STRESSORS" ]; then
    CLASSES=chosen
    chosen=$STRESSORS
fi
for class in $CLASSES; do
    eval "stressors=\$$class"
    for stressor in $stressors; do
        step "$class-$stressor" stress "$stressor"
    done
done
step undisk undisk
