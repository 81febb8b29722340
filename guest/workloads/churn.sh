# Unloads the modules that were loaded before the driver, and loads them again, many times over.
# Variables: ROUNDS.

modules() { ls /guardrail/modules/*.ko; }

name_of() {
    name=${1##*/}
    name=${name#*-}
    echo "${name%.ko}"
}

unload_all() {
    for file in $(modules | sort -r); do
        rmmod "$(name_of "$file")" || return 1
    done
}

load_all() {
    for file in $(modules); do
        insmod "$file" || return 1
    done
}

# Some rounds at a time, so that the host sees that it goes on.
churn() {
    some=0
    while [ $some -lt 5 ] && [ $round -lt "$ROUNDS" ]; do
        some=$((some + 1))
        round=$((round + 1))
        unload_all && load_all || return 1
    done
}

round=0
while [ $round -lt "$ROUNDS" ]; do
    step "churn-$round" churn
done
