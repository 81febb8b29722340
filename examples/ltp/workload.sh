# Runs tests of the Linux Test Project, which the root has in /opt/ltp, on the driver's disk, and makes a step of each.
# Variables: LTP (FILE:TEST, as a line of /opt/ltp/runtest/FILE begins, such as "dio:dio01"), LTP_SECONDS (the limit of each),
# LTP_FILESYSTEM (mkfs.LTP_FILESYSTEM makes it; the guest's kernel must have it).
#
# A step is ok, skipped or failed as the test's exit status and its lines say. A test that fails does not keep the next from
# running; the run's outcome has the first that failed.

LTP=${LTP:-fs:gf02 fs:inode01 fs:writetest01 dio:dio01 dio:dio06 ltp-aiodio.part1:AD041}
LTP_SECONDS=${LTP_SECONDS:-300}
LTP_FILESYSTEM=${LTP_FILESYSTEM:-ext4}
output=/tmp/ltp
mounted=/tmp/disk

# Tests find each other's programs and the disk by these. The limit within a test is for a real machine.
export LTPROOT=/opt/ltp TMPDIR=$mounted LTP_TIMEOUT_MUL=10 PATH="$PATH:/opt/ltp/testcases/bin"

complete() {
    [ -d $LTPROOT/testcases/bin ] || { echo "the root has no $LTPROOT/testcases/bin" && return 1; }
    for program in timeout mkfs."$LTP_FILESYSTEM" fsck."$LTP_FILESYSTEM"; do
        command -v "$program" >/dev/null || { echo "the root has no $program" && return 1; }
    done
    grep -qw "$LTP_FILESYSTEM" /proc/filesystems || { echo "the guest's kernel has no $LTP_FILESYSTEM" && return 1; }
}

# What the line of the test in the runtest file has behind its name.
command_of() {
    while read -r name command; do
        [ "$name" != "${1#*:}" ] || { printf '%s\n' "$command" && return; }
    done <"$LTPROOT/runtest/${1%%:*}"
}

known() {
    for test in $LTP; do
        [ -n "$(command_of "$test" 2>/dev/null)" ] || { echo "the runtest files of the root have no test $test" && return 1; }
    done
}

find_disk() {
    tries=0
    while [ $tries -lt 10 ]; do
        for entry in /sys/block/*; do
            case $(readlink -f "$entry") in */"$DEVICE"/*) disk=/dev/${entry##*/} && return ;; esac
        done
        tries=$((tries + 1))
        sleep 1
    done
    echo "the driver made no disk"
    return 1
}

make_files() {
    mkfs."$LTP_FILESYSTEM" "$disk" && mkdir -p $mounted && mount -t "$LTP_FILESYSTEM" "$disk" $mounted && chmod 1777 $mounted
}

# A process of the last test may leave a moment after it.
unmount() {
    tries=0
    until umount $mounted; do
        tries=$((tries + 1))
        [ $tries -lt 10 ] || return 1
        sleep 1
    done
}

# Its lines appear when it has ended: one that it leaves running would hold a pipe. A guest that is silent counts as hung, so
# another process says that it lives.
run_test() {
    while sleep 15; do say alive 0; done &
    alive=$!
    (cd $mounted && exec timeout -k 10 "$LTP_SECONDS" sh -c "$(command_of "$1")") >$output 2>&1 </dev/null
    status=$?
    kill $alive
    tail -n 100 $output | while IFS= read -r line; do say output "$line"; done
}

# first PATTERN: the first line of the output that has it.
first() { grep -E "$1" $output | head -n 1 | cut -c 1-200; }

# 32 is TCONF alone. A line of several commands ends with the status of the last one, so the output counts as well. A test that
# reports no result may have tried nothing.
report() {
    wrong=$(first 'TFAIL|TBROK')
    case $status in
    0)
        if [ -n "$wrong" ]; then
            say failed "$1" "$wrong"
        elif grep -q TPASS $output; then
            say ok "$1"
        else
            say skipped "$1" "it ended with status 0 and reported no result"
        fi
        ;;
    32) say skipped "$1" "$(first TCONF)" ;;
    124 | 137) say failed "$1" "no end after $LTP_SECONDS s" ;;
    *)
        wrong=${wrong:-$(first TWARN)}
        say failed "$1" "exit=$status; ${wrong:-$(tail -n 1 $output)}"
        ;;
    esac
}

step ltp complete
step tests known
step disk find_disk
step mkfs make_files
for test in $LTP; do
    say begin "$test"
    run_test "$test"
    report "$test"
done
step umount unmount
step fsck fsck."$LTP_FILESYSTEM" -fn "$disk"
