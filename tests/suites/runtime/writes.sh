# Writes COUNT texts into each file of the runtime that can be written, by the random numbers of SEED. Afterwards the
# kernel's log has no complaint, and the driver works.
settings=/sys/module/guardrail/parameters
files=/sys/kernel/debug/guardrail
mount -t debugfs d /sys/kernel/debug 2>/dev/null
device=$(basename "$(readlink /sys/class/net/eth0/device)")
find $settings $files -type f -perm -200 >/tmp/files
[ "$(wc -l </tmp/files)" -ge 9 ] || { cat /tmp/files; exit 2; }
# The texts that have a meaning, one a line, behind the name of the file.
cat >/tmp/known <<END
policy log
policy fail
policy recover
quota 1
quota 4294967295
watchdog 0
watchdog 10
recoveries 0
loader /sbin/modprobe
inject 2 1
inject 13 2147483647 store
transact e1000:e1000_open always
transact e1000:* 1/3
transact * off
transact e1000_change_mtu 1/2 if arg2=0x5dc
transact e1000:e1000_close always if comm=ip
checkpoint $device
restore $device
END
# Prints lines of a file and a text for printf.
texts() {
    awk -v seed="$1" -v count="$COUNT" '
    function below(n) { return int(rand() * n) }
    function byte() { return sprintf("\\%03o", below(256)) }
    function many(what, n,    text) { while (n-- > 0) text = text what; return text }
    # A known text with some characters replaced, removed or repeated.
    function near(text,    n, at, kind) {
        for (n = below(4); n > 0 && length(text) > 0; n--) {
            at = 1 + below(length(text)); kind = below(4)
            if (kind == 0) text = substr(text, 1, at - 1) substr(" 0189-/=:*?[]%\t,x", 1 + below(17), 1) substr(text, at + 1)
            else if (kind == 1) text = substr(text, 1, at - 1) substr(text, at + 1)
            else if (kind == 2) text = substr(text, 1, at) substr(text, at)
            else text = substr(text, 1, at)
        }
        gsub(/%/, "%%", text)
        return text
    }
    BEGIN { srand(seed) }
    FNR == NR { name = $1; sub(/^[^ ]* /, ""); known[name, ++number[name]] = $0; all[++total] = $0; next }
    {
        name = $0; sub(/.*\//, "", name)
        for (i = 0; i < count; i++) {
            kind = below(10)
            if (kind == 0) text = many(byte(), below(40))
            else if (kind == 1) text = many("A", 4000 + below(200))
            else if (kind == 2) text = many("9", below(40))
            else if (kind == 3) text = byte() byte() byte() byte()
            else if (kind == 4) text = near(all[1 + below(total)])
            else text = near(known[name, 1 + below(number[name])])
            # The domain of the driver stays whole, and no policy ends the thread that writes.
            if (name == "inject" && text ~ /^[ \t+]*0*1([^0-9]|$)/) continue
            if (name == "policy" && text ~ /oops/) continue
            print $0 " " text (below(3) ? "\\n" : "")
        }
    }' /tmp/known /tmp/files
}
texts "$SEED" >/tmp/texts
done=0
while read -r file text; do
    printf "$text" 2>/dev/null >"$file"
    done=$((done + 1))
    if [ $((done % 100)) = 0 ]; then
        ip link set eth0 down
        ip link set eth0 up
        cat $files/domains $files/transact $files/stats $files/violations >/dev/null
    fi
done </tmp/texts 2>/dev/null
echo "$done writes"
echo '* off' >$files/transact
echo log >$settings/policy
for setting in quota=4294967295 watchdog=10 recoveries=5 loader=/sbin/modprobe; do
    echo "${setting#*=}" >$settings/${setting%%=*} || exit 3
done
rmmod e1000 && insmod /guardrail/driver.ko || exit 4
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
for try in 1 2 3 4 5 6 7 8 9 10; do
    ping -c 1 -W 2 10.0.2.2 >/dev/null && break
    [ $try != 10 ] || exit 5
done
complaints='WARNING:|BUG:|Oops|general protection|blocked for more|rcu.*stall|refcount_t'
! dmesg | grep -E -A20 "$complaints" || exit 6
