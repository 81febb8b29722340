# What the benchmarks of the whole kernel share: the programs that are compiled here, and what they say.
# Variables: PERCENT (of the usual operations).

MUSL=/usr/lib/x86_64-linux-musl
TCC=/usr/lib/x86_64-linux-gnu/tcc
C="tcc -nostdinc -I/usr/include/x86_64-linux-musl -I$TCC/include"

# build NAME...: makes each of them in /tmp. They are static, so that no loader takes part in what they measure.
build() {
    for program in "$@"; do
        # shellcheck disable=SC2086 # a command with its words
        $C -nostdlib -static -o "/tmp/$program" $MUSL/crt1.o $MUSL/crti.o "/tmp/$program.c" $MUSL/libc.a \
            $TCC/libtcc1.a $MUSL/crtn.o || return 1
    done
}

# measure COMMAND...: runs what prints "NAME NANOSECONDS OPERATIONS" lines; each becomes a step with that name and figure.
measure() {
    rm -f /tmp/measured
    mkfifo /tmp/measured
    "$@" >/tmp/measured &
    figures=0
    while read -r name nanoseconds _; do
        say begin "measured-$name-$nanoseconds"
        say ok "measured-$name-$nanoseconds"
        figures=$((figures + 1))
    done </tmp/measured
    wait $! && [ $figures -gt 0 ]
}

# timed NAME COMMAND...: measures a command from its start to its end.
timed() { measure /tmp/kernel-micro run "$@"; }

part() { echo $(($1 * PERCENT / 100 > 0 ? $1 * PERCENT / 100 : 1)); }

ip link set lo up
