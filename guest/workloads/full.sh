# Everything that a driver of any class goes through. What is below its sysfs folder is read and, where that is safe,
# written. It is suspended and resumed, and unbound and bound, at rest and under load. In the end it is left under load,
# if it can be unloaded so. What its class adds stands before this text and defines:
#   class_steps   the steps of the class
#   again         uses the device briefly; after a resume or a new bind it must work
#   load          puts a load on the device until /tmp/stop is there; $1 distinguishes the two processes
#   at_end        optional: what is done last
#
# Steps here are tried, not required: a driver that does not support one goes on to the next. Each has a time limit.

turn=0

# bounded SECONDS COMMAND...: fails when the time is over, and leaves behind what cannot be killed.
bounded() {
    limit=$(($1 * 10))
    shift
    turn=$((turn + 1))
    ended=/tmp/ended.$turn
    { "$@"; echo $? >"$ended.new"; mv "$ended.new" "$ended"; } &
    job=$!
    until [ -e "$ended" ]; do
        if [ $limit -le 0 ]; then
            kill -9 $job
            echo "it did not end in time"
            return 1
        fi
        limit=$((limit - 1))
        usleep 100000
    done
    return "$(cat "$ended")"
}

# ask WHAT: the host does something to the device (see qmp.rs for the words).
ask() { say ask "$1"; }

# The driver's folder on its bus, and the device's own folder.
find_folders() {
    for link in /sys/module/"$DRIVER"/drivers/*/"$DEVICE"; do
        DEVICE_FOLDER=$(readlink -f "$link")
        DRIVER_FOLDER=$(readlink -f "${link%/*}")
    done
    [ -d "$DEVICE_FOLDER" ] || { echo "the device has no folder" && return 1; }
}

# Reads all files that may be read, but not the device's registers behind the driver's back.
read_sysfs() {
    find "$DEVICE_FOLDER/" "$DRIVER_FOLDER/" "/sys/module/$DRIVER/" -type f -perm -400 \
        ! -name 'resource*' ! -name rom ! -name trace_pipe -exec timeout -s KILL 20 head -c 4096 {} + >/dev/null 2>&1
    true
}

read_debugfs() {
    find /sys/kernel/debug/ -mindepth 1 -maxdepth 4 \( -name "*$DEVICE*" -o -name "*$DRIVER*" -o -name "${INTERFACE:-none}" \) \
        ! -path '*/tracing/*' ! -path '*/pinctrl/*' >/tmp/list
    [ -s /tmp/list ] || { echo "it has nothing there" && return 1; }
    while read -r entry; do
        find "$entry" -type f -perm -400 -exec timeout -s KILL 10 head -c 4096 {} + >/dev/null 2>&1
    done </tmp/list
    true
}

read_proc() {
    timeout -s KILL 15 sh -c 'cat /proc/interrupts /proc/iomem /proc/ioports /proc/net/dev /proc/diskstats
        find /proc/asound /proc/scsi /proc/irq /proc/mpt /proc/ipmi -type f -exec head -c 4096 {} +' >/dev/null 2>&1
    true
}

runtime_pm() {
    control=$DEVICE_FOLDER/power/control
    [ -w "$control" ] || { echo "the device has no runtime power management" && return 1; }
    before=$(cat "$control")
    echo auto >"$control" || return 1
    [ ! -w "$DEVICE_FOLDER/power/autosuspend_delay_ms" ] || echo 100 >"$DEVICE_FOLDER/power/autosuspend_delay_ms"
    usleep 1500000
    cat "$DEVICE_FOLDER/power/runtime_status"
    echo on >"$control" && usleep 200000
    echo "$before" >"$control"
}

# suspend LEVEL: all devices are suspended and resumed, without the machine going to sleep.
suspend() {
    echo 1 >/sys/module/suspend/parameters/pm_test_delay
    echo "$1" >/sys/power/pm_test || return 1
    echo mem >/sys/power/state
    result=$?
    echo none >/sys/power/pm_test
    return $result
}

give_back() {
    tries=0
    until [ -e "$DRIVER_FOLDER/$DEVICE" ]; do
        [ $tries -lt 20 ] || { echo "the driver did not take the device back" && return 1; }
        echo "$DEVICE" >"$DRIVER_FOLDER/bind"
        tries=$((tries + 1))
        usleep 250000
    done
}

can_unbind() { [ -e "$DRIVER_FOLDER/unbind" ] || { echo "its bus does not take devices from drivers" && return 1; }; }

rebind() {
    can_unbind || return 1
    echo "$DEVICE" >"$DRIVER_FOLDER/unbind" || return 1
    usleep 300000
    give_back
}

heavy() {
    start_load
    usleep 4000000
    stop_load
}

unbind_loaded() {
    can_unbind || return 1
    start_load
    usleep 1500000
    echo "$DEVICE" >"$DRIVER_FOLDER/unbind"
    usleep 500000
    stop_load
    give_back
}

suspend_loaded() {
    start_load
    usleep 1000000
    suspend devices
    result=$?
    stop_load
    return $result
}

step folders find_folders
class_steps
try read-sysfs bounded 40 read_sysfs
try read-debugfs bounded 30 read_debugfs
try read-proc bounded 20 read_proc
try heavy bounded 40 heavy
try runtime-pm bounded 20 runtime_pm
try after-runtime-pm bounded 40 again
for level in devices platform; do
    try "suspend-$level" bounded 40 suspend $level
    try "after-suspend-$level" bounded 40 again
done
try suspend-loaded bounded 40 suspend_loaded
try after-suspend-loaded bounded 40 again
try rebind bounded 30 rebind
try after-rebind bounded 40 again
try unbind-loaded bounded 40 unbind_loaded
try after-unbind-loaded bounded 40 again
! type at_end >/dev/null 2>&1 || at_end
