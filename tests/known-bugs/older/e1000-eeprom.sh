# Writes a byte of an e1000's EEPROM while the card's registers come and go, so that the EEPROM cannot be read, but then be written.

find_interface() {
    for entry in /sys/class/net/*; do
        case $(readlink -f "$entry") in */"$DEVICE"/*) INTERFACE=${entry##*/} ;; esac
    done
    [ -n "$INTERFACE" ] || { echo "the driver made no network interface" && return 1; }
    folder=/sys/bus/pci/devices/$DEVICE
    MAGIC=0x$(cut -c 3- "$folder/device")$(cut -c 3- "$folder/vendor")
}

# registers on|off: the card answers to its memory addresses, or does not.
registers() {
    if [ "$1" = on ]; then byte='\007'; else byte='\005'; fi
    # shellcheck disable=SC2059 # it is the format
    printf "$byte" | dd of="$folder/config" bs=1 seek=4 count=1 conv=notrunc
}

unreadable() {
    registers off
    timeout 10 ethtool -e "$INTERFACE" offset 17 length 1
    result=$?
    registers on
    [ $result -ne 0 ]
}

# The bug needs registers that come back after the read was given up, and before the write is. How long programs take to start
# is not known, so the delay moves to where the command begins to fail, in large steps and then in small ones.
write_byte() {
    delay=40000
    tries=0
    while [ $tries -lt 70 ]; do
        tries=$((tries + 1))
        step=$((tries < 14 ? 20 : 4))
        registers off
        timeout 10 ethtool -E "$INTERFACE" magic "$MAGIC" offset 17 value 0x12 &
        usleep "$delay"
        registers on
        if wait $!; then
            delay=$((delay + delay * step / 100))
        else
            delay=$((delay - delay * step / 100))
        fi
    done
    echo "the last delay was $delay"
}

step interface find_interface
step unreadable unreadable
try write write_byte
