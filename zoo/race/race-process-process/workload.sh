#!/bin/sh
# Runs in the guest between insmod and rmmod.
node=/dev/zoo
[ -c "$node" ] || mknod "$node" c 10 "$(cut -d: -f2 /sys/class/misc/zoo/dev)"
for turn in 1 2 3; do
	cat "$node" > /dev/null &
	echo $turn > "$node"
	wait
done
cat "$node" > /dev/null
