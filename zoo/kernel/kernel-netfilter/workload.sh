#!/bin/sh
# Runs in the guest between insmod and rmmod.
ifconfig lo 127.0.0.1 up
ping -c 1 -W 1 -s 2000 127.0.0.1 > /dev/null 2>&1
ifconfig lo down
