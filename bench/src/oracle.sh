# Loads each module of the guest LOADS times with its own workload (each twin a tenth as often), and marks in the kernel's log
# where each begins. The module that init has loaded already gives its place to the others until the end.
mark() { echo "<3>oracle: $*" >/dev/kmsg; }
# Workloads that only wait have nothing to wait for: what those modules do is done when they are loaded or gone.
step() { :; }
try() { :; }

# once FOLDER: loads the module, runs its workload, unloads it.
once() {
    insmod "$1/driver.ko" || return
    [ "$1" = /guardrail ] || (. "$1/workload") >/dev/null 2>&1
    rmmod "$DRIVER"
}

[ -d /sys/module/kfence ] || mark no-kfence
first=$DRIVER
rmmod "$first"
for folder in /guardrail /guardrail/more/*; do
    [ -f "$folder/driver.ko" ] || continue
    DRIVER=$first
    [ "$folder" = /guardrail ] || . "$folder/config"
    say begin "$DRIVER"
    loads=$LOADS
    case $DRIVER in *_ok) loads=$((LOADS / 10 + 1)) ;; esac
    mark once "$DRIVER"
    once "$folder" || mark failed "$DRIVER"
    mark again "$DRIVER"
    while [ $((loads -= 1)) -gt 0 ]; do
        once "$folder" || { mark failed "$DRIVER"; break; }
    done
    mark end "$DRIVER"
    say ok "$DRIVER"
done
DRIVER=$first
insmod /guardrail/driver.ko
