# Runs tests of the kernel's own selftests, which the root has in /kselftest, and makes a step of each.
# Variables: KSELFTESTS (lines of kselftest-list.txt, such as "net:netdevice.sh"), KSELFTEST_SECONDS (the limit of each).
#
# A step is ok, skipped or failed as the runner's line of KTAP says. A test that fails does not keep the next from running;
# the run's outcome has the first that failed. The variable is not TESTS: the tests of net/forwarding read that one.

KSELFTESTS=${KSELFTESTS:-net:netdevice.sh}
KSELFTEST_SECONDS=${KSELFTEST_SECONDS:-300}
runner=/kselftest/run_kselftest.sh
output=/tmp/kselftest

# Without these the runner or a test prints an error and may still end with status 0.
complete() {
    [ -x $runner ] || { echo "the root has no $runner" && return 1; }
    for program in bash ip perl timeout; do
        command -v $program >/dev/null || { echo "the root has no $program" && return 1; }
    done
}

known() {
    for test in $KSELFTESTS; do
        $runner --list | grep -qxF "$test" || { echo "kselftest-list.txt of the root has no test $test" && return 1; }
    done
}

# The names of the driver's interfaces.
interfaces() {
    for entry in /sys/class/net/*; do
        case $(readlink "$entry/device/driver") in */"$DRIVER") printf '%s ' "${entry##*/}" ;; esac
    done
}

# The runner passes a test the arguments of the variable that has its name. Tests of net/forwarding make pairs of veth where
# ports are missing; these would not be the driver's.
give_ports() {
    name=$(echo "${1##*:}" | tr '[:lower:]' '[:upper:]' | tr -c '[:alnum:]\n' _)
    export "KSELFTEST_${name}_ARGS=$(interfaces)" NETIF_CREATE=no
}

# Its lines appear as they come. A guest that is silent counts as hung, so another process says that it lives.
run_test() {
    while sleep 15; do say alive 0; done &
    alive=$!
    timeout "$KSELFTEST_SECONDS" $runner --test "$1" 2>&1 </dev/null | tee $output |
        while IFS= read -r line; do say output "$line"; done
    kill $alive
}

# first PATTERN: the first line of the output that has it.
first() { grep -E "$1" $output | head -n 1 | sed 's/^# *//; s/  */ /g'; }

# The runner ends with status 0 whatever the test did. net:netdevice.sh prints FAIL and ends with 0, and a test of
# net/forwarding may end with 0 where it tried nothing.
report() {
    result=$(grep -E '^(not )?ok [0-9]+ selftests: ' $output | tail -n 1)
    wrong=$(first '^# *(FAIL|not ok |TEST: .*\[FAIL\])')
    skip=$(first SKIP)
    case $1 in net/forwarding:*) grep -q '^# *TEST: ' $output || wrong=${wrong:-it tried nothing} ;; esac
    case $result in
    *'# SKIP'*) say skipped "$1" "$skip" ;;
    not*) say failed "$1" "${result##*# }${wrong:+; $wrong}" ;;
    ok*) if [ -z "$wrong" ]; then say ok "$1"; else say failed "$1" "$wrong"; fi ;;
    *) say failed "$1" "no result after $KSELFTEST_SECONDS s" ;;
    esac
}

step kselftest complete
step tests known
ip link set lo up
for test in $KSELFTESTS; do
    case $test in net/forwarding:*) give_ports "$test" ;; esac
    say begin "$test"
    run_test "$test"
    report "$test"
done
