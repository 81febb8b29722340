# Runs a program of the user's. Its environment has DRIVER, CLASS, DEVICE, and what the driver made: INTERFACE, which is up and
# has an address, or DISK. Its output goes to the host.

# The most lines that the host gets. The shell reads them a byte at a time.
most=2000

network_up() {
    find_interface && ip link set "$INTERFACE" up && wait_for_link &&
        ip address add 10.0.2.15/24 dev "$INTERFACE" && ip route add default via 10.0.2.2
}

# Passes lines on, long ones in pieces, and keeps the last one.
pass_on() {
    lines=0
    while [ $lines -lt $most ] && { IFS= read -r -n 900 line || [ -n "$line" ]; }; do
        lines=$((lines + 1))
        say output "$line"
        echo "$line" >/tmp/last
    done
    rest=$(wc -l)
    [ "$rest" = 0 ] || say output "... $rest more lines"
}

# Its status is the program's. The reason is the step's last line of output.
program() {
    : >/tmp/last
    mkfifo /tmp/printed
    pass_on </tmp/printed &
    reader=$!
    (cd /root && "$@") >/tmp/printed 2>&1 </dev/null
    status=$?
    # What the program has left running may hold its output for ever.
    tries=0
    while kill -0 $reader 2>/dev/null && [ $tries -lt 50 ]; do
        tries=$((tries + 1))
        usleep 100000
    done
    kill $reader 2>/dev/null
    [ $status -ne 0 ] || return 0
    how="exit status $status"
    [ $status -le 128 ] || how="signal $((status - 128))"
    last=$(cat /tmp/last)
    echo "$how${last:+, after: $last}"
    return 1
}

ip link set lo up
case $CLASS in
network) step up network_up ;;
storage | usb) step disk find_disk ;;
esac
export DRIVER CLASS DEVICE INTERFACE DISK HOME=/root
# A program that says nothing for long is alive.
while sleep 5; do say alive 0; done &
alive=$!
trap 'kill $alive' EXIT
