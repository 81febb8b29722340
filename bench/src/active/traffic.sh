# Loads in pairs: the stock driver and the active driver have the device by turns, in one guest.
# Variables: KIND, STOCK, ACTIVE, WRAPPER, PAIRS, PERCENT, SINK; PORT, the host's server.

HOST=10.0.2.2
appears() {
    tries=0 INTERFACE=
    until find_interface >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || return 1
        usleep 50000
    done
}
ready_network() { appears && ip link set "$INTERFACE" up && wait_for_link && ip address add 10.0.2.15/24 dev "$INTERFACE"; }
ready_disk() { find_disk; }
ready_sound() {
    tries=0
    until ls /dev/snd/pcm*p >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || return 1
        usleep 50000
    done
}
load_network() { /guardrail/load network $HOST "$PORT" "$SINK" "$PERCENT"; }
load_disk() { /guardrail/load disk "$DISK" "$PERCENT"; }
# A second of sound, and in its middle 200 ms of questions for the position.
load_sound() {
    /guardrail/pcm play 0 44100 s16 2 882 16 44100 pointer >/tmp/pcm || { tail -n 1 /tmp/pcm >&2 && return 1; }
    sed -n 's/.* positions of \([0-9]*\), .* frames in \([0-9]*\) ms.*/\2 \1/p' /tmp/pcm |
        awk '{ printf "measured position %d\n", $1 * 1000000 / $2 }'
    sed -n 's/.* \([0-9]*\) xruns.*/measured underruns \1/p' /tmp/pcm
}

# has DRIVER: gives the device to it.
has() {
    holder=$(readlink -f "/sys/bus/pci/devices/$DEVICE/driver")
    if [ "${holder##*/}" != "$1" ]; then
        echo "$DEVICE" >"$holder/unbind" && echo "$DEVICE" >"/sys/bus/pci/drivers/$1/bind" && "ready_$KIND"
    fi
}
# irq_to CPU: the interrupts of the device go to it. A driver that binds would have them anywhere.
irq_to() {
    numbers=$(ls "/sys/bus/pci/devices/$DEVICE/msi_irqs" 2>/dev/null || cat "/sys/bus/pci/devices/$DEVICE/irq")
    for number in $numbers; do
        echo "$1" >"/proc/irq/$number/smp_affinity_list" || return 1
    done
}
measure() {
    has "$2" || { echo "$2 does not take the device" && return 1; }
    irq_to "$3" || { echo "the interrupts of $2 cannot be sent to CPU $3" && return 1; }
    "load_$KIND" >/tmp/measured || return 1
    sed "s/^/load: $1 /" /tmp/measured >/dev/console
}
# The first of a pair is the stock driver in one, and the active one in the next. The loads run on CPU 0; of four pairs, two
# have the interrupts there too, and two have them on the last CPU.
pair() {
    cpu=$(($1 / 2 % 2 * ($(nproc) - 1)))
    if [ $(($1 % 2)) = 0 ]; then
        measure stock "$STOCK" $cpu && measure active "$ACTIVE" $cpu
    else
        measure active "$ACTIVE" $cpu && measure stock "$STOCK" $cpu
    fi
}
modules() { insmod /guardrail/guardrail_active.ko && insmod "/guardrail/$WRAPPER.ko" && insmod "/guardrail/$ACTIVE.ko"; }
away() {
    has "$STOCK" && rmmod "$ACTIVE" "$WRAPPER" && ! dmesg | grep 'guardrail: active' && rmmod guardrail_active
}

ip link set lo up
step modules modules
step ready "ready_$KIND"
# A first one, which is not counted, warms all caches.
step warm pair 0
echo "load: begin" >/dev/console
n=0
while [ $n -lt "$PAIRS" ]; do
    step "pair-$n" pair $n
    n=$((n + 1))
done
step away away
