# A server that somebody outside puts under load: web, memcached, stream (iperf3) or request (sockperf).
# Variables: SERVER, CONTROL (a port of the host: whoever listens there gives the load and says "done" after it; without
# one the server is only started and asked once by the guest itself).

HOST=10.0.2.2

up() {
    ip link set lo up && ip link set "$INTERFACE" up && wait_for_link || return 1
    ip address add 10.0.2.15/24 dev "$INTERFACE" && ip route add default via $HOST
}

# A page of 40 KB, as in the thesis.
web() {
    mkdir -p /tmp/www /tmp/nginx
    dd if=/dev/urandom of=/tmp/www/page bs=1024 count=40 || return 1
    cat >/tmp/nginx/conf <<EOT
user root;
worker_processes 1;
pid /tmp/nginx/pid;
error_log /tmp/nginx/error;
events { worker_connections 512; }
http {
    access_log off;
    sendfile on;
    client_body_temp_path /tmp/nginx/body;
    proxy_temp_path /tmp/nginx/proxy;
    fastcgi_temp_path /tmp/nginx/fastcgi;
    uwsgi_temp_path /tmp/nginx/uwsgi;
    scgi_temp_path /tmp/nginx/scgi;
    server { listen 80; root /tmp/www; }
}
EOT
    nginx -e /tmp/nginx/error -c /tmp/nginx/conf
}

serve() {
    case $SERVER in
    web) web ;;
    memcached) memcached -d -u root -m 256 -t 1 -c 512 ;;
    stream) iperf3 --server --daemon ;;
    request)
        sockperf server --tcp -i 0.0.0.0 -p 11111 >/dev/null 2>&1 &
        sockperf server -i 0.0.0.0 -p 11112 >/dev/null 2>&1 &
        ;;
    *) echo "there is no server named '$SERVER'" && return 1 ;;
    esac
}

port() {
    case $SERVER in
    web) echo 80 ;;
    memcached) echo 11211 ;;
    stream) echo 5201 ;;
    request) echo 11111 ;;
    esac
}

listening() {
    tries=0
    until netstat -ltn | grep -q ":$(port) "; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || { echo "nobody listens on port $(port)" && return 1; }
        usleep 100000
    done
}

# The connection stays open, and still, until the load is over.
load() {
    answer=$(echo ready | nc $HOST "$CONTROL")
    [ "$answer" = done ] || { echo "the load did not end well: ${answer:-no answer}" && return 1; }
}

quit() {
    # A server of this script is the last process with its name's libraries; a driver in use cannot be unloaded.
    killall -9 ld-linux-x86-64.so.2
    ip link set "$INTERFACE" down
}

step interface find_interface
step up up
step serve serve
step listening listening
[ -z "$CONTROL" ] || step load load
step quit quit
