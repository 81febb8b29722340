# Reads and writes the driver's disk past the cache, in requests of 64 KiB.
# Variables: MB, ROUNDS.

blocks() { echo $((MB * 16)); }

move() {
    round=0
    while [ $round -lt "$ROUNDS" ]; do
        dd if="$DISK" of=/dev/null bs=64k count="$(blocks)" iflag=direct || return 1
        dd if=/dev/zero of="$DISK" bs=64k count="$(blocks)" oflag=direct || return 1
        round=$((round + 1))
    done
}

step disk find_disk
step work move
step worked true
table_of_rights
step flush sync
