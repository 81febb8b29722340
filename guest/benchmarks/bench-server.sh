# Servers that the guest runs.

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

# listening PORT: waits until somebody does.
listening() {
    tries=0
    until netstat -ltn | grep -q ":$1 "; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || { echo "nobody listens on port $1" && return 1; }
        usleep 100000
    done
}

# A server of these is the last process with its name's libraries; a driver in use cannot be unloaded.
end_servers() { killall -9 ld-linux-x86-64.so.2; }
