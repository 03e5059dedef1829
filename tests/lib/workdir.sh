# A fresh directory for a script. One that tests what a service does, not what a disk does, says IN_MEMORY=1: on a busy machine a
# flush may take half a minute, and nothing but patience would be tested.
# shellcheck shell=bash
workdir() {
    local in=${TMPDIR:-/tmp} free
    if [ -n "${IN_MEMORY:-}" ] && [ -w /dev/shm ]; then
        free=$(df --output=avail -k /dev/shm | tail -1)
        [ "$free" -lt 2097152 ] || in=/dev/shm
    fi
    mktemp -d -p "$in"
}
