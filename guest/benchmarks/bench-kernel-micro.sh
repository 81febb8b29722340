# Single services of the kernel: perf's own benchmarks, and small ones besides.

# perf_bench NAME OPTIONS...: perf prints seconds.
perf_bench() {
    perf_name=$1
    shift
    perf bench -f simple "$@" >/tmp/perf || return 1
    awk -v name="$perf_name" 'NF == 1 && $1 > 0 { printf "%s %.0f 1\n", name, $1 * 1e9 }' /tmp/perf >/tmp/perf.measured
    measure cat /tmp/perf.measured
}

step build build kernel-micro
step micro measure /tmp/kernel-micro "$PERCENT"
step perf-syscall perf_bench perf-syscall syscall basic -l "$(part 1000000)"
step perf-pipe perf_bench perf-pipe sched pipe -l "$(part 8000)"
step perf-messaging perf_bench perf-messaging sched messaging -g 2 -l "$(part 60)"
