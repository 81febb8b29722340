# Plays for two seconds: the card fetches its samples from memory and interrupts, so playing ends in time only if both work.
find_dsp() {
    tries=0
    until DSP=$(find /dev -maxdepth 1 -type c -name 'dsp*' | sort | head -n 1) && [ -n "$DSP" ]; do
        tries=$((tries + 1))
        [ $tries -lt 50 ] || { echo "the driver made no sound device" && return 1; }
        usleep 100000
    done
}

# Eight kilobytes a second is what the interface begins with.
play() { timeout 20 dd if=/dev/urandom of="$DSP" bs=4096 count=4; }

interrupts() {
    count=$(awk '/snd_ens1370/ {print $2 + $3}' /proc/interrupts)
    [ "${count:-0}" -gt 0 ] || { echo "the card interrupted ${count:-0} times" && return 1; }
}

step sound find_dsp
step play play
step interrupts interrupts
