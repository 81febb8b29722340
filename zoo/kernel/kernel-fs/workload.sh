#!/bin/sh
# Runs in the guest between insmod and rmmod.
mkdir -p /tmp/zoofs
mount -t zoofs none /tmp/zoofs && cat /tmp/zoofs/version > /dev/null
umount /tmp/zoofs
