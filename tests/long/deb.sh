#!/bin/bash
# deb.sh: the Debian package from the Dockerfile's own steps, in bare Debian 12 systems: built, installed, asked as a service,
# linked against, and removed without a trace.
#
# There is no Docker here and no systemd: each RUN of the Dockerfile runs in a chroot of its stage, and what systemd would do with
# the unit (its user, its environment, its command) is read from the unit and done by hand. Exit code 77: it cannot be tried here.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
top=$PWD work=$PWD/build/deb

skip() { echo "skipped: $*"; exit 77; }
die() { echo "deb: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || skip "only root can change its root folder"
command -v debootstrap >/dev/null || skip "debootstrap is missing (./dev test --long installs it)"
unshare --mount true 2>/dev/null || skip "no mount namespaces here"
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | head -n 1)
[ -n "$mirror" ] || skip "this machine has no package source for Debian 12"

rm -rf "$work/build" "$work/run"
mkdir -p "$work"
if [ ! -e "$work/base/made" ]; then
    rm -rf "$work/base"
    debootstrap --variant=minbase bookworm "$work/base" "$mirror" >"$work/debootstrap.log" 2>&1 ||
        { tail -n 20 "$work/debootstrap.log"; exit 1; }
    rm -f "$work/base/etc/apt/sources.list"
    for path in /etc/apt /etc/ssl/certs /usr/share/keyrings /usr/local/share/ca-certificates; do
        [ ! -e "$path" ] || { mkdir -p "$work/base$(dirname "$path")" && cp -aLT "$path" "$work/base$path"; }
    done
    rm -rf "$work/base/var/lib/apt/lists"/*
    touch "$work/base/made"
fi

environment=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive)
while IFS= read -r -d '' entry; do
    case ${entry%%=*} in SSL_CERT_* | *_proxy | *_PROXY) environment+=("$entry") ;; esac
done </proc/self/environ

# inside ROOT FOLDER COMMAND
inside() {
    cp -L /etc/resolv.conf /etc/hosts "$1/etc/"
    env -i "${environment[@]}" unshare --mount --pid --fork --kill-child bash -c '
        set -e
        mount --make-rprivate /
        mount -t proc proc "$0/proc"
        mount --rbind /dev "$0/dev"
        exec chroot "$0" bash -c "cd \"$1\" && $2"' "$1" "$2" "$3" </dev/null
}

# The steps of one stage of the Dockerfile, a line each; lines that go on are joined.
steps() {
    sed -e ':a' -e '/\\$/{N;s/\\\n */ /;ba' -e '}' Dockerfile | awk -v want="$1" '/^FROM/ {stage++} stage == want'
}

# play STAGE ROOT: RUN in the chroot, WORKDIR, and COPY from the tree or from the stage before.
play() {
    local root=$2 folder=/ line from to
    cp -a "$work/base" "$root"
    while IFS= read -r line; do
        case $line in
        "RUN "*) echo "  $line" | cut -c1-110; inside "$root" "$folder" "${line#RUN }" >>"$work/log" 2>&1 || { tail -n 30 "$work/log"; die "$line"; } ;;
        "WORKDIR "*) folder=${line#WORKDIR }; mkdir -p "$root$folder" ;;
        "COPY . "*) to=$root${line#COPY . }; git clone -q --no-hardlinks "$top" "$to" ;;
        "COPY --from=build "*) read -r _ _ from to <<<"$line"; cp $work/build$from "$root$to" ;;
        esac
    done < <(steps "$1")
}

# Packages and files, without what apt and dpkg keep of their own doings.
everything='dpkg-query -W -f "\${Package}\n" | sort; find / -xdev \( -path /proc -o -path /dev -o -path /tmp -o -path /var/cache/apt -o \
    -path /var/lib/apt -o -path /var/lib/dpkg -o -path /var/log \) -prune -o -print | sort'

: >"$work/log"
echo "the Dockerfile, stage build"
play 1 "$work/build"
deb=$(ls "$work"/build/evenshare/build/package/evenshare_*.deb)
dpkg-deb --info "$deb" | grep -E '^ (Package|Version|Depends|Installed-Size)'
dpkg-deb --info "$deb" | grep -q 'Depends:.*libc6.*libcurl4\|Depends:.*libcurl4.*libc6' || die "dependencies were not found"

echo "the Dockerfile, stage run"
cp -a "$work/base" "$work/bare" && inside "$work/bare" / 'apt-get update -qq && apt-get install -y -qq --no-install-recommends ca-certificates' >>"$work/log" 2>&1
inside "$work/bare" / "$everything" >"$work/before"
play 2 "$work/run"

# ask ROOT PORT QUESTION: one answer through plain bash
cat >"$work/ask" <<'END'
body="{\"messages\": [{\"role\": \"user\", \"content\": \"$2\"}], \"max_tokens\": 16, \"temperature\": 0}"
exec 3<>/dev/tcp/127.0.0.1/$1
printf "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n" >&3
printf "Content-Length: %d\r\n\r\n%s" ${#body} "$body" >&3
timeout 120 cat <&3
END
cp "$work/ask" "$work/run/usr/local/bin/ask"

echo "the unit"
unit=$work/run/usr/lib/systemd/system/evenshare.service
[ -e "$unit" ] || unit=$work/run/lib/systemd/system/evenshare.service
if command -v systemd-analyze >/dev/null; then
    # the program is not on this machine: verify a copy whose command exists
    sed 's|^ExecStart=/usr/bin/evenshare|ExecStart=/bin/true|' "$unit" >"$work/evenshare.service"
    systemd-analyze verify --man=no "$work/evenshare.service" || die "systemd-analyze verify"
    systemd-analyze security --offline=true --threshold=20 "$work/evenshare.service" | tail -n 1
fi
command=$(sed -n 's/^ExecStart=//p' "$unit")
variables=$(sed -n 's/^Environment=//p' "$unit")
inside "$work/run" / "
    useradd --system --no-create-home --home-dir /nonexistent service
    mkdir -p /var/lib/evenshare /var/cache/evenshare && chown service /var/lib/evenshare /var/cache/evenshare
    printf '[serve]\nport = 18097\nhost = 127.0.0.1\n' >/etc/evenshare/serve.conf
    env -i PATH=/usr/bin:/bin $variables setpriv --reuid service --regid service --clear-groups --no-new-privs --bounding-set=-all \
        $command >/tmp/log 2>&1 & server=\$!
    for i in \$(seq 600); do grep -q http://127.0.0.1:18097 /tmp/log && break; kill -0 \$server || { cat /tmp/log; exit 1; }; sleep 0.2; done
    bash /usr/local/bin/ask 18097 'What is 2 + 3?' >/tmp/answer
    grep -q 'HTTP/1.1 200' /tmp/answer && grep -q '\"content\":\"[^\"]*5' /tmp/answer || { cat /tmp/answer /tmp/log; exit 1; }
    [ \"\$(stat -c %U /proc/\$server)\" = service ]
    kill -TERM \$server && wait \$server
    find / -xdev -user service -not -path '/proc/*' -not -path '/tmp/*' | sort
    userdel service; rm -f /etc/*shadow- /etc/passwd- /etc/group- /etc/sub?id-" | tee "$work/owned"
grep -v '^/var/lib/evenshare\|^/var/cache/evenshare' "$work/owned" && die "the service wrote elsewhere"

echo "the library"
cp "$top/examples/stream.c" "$work/run/tmp/stream.c"
inside "$work/run" /tmp '
    apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev pkg-config cmake make
    gcc -Wall -Werror stream.c $(pkg-config --cflags --libs evenshare) -o stream
    ldd ./stream | grep -q "libevenshare.so.0 => /"
    ./stream /usr/share/evenshare/evenshare-default.gguf "What is 2 + 3?" | grep 5
    printf "cmake_minimum_required(VERSION 3.25)\nproject(x C)\nfind_package(evenshare REQUIRED)\nadd_executable(x stream.c)\ntarget_link_libraries(x evenshare::evenshare)\n" >CMakeLists.txt
    cmake -B b . && cmake --build b && ./b/x /usr/share/evenshare/evenshare-default.gguf "What is 2 + 3?" | grep 5
    rm -rf b CMakeLists.txt stream stream.c
    apt-get purge -y -qq --autoremove gcc libc6-dev pkg-config cmake make' >>"$work/log" 2>&1 || { tail -n 30 "$work/log"; die "the library"; }

echo "the removal"
rm -f "$work/run/usr/local/bin/ask"
inside "$work/run" / 'man=/usr/share/man/man1/evenshare-serve.1; ls $man* >/dev/null; evenshare --version
    apt-get purge -y -qq --autoremove evenshare && userdel -r evenshare 2>/dev/null; rm -f /etc/*shadow- /etc/passwd- /etc/group- /etc/sub?id-' >>"$work/log" 2>&1
inside "$work/run" / "$everything" >"$work/after"
grep -i evenshare "$work/after" && die "traces are left"
left=$(diff "$work/before" "$work/after" | grep '^>' || true)
[ -z "$left" ] || die "left behind: $left"
rm -rf "$work/build" "$work/run" "$work/bare"
echo "deb: all good"
