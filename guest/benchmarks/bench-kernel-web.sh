# ApacheBench against a web server in the same guest, over the loopback interface.

# Failed requests are no measurement.
requests() {
    timed ab ab -q -n "$(part 1500)" -c 16 http://127.0.0.1/page || return 1
    grep -q "^Failed requests: *0$" /tmp/output && ! grep -q "^Non-2xx" /tmp/output
}

step build build kernel-micro
step serve web
step listening listening 80
step ab requests
end_servers
