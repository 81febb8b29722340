# Brings the interface up, sends two pings, and takes it down. That the pings are lost is no failure.
for folder in /sys/class/net/*; do
    [ "${folder##*/}" = lo ] || interface=${folder##*/}
done
step up ip link set "$interface" up
step address ip addr add 10.0.2.15/24 dev "$interface"
step wait usleep 500000
ping -c 2 -W 1 10.0.2.2 || true
step down ip link set "$interface" down
