# File loads on an ext4 file system: the personalities of Filebench, and dbench's mixture of a file server.

make() { mkdir -p /tmp/disk && /sbin/mke2fs -q -F -t ext4 "$DISK" && mount -t ext4 "$DISK" /tmp/disk; }

personality() {
    mkdir -p "/tmp/disk/$1" && measure /tmp/kernel-files "$1" "/tmp/disk/$1" "$PERCENT" && rm -rf "/tmp/disk/$1"
}

# The list of dbench's requests is cut where no file is open, so that it can begin again and again, each time with all kinds of
# requests; the figure is the time for 100 MB.
dbench_again() {
    awk '$1 == "NTCreateX" && $NF == "NT_STATUS_OK" { open[$(NF - 1)] }
        $1 == "Close" { delete open[$2] }
        { line[NR] = $0 }
        NR >= 2000 { left = 0; for (file in open) left++; if (!left) exit }
        END { for (i = 1; i <= NR; i++) print line[i] }' /usr/share/dbench/client.txt >/tmp/requests
    seconds=$(part 5)
    # In less it prints no rate.
    [ "$seconds" -ge 3 ] || seconds=3
    dbench -t "$seconds" -c /tmp/requests -D /tmp/disk 2 >/tmp/dbench || return 1
    awk '$1 == "Throughput" && $2 > 0 { printf "dbench %.0f 1\n", 100e9 / $2 }' /tmp/dbench >/tmp/dbench.measured
    tail -n 1 /tmp/dbench
    measure cat /tmp/dbench.measured
}

unmount() { umount /tmp/disk; }

step build build kernel-files
step disk find_disk
step make make
for personality in fileserver webserver webproxy varmail; do
    step $personality personality $personality
done
step dbench dbench_again
step unmount unmount
