# Exercises a disk: reads and verifies all of it, writes a part, reads that back from the device.
# Variables: DISK_MB, COPY_MB, COPY_AT_MB, DISK_SUM, COPY_SUM.

checksum() { md5sum | cut -c 1-32; }

same() { [ "$1" = "$2" ] || { echo "the checksum is ${1:-absent}, expected ${2:-absent}" && return 1; }; }

read_part() { dd if="$DISK" bs=1M skip="$1" count="$2" 2>/dev/null; }

# Data that cannot be read are not wrong data.
sum_of_part() {
    (set -o pipefail && read_part "$1" "$2" | checksum) || { echo "the disk cannot be read" >&2 && return 1; }
}

forget() { sync && echo 3 >/proc/sys/vm/drop_caches; }

read_all() {
    if [ -n "$UNCHECKED" ]; then
        read_part 0 "$DISK_MB" >/dev/null
    else
        sum=$(sum_of_part 0 "$DISK_MB") && same "$sum" "$DISK_SUM"
    fi
}

write_part() { dd if="$DISK" of="$DISK" bs=1M count="$COPY_MB" seek="$COPY_AT_MB" conv=notrunc && forget; }

verify_part() { sum=$(sum_of_part "$COPY_AT_MB" "$COPY_MB") && same "$sum" "$COPY_SUM"; }

step disk find_disk
step read read_all
step write write_part
step verify verify_part
forget
