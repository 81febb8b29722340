# What a sound card's driver goes through: playing and recording, at once and on both CPUs, the mixer, odd sizes.

# The kernel's OSS interface takes plain reads and writes. A card that comes while the one before it is still open
# gets the next number.
find_dsp() {
    tries=0
    until DSP=$(find /dev -maxdepth 1 -type c -name 'dsp*' | sort | head -n 1) && [ -n "$DSP" ]; do
        tries=$((tries + 1))
        [ $tries -lt 50 ] || { echo "the driver made no sound device" && return 1; }
        usleep 100000
    done
}

play() { timeout "$1" dd if=/dev/zero of="${DSP:-/dev/dsp}" bs="$2" count="$3"; }
record() { timeout "$1" dd if="${DSP:-/dev/dsp}" of=/dev/null bs="$2" count="$3"; }

# What a load left open closes within seconds.
again() {
    find_dsp || return 1
    for turn in 1 2 3; do
        play 8 4096 4 && return
        record 8 4096 4 && return
        usleep 1000000
    done
    return 1
}

load() {
    case $1 in
    0) play 2 4096 8 ;;
    *) record 2 4096 8 ;;
    esac
}

both_ways() {
    play 6 2048 16 &
    record 6 2048 16
    wait
}

open_and_close() {
    for device in /dev/dsp* /dev/audio* /dev/mixer* /dev/sequencer* /dev/midi* /dev/snd/*; do
        [ -c "$device" ] || continue
        timeout 3 sh -c ": <$device"
        timeout 3 sh -c ": >$device"
    done
    true
}

odd_sizes() {
    for size in 1 37 1000 65536; do
        play 3 $size 3
    done
    true
}

class_steps() {
    step sound bounded 20 find_dsp
    try play bounded 20 play 10 4096 16
    try record bounded 20 record 10 4096 16
    try both-ways bounded 20 both_ways
    try odd-sizes bounded 20 odd_sizes
    try open-and-close bounded 40 open_and_close
    try interrupted bounded 20 play 1 65536 1000
}
