# Postmark on an ext4 file system on the driver's disk. The files are fewer than in the thesis and would all fit into
# memory, so memory forgets them every second: what is read comes from the disk, and what is written goes there.
# Variables: FILES (of 10 to 20 KB), TRANSACTIONS.

make() { mkdir -p /tmp/disk && /sbin/mke2fs -q -F -t ext4 "$DISK" && mount -t ext4 "$DISK" /tmp/disk; }

forget() { sync && echo 3 >/proc/sys/vm/drop_caches; }

forget_again() {
    while usleep 1000000; do forget; done
}

# Reads and writes that the disk has completed.
requests() { awk '{print $1 + $5}' "/sys/block/${DISK##*/}/stat"; }

postmark_on_disk() {
    before=$(requests)
    forget_again &
    forgetter=$!
    cat >/tmp/postmark.conf <<EOT
set location /tmp/disk
set number $FILES
set size 10000 20000
set transactions $TRANSACTIONS
run
quit
EOT
    postmark /tmp/postmark.conf >/tmp/postmark.out </dev/null
    status=$?
    kill $forgetter
    wait $forgetter 2>/dev/null
    sync
    grep -q "transactions (.* per second)" /tmp/postmark.out || status=1
    tail -n 1 /tmp/postmark.out
    requests=$(($(requests) - before))
    return $status
}

unmount() { umount /tmp/disk; }

check() { /sbin/e2fsck -f -n "$DISK"; }

step disk find_disk
step make make
step work postmark_on_disk
step worked true
step "requests-$requests" [ "$requests" -gt 0 ]
table_of_rights
step unmount unmount
step check check
