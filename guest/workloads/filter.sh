# What the packet filter goes through: tables, chains, rules, sets, maps and counters are added, listed, replaced and removed,
# while packets pass through the loopback interface. What a rule drops must not arrive, and counters must have counted. There
# are transactions that fail and have no effect, flushes under traffic, and namespaces that end with their rules in place.
# It needs no device.
# Variables: RULES (of a chain), ELEMENTS (of a set), ROUNDS.

# The lines after that of the error point into the rules.
rules() { nft -f - 2>/tmp/errors || { grep Error /tmp/errors && return 1; }; }

loopback() { ip link set lo up && ping -c 1 -W 2 127.0.0.1; }

reaches() { timeout 5 ping -c 1 -W 1 -p 5a -s "${2:-56}" "$1" >/dev/null; }
refused() { ! "$@" || { echo "it did not fail" && return 1; }; }

# The rule that has counted most.
packets() { sed -n "s/.*$1.*counter packets \([0-9]*\).*/\1/p" /tmp/rules | sort -n | tail -n 1; }

counted() {
    nft list ruleset >/tmp/rules && count=$(packets "$1") && [ "${count:-0}" -ge "$2" ] ||
        { echo "the counter of '$1' is ${count:-absent}, not $2" && return 1; }
}

add_tables() {
    rules <<'END'
table ip first {
    counter pings { }
    chain in {
        type filter hook input priority 0; policy accept;
        icmp type echo-request ip length 128 counter drop
        icmp type echo-request counter accept
    }
    chain out {
        type filter hook output priority 0; policy accept;
        ip daddr 127.0.0.3 counter drop
    }
}
table ip6 sixth {
    chain in {
        type filter hook input priority 0; policy accept;
        meta l4proto 58 counter
    }
}
table inet both {
    set hosts { type ipv4_addr; elements = { 127.0.0.2, 127.0.0.5 }; }
    set ranges { type ipv4_addr; flags interval; elements = { 127.1.0.0/16, 127.3.0.0-127.4.255.255 }; }
    set pairs { type ipv4_addr . inet_proto; flags interval; elements = { 127.0.0.9 . 1, 127.5.0.0/24 . 1-2 }; }
    set seen { type ipv4_addr; flags dynamic,timeout; timeout 2s; size 1000; }
    map verdicts { type inet_proto : verdict; elements = { 1 : jump known, 6 : accept }; }
    map marks { type ipv4_addr : mark; elements = { 127.0.0.1 : 0x1, 127.0.0.6 : 0x2 }; }
    chain known {
        counter comment "known"
    }
    chain in {
        type filter hook input priority 10; policy accept;
        meta l4proto vmap @verdicts
        ip daddr @hosts counter drop
        ip daddr @ranges counter drop
        ip daddr . meta l4proto @pairs counter drop
        update @seen { ip saddr timeout 1s counter }
        meta mark set ip daddr map @marks
        meta mark 0x2 counter drop
        meta length & 0x1f == 0x3 counter
        iifname "lo" meta pkttype { host, broadcast, multicast } counter
    }
}
table netdev early {
    chain in {
        type filter hook ingress device "lo" priority 0; policy accept;
        ip ttl 64 counter
    }
}
table arp none {
    chain in {
        type filter hook input priority 0; policy accept;
        arp operation request counter
    }
}
END
}

pass() { reaches 127.0.0.1 && counted echo-request 1; }

drop() {
    for host in 127.0.0.2 127.0.0.3 127.1.2.3 127.4.5.6 127.0.0.6 127.0.0.9 127.5.0.7; do
        refused reaches $host || return 1
    done
    refused reaches 127.0.0.1 100 && reaches 127.0.0.1 101 && counted hosts 1 && counted ranges 2
}

change_sets() {
    nft add element inet both hosts { 127.0.0.7 } && refused reaches 127.0.0.7 && nft delete element inet both hosts { 127.0.0.7 } &&
        reaches 127.0.0.7 && nft get element inet both ranges { 127.1.0.9 } &&
        nft add element inet both ranges { 127.7.0.0-127.7.0.9 } && refused reaches 127.7.0.5 &&
        nft delete element inet both ranges { 127.7.0.0-127.7.0.9 } && reaches 127.7.0.5 &&
        nft add element inet both pairs { 127.8.0.0/16 . 1 } && refused reaches 127.8.0.5 && nft flush set inet both pairs && reaches 127.8.0.5
}

large_set() {
    {
        echo 'table ip large { set hosts { type ipv4_addr; }; set ports { type inet_service; flags interval; }; }'
        i=0
        while [ $i -lt "$ELEMENTS" ]; do
            echo "add element ip large hosts { 10.$((i / 256)).$((i % 256)).1 }"
            echo "add element ip large ports { $((i * 4))-$((i * 4 + 2)) }"
            i=$((i + 1))
        done
    } | rules && nft list table ip large >/tmp/rules && [ "$(grep -o '10\.[0-9.]*' /tmp/rules | wc -l)" = "$ELEMENTS" ] && nft delete table ip large
}

many_rules() {
    nft add table ip many && nft add chain ip many in '{ type filter hook input priority 20; }' || return 1
    i=0
    while [ $i -lt "$RULES" ]; do
        echo "add rule ip many in ip saddr 10.0.0.$((i % 200)) udp dport $((i + 1)) counter comment \"rule $i\""
        i=$((i + 1))
    done | rules && reaches 127.0.0.1 && nft -a list chain ip many in >/tmp/rules && [ "$(grep -c 'rule ' /tmp/rules)" = "$RULES" ] || return 1
    for handle in $(sed -n 's/.*# handle //p' /tmp/rules | tail -n 5); do
        nft replace rule ip many in handle "$handle" counter accept && nft insert rule ip many in position "$handle" counter &&
            nft delete rule ip many in handle "$handle" || return 1
    done
    nft rename chain ip many in renamed && nft flush chain ip many renamed && nft delete table ip many
}

# A transaction whose last command fails has no effect.
failed() {
    nft list ruleset >/tmp/before
    rules <<'END' && echo "it did not fail" && return 1
add table ip never
add chain ip never in { type filter hook input priority 0; }
add rule ip never in counter drop
delete element inet both hosts { 127.0.0.2 }
add rule ip nowhere in counter
END
    refused nft list table ip never && refused reaches 127.0.0.2 && refused nft add rule inet both known jump known &&
        refused nft delete chain inet both known && refused nft delete set inet both hosts
}

replace_all() {
    nft list ruleset >/tmp/rules && { echo 'flush ruleset' && cat /tmp/rules; } | rules && reaches 127.0.0.1 && refused reaches 127.0.0.2
}

reset() { nft reset counters && nft list counters && nft list sets && nft list maps && nft -j list ruleset >/dev/null; }

watched() {
    timeout 3 nft monitor >/tmp/events &
    usleep 500000
    nft add table ip watched && nft add chain ip watched some && nft delete table ip watched
    usleep 500000
    wait
    grep -q watched /tmp/events
}

under_traffic() {
    rm -f /tmp/stop
    (until [ -e /tmp/stop ]; do timeout 5 ping -c 50 -i 0.005 127.0.0.1; done) >/dev/null 2>&1 &
    round=0
    while [ $round -lt "$ROUNDS" ]; do
        replace_all && change_sets || { touch /tmp/stop && return 1; }
        round=$((round + 1))
    done
    touch /tmp/stop
    wait
}

namespaces() {
    unshare -n sh -c 'ip link set lo up; nft -f -; ping -c 1 -W 1 127.0.0.1' <<'END'
table inet own {
    set seen { type ipv4_addr; flags dynamic,timeout; timeout 20s; }
    chain in {
        type filter hook input priority 0;
        update @seen { ip saddr }
        counter
    }
}
END
    usleep 500000
}

expire() { usleep 2500000 && reaches 127.0.0.1 && nft list set inet both seen; }

dormant() { nft add table ip first '{ flags dormant; }' && reaches 127.0.0.3 && nft add table ip first && refused reaches 127.0.0.3; }

flush() { nft flush ruleset && [ -z "$(nft list ruleset)" ] && reaches 127.0.0.2; }

step loopback loopback
step add add_tables
step pass pass
step drop drop
step sets change_sets
step large-set large_set
step rules many_rules
step failed failed
step replace replace_all
try reset reset
try monitor watched
step traffic under_traffic
step expire expire
try dormant dormant
try namespaces namespaces
step flush flush
