# What tests of recovery share.

parameters=/sys/module/guardrail/parameters
cat >/tmp/loader <<'END'
#!/bin/sh
[ "$1" != -r ] || exec rmmod "$2"
for file in /guardrail/modules/*-"$1".ko; do
    [ ! -e "$file" ] || exec insmod "$file"
done
exec insmod /guardrail/driver.ko
END
chmod +x /tmp/loader
printf /tmp/loader >$parameters/loader

all_there() { for file; do [ -e "$file" ] || return 1; done; }
# until_there TENTHS MESSAGE FILE...: waits until the files are there, and tells where they do not come in so many tenths of a second.
until_there() {
    tenths=$1 message=$2 tries=0
    shift 2
    until all_there "$@"; do
        tries=$((tries + 1))
        [ $tries -lt "$tenths" ] || { echo "$message" && return 1; }
        usleep 100000
    done
}

# said COUNT TEXT: waits until the log has it so often.
said() {
    tries=0
    until [ "$(dmesg | grep -c "$2")" -ge "$1" ]; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || { echo "the log does not say $1 times: $2" && return 1; }
        usleep 100000
    done
}

recovered() { said "$1" 'recovery of domain 1 is done'; }
# killed_by FUNCTION: a violation kills the domain, and later ones are just told.
killed_by() {
    before=$(dmesg | grep -c 'is killed')
    echo recover >$parameters/policy
    tries=0
    until [ "$(dmesg | grep -c 'is killed')" -gt "$before" ]; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || return 1
        usleep 10000
    done
    echo log >$parameters/policy
    dmesg | grep 'is killed' | tail -n 1 | grep -q "$1"
}
shown() { dmesg | grep 'guardrail: ' | sed 's/^/dmesg: /' >/dev/console; }

# What every thread waits for, where something did not come.
tell() {
    "$@" && return
    shown
    echo 1 >/proc/sys/kernel/sysrq
    echo t >/proc/sysrq-trigger
    return 1
}

