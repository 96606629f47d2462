#!/bin/bash
# chroot.sh: ./dev serve and ./dev test in a bare Debian 12, from a fresh clone of the last commit.
#
# A machine that builds evenshare every day has long had what a newcomer's lacks. This makes one that has nothing:
# debootstrap's smallest system under build/chroot, with this machine's package sources, certificates and name resolution and nothing else
# of it. Mounts live in a mount namespace of their own and vanish with it. Exit code 77: it cannot be tried here.
#
#   tests/long/chroot.sh          everything
#   tests/long/chroot.sh COMMAND  run one command in the clone there (it stays until build/chroot is removed)
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
root=$PWD/build/chroot

skip() { echo "skipped: $*"; exit 77; }
[ "$(id -u)" = 0 ] || skip "only root can change its root folder"
command -v debootstrap >/dev/null || skip "debootstrap is missing (./dev test --long installs it)"
unshare --mount true 2>/dev/null || skip "no mount namespaces here"

if [ ! -e "$root/made" ]; then
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | head -n 1)
    [ -n "$mirror" ] || skip "this machine has no package source for Debian 12"
    echo "making a bare Debian 12 in $root"
    rm -rf "$root"
    mkdir -p "$root"
    debootstrap --variant=minbase bookworm "$root" "$mirror" >build/debootstrap.log 2>&1 ||
        { tail -n 20 build/debootstrap.log; exit 1; }
    rm -f "$root/etc/apt/sources.list"
    for path in /etc/apt /etc/pip.conf /etc/ssl/certs /usr/share/keyrings /usr/local/share/ca-certificates; do
        [ ! -e "$path" ] || { mkdir -p "$root$(dirname "$path")" && cp -aLT "$path" "$root$path"; }
    done
    touch "$root/made"
fi
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
rm -rf "$root/evenshare"
git clone -q --no-hardlinks . "$root/evenshare"

# Of the environment only what says how packages are reached.
environment=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 CI=true)
while IFS= read -r -d '' entry; do
    case ${entry%%=*} in
    PIP_INDEX_URL | PIP_EXTRA_INDEX_URL | PIP_CERT | PIP_DEFAULT_TIMEOUT | SSL_CERT_* | *_proxy | *_PROXY)
        environment+=("$entry")
        ;;
    esac
done </proc/self/environ

inside() {
    env -i "${environment[@]}" unshare --mount --pid --fork --kill-child bash -c '
        set -e
        mount --make-rprivate /
        mount -t proc proc "$0/proc"
        mount --rbind /dev "$0/dev"
        mount -t tmpfs tmpfs "$0/tmp"
        exec chroot "$0" bash -c "cd /evenshare || exit; $1"' "$root" "$1" </dev/null
}

if [ $# -gt 0 ]; then
    inside "$*"
    exit
fi
inside './dev --help && ./dev serve --help'
inside './dev serve --port 18099 >/tmp/log 2>&1 & server=$!
for i in $(seq 900); do
    grep -q "http://127.0.0.1:18099/v1" /tmp/log && break
    kill -0 $server || { cat /tmp/log; exit 1; }
    sleep 1
done
question="{\"role\": \"user\", \"content\": \"What is the capital of France?\"}"
body="{\"messages\": [$question], \"max_tokens\": 16, \"temperature\": 0}"
exec 3<>/dev/tcp/127.0.0.1/18099
printf "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:18099\r\nContent-Type: application/json\r\n" >&3
printf "Connection: close\r\nContent-Length: %d\r\n\r\n%s" ${#body} "$body" >&3
timeout 120 cat <&3 | tee /tmp/answer | tail -n 1
grep -q "HTTP/1.1 200" /tmp/answer && grep -q "\"content\":\"[^\"]" /tmp/answer || { cat /tmp/log; exit 1; }
kill -TERM $server && wait $server'
inside './dev test'
echo "chroot: all good"
