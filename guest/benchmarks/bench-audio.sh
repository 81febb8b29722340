# Plays sound, and names the last step after how often the card ran out of it.
# Variables: SECONDS.

find_card() {
    tries=0
    until ls /dev/snd/pcm*p >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 50 ] || { echo "the driver made no sound device" && return 1; }
        usleep 100000
    done
}

prepare() { dd if=/dev/urandom of=/tmp/sound bs=176400 count="$SECONDS"; }

play() {
    timeout $((SECONDS * 5 + 30)) aplay -D hw:0,0 -t raw -f cd /tmp/sound 2>/tmp/aplay.out
    status=$?
    tail -n 1 /tmp/aplay.out
    return $status
}

step card find_card
step prepare prepare
step work play
step worked true
step "underruns-$(grep -c underrun /tmp/aplay.out)" true
table_of_rights
