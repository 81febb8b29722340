# For a guest that lives on: carries out what comes on the third serial port, a script in base64 a line, until "quit".
# After a script's output come byte 1, its status and a newline.
commands() {
    while read -r line <&4; do
        [ "$line" = quit ] && break
        echo "$line" | base64 -d >/tmp/command
        sh /tmp/command </dev/null >&4 2>&1
        printf '\001%d\n' "$?" >&4
    done
}
# What comes before the port is open is lost, so it is open before the host hears of it.
exec 4<>/dev/ttyS2
stty -F /dev/ttyS2 raw -echo
say begin commands
commands
say ok commands
