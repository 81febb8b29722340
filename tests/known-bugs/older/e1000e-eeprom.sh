# Writes parts of an e1000e's EEPROM as they are: whole words, and words of which one byte is kept.

find_interface() {
    for entry in /sys/class/net/*; do
        case $(readlink -f "$entry") in */"$DEVICE"/*) INTERFACE=${entry##*/} ;; esac
    done
    [ -n "$INTERFACE" ] || { echo "the driver made no network interface" && return 1; }
    folder=/sys/bus/pci/devices/$DEVICE
    MAGIC=0x$(cut -c 3- "$folder/device")$(cut -c 3- "$folder/vendor")
}

# write_back OFFSET LENGTH
write_back() {
    timeout 10 ethtool -e "$INTERFACE" offset "$1" length "$2" raw on >/tmp/bytes || return 1
    timeout 20 ethtool -E "$INTERFACE" magic "$MAGIC" offset "$1" length "$2" </tmp/bytes
}

step interface find_interface
for part in '16 8' '17 6' '16 1' '17 1' '101 4'; do
    # shellcheck disable=SC2086 # two words
    try "write-$(echo $part | tr ' ' -)" write_back $part
done
