# Each of the driver's parameters has it do one thing with its stack; its twin succeeds in each.

parameters=/sys/module/$DRIVER/parameters

each() {
    for file in "$parameters"/*; do
        echo 1 >"$file" || [ "$DRIVER" = frames ] || return 1
    done
    sleep 1
}
again() { each && each; }

step each each
step again again
