# Brings the interface up, and has the host pull the cable out and put it in again.
for folder in /sys/class/net/*; do
    [ "${folder##*/}" = lo ] || interface=${folder##*/}
done
step up ip link set "$interface" up
step wait usleep 500000
say ask link-down
step wait usleep 1500000
say ask link-up
step wait usleep 1500000
step down ip link set "$interface" down
