#!/bin/sh
# Runs in the guest between insmod and rmmod.
ifconfig zoo0 10.77.0.1 netmask 255.255.255.0 up
ping -c 2 -W 1 10.77.0.2 > /dev/null 2>&1
ifconfig zoo0 mtu 1400
ping -c 2 -W 1 10.77.0.3 > /dev/null 2>&1
ifconfig zoo0 down
true
