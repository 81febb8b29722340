# What a script of the user's finds in a root of the user's: the functions step, try and say, as the guest's init has them.
# They need nothing but the shell.

# Not by echo, which expands backslashes in some shells.
say() { printf 'guardrail: %s\n' "$*" >&3; }

why() {
    reason=
    while IFS= read -r line; do
        [ -z "$line" ] || reason=$line
    done </tmp/output
    printf '%.200s\n' "$reason"
}

step() {
    step_name=$1
    shift
    say begin "$step_name"
    "$@" >/tmp/output 2>&1 || { say failed "$step_name" "$(why)" && exit 1; }
    say ok "$step_name"
}

try() {
    step_name=$1
    shift
    say begin "$step_name"
    if "$@" >/tmp/output 2>&1; then say ok "$step_name"; else say skipped "$step_name" "$(why)"; fi
}
